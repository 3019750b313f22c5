// Package tether carries plain HTTP in both directions over one connection,
// the only one a box has.
//
// The two ends prove to each other that they know a one-time token, then
// multiplex streams over the connection; each end serves HTTP on the streams
// the other opens. Nothing the peer sends is trusted: frames, streams, headers
// and times are bounded, and breaking a bound ends the session.
package tether
