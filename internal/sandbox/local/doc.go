// Package local is the driver that makes boxes on this machine with bubblewrap:
// namespaces, a seccomp filter, cgroups where they can be written, and overlays
// mounted in a user namespace. Boxes are siblings on the host.
package local
