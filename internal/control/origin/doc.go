// Package origin knows the names that one address answers to, the console's and a
// name for each desktop, and whether a request comes from a page of the origin that
// it is for.
package origin
