// Package shell is the desktop of a computer: its source in a new workspace, the
// dev server that shows it while somebody looks, builds of it that are kept, its
// dependencies, what its pages say of their health, and where it can go back to.
//
// All of it is the user's and the agents' code, and runs in boxes. The package
// never believes what such a box says about anybody but itself, and never takes
// back what a person edited.
package shell
