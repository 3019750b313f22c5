// Package bench measures what ChoirOS holds itself to, against the raw tool
// doing the same with the same durability, in one run on one machine. It calls
// the parts through the seams that the product uses, and starts the real binary
// for what only the whole can show. `choir bench` prints what it returns.
package bench
