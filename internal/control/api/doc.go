// Package api holds the words of the public HTTP API: what its answers and
// requests look like in JSON and how a command's streams are framed. The
// control plane serves them, the client reads them, and a computer is asked in
// their terms. No I/O beyond the framing.
package api
