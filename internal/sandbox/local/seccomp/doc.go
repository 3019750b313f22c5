// Package seccomp makes the system call filter of every box, as a BPF program that
// bubblewrap loads.
package seccomp
