// Package sandbox defines a box: the place where untrusted code runs, with its own
// processes, mounts and (empty) network, one connection to the host, the tether, and
// limits. Drivers in the folders below make boxes; none imports another.
package sandbox
