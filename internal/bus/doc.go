// Package bus connects everything over NATS: it provides the stream that stores each
// computer's log, the credentials for browsers, and the bridge over which browsers connect.
//
// The server is an embedded one that listens on no port (package embedded), or one that
// somebody else runs (package external). The embedded one can be reached in two ways: by
// the control plane's own in-process connection, and through Serve, which passes one
// client's raw NATS protocol on and lets it name no reply subject outside its own inbox.
package bus
