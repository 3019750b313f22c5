// Package provider is what the gateway asks of a model service: one streamed
// turn at a time, into a sink that bounds what is kept. The services are in
// sibling folders and never import each other.
package provider
