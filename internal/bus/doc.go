// Package bus is the NATS that everything goes over: the stream that stores each
// computer's log, the credentials that browsers get, and the bridge that lets
// their bytes in.
//
// The server is one of its own (package embedded), which listens on no port, or
// one that somebody else runs (package external). There are two ways into the
// former: the control plane's own in-process connection, and Serve, which carries
// one client's raw NATS protocol and lets it name no reply subject but its own
// inbox.
package bus
