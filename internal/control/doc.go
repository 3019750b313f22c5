// Package control is the control plane's HTTP: the console, the public API and
// the desktops' origins on one address, told apart by Host. It trusts neither a
// browser's Origin nor a computer's page, and runs nothing of a workspace.
package control
