// Package wanted computes what the live tree of a computer is to become after a restore, an
// undo or a publish. Its work depends on how much changes, not on how large the tree is.
package wanted
