// Package recovery decides whether what a data directory holds may be used, and
// brings back what another part of it still knows.
//
// Inspect reads everything without a write and before anything else opens it,
// for the parts repair themselves in ways that destroy what they would be
// repaired from. Recover refills a damaged log beside the old one.
package recovery
