// Package vault keeps secrets on the control plane, encrypted at rest in one
// file with a master key that stands beside it or comes from outside.
package vault
