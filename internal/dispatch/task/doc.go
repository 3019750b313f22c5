// Package task carries out the attempts at a task on the host: it makes an attempt's tree, opens the boxes
// of its loop and its tools, forwards the loop's calls, asks a person for what goes beyond the grant, merges
// what the loop left, has it checked, publishes what was verified and takes back what was not.
//
// What is to be done with an attempt follows from its state alone (`internal/attempt`), so whoever continues
// after a crash does the same as who was there before.
package task
