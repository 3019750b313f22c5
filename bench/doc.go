// Package bench measures ChoirOS against its targets, and against the raw tool doing the
// same with the same durability, in one run on one machine. It calls the parts through the
// interfaces that the product uses, and starts the real binary for what only the whole
// product can show. `choir bench` prints what it returns.
package bench
