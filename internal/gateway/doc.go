// Package gateway is the only package that holds the key of a model service. It chooses the model,
// keeps a run within its budget, retries a bounded number of times, records the usage of each call
// once, and returns turns that are bounded in size and valid in shape.
package gateway
