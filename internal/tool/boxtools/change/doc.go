// Package change changes a text by edits and patches. A change is made where its old lines
// are, first to the byte and then but for white space at the ends of lines, and only if they
// are at one place: of two places that fit, neither is ever chosen.
package change
