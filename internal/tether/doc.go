// Package tether carries plain HTTP in both directions over one connection. That connection
// is the only one that a box has.
//
// The two ends prove to each other that they know a one-time token, and then multiplex
// streams over the connection; each end serves HTTP on the streams that the other opens.
// Nothing that the peer sends is trusted: frames, streams, headers and times are bounded,
// and exceeding a bound ends the session.
package tether
