// Package wanted is what the live tree of a computer is to become: for a restore, an undo
// or a publish, decided over what changes, and not over all that is there.
package wanted
