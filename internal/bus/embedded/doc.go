// Package embedded is the NATS server that runs in this process and listens
// nowhere: its keys, its store, and what keeps it going after a write has failed.
package embedded
