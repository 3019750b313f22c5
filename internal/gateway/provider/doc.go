// Package provider defines what the gateway asks of a model service: one streamed turn at a time,
// written to a sink that bounds what is kept. The implementations are in sibling folders and never
// import each other.
package provider
