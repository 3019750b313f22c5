// Package parts keeps the parts of one computer that is awake running, says how they are, and
// records in its log what became of them.
package parts
