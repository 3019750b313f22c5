// Package cassette keeps what a model answered in one task, and plays it back in the wire formats
// of model services. docs/eval.md describes the file's form.
package cassette
