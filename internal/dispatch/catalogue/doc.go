// Package catalogue is every tool of a computer: who may call it, for which task, and
// what of it the host carries out.
package catalogue
