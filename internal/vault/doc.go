// Package vault keeps secrets on the control plane, encrypted at rest in one file. The
// master key is in a file beside it or comes from outside.
package vault
