// Package control serves HTTP for the control plane: the console, the public API and the desktops'
// origins share one address and are told apart by the Host header. It trusts neither a browser's Origin
// nor a computer's page, and executes nothing from a workspace.
package control
