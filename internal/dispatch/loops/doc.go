// Package loops is how the host talks with a loop in its box: it starts one with a
// message and reads its lines until the end, answers what the loop asks as long as it
// may ask, and sees when the box is silent.
package loops
