// Package origin tells which of the host names on the control plane's address a request is
// for, the console's or that of a desktop, and whether a request comes from a page of the
// origin that it is sent to.
package origin
