// Package bus holds the NATS server that runs inside the control plane: its
// keys and accounts, the stream that stores every computer's log, the
// credentials that browsers get, and the bridge that lets their bytes in.
//
// The server listens on no port. There are two ways in: the control plane's own
// in-process connection, and Serve, which carries one client's raw NATS
// protocol and lets it name no reply subject but its own inbox.
package bus
