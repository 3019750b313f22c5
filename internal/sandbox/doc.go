// Package sandbox says what a box is: the place where untrusted code runs, with
// its own processes, mounts and (empty) network, one tether to the host, and
// limits. Drivers in the folders below make them; none imports another.
package sandbox
