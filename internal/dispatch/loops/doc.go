// Package loops is the host's side of the protocol with a loop in its box: it starts a loop
// with a message and reads its lines until the end, answers the loop's requests as long as
// they are admitted, and notices when the box is silent.
package loops
