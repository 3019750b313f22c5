// Package recovery decides whether the contents of a data directory may be used, and
// restores damaged parts from other parts that still have their contents.
//
// Inspect reads everything, without writing, before anything else opens it, because the
// parts repair themselves in ways that would destroy what they could be restored from.
// Recover makes a damaged log anew beside the old one.
package recovery
