// Package seccomp is the filter of system calls that every box is under, as a program
// for bubblewrap to load.
package seccomp
