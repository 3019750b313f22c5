// Package catalogue lists every tool of a computer: who may call it, for which task, and
// which of them the host carries out.
package catalogue
