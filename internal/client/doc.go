// Package client is the Go client of the control plane's public API, the same
// that browsers use. The command line is built on it.
//
// It dials the address of the URL it was given but sends the console's host
// name, so it works where *.localhost does not resolve.
package client
