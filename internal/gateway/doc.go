// Package gateway is the only part that knows a model service's key. It picks
// the model, keeps a run within its budget, retries within bounds, meters every
// call once, and hands back turns whose size and shape a loop can rely on.
package gateway
