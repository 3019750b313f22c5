// Package shell is the desktop of a computer: its source in a new workspace, the dev server
// that serves it while somebody looks, kept builds of it, its dependencies, the health that
// its pages report, and the checkpoints that it can be rewound to.
//
// All of it is the user's and the agents' code, and runs in boxes. The package trusts what
// such a box says only about the box itself, and never takes back what a person edited.
package shell
