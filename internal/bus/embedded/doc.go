// Package embedded runs a NATS server in this process that listens on no port: its keys,
// its store, and its recovery after a failed write.
package embedded
