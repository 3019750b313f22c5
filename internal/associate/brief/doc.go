// Package brief is what a loop is told of the computer before its first turn: what a good
// engineer would look up first. Gather looks in a box with the tree, and Text, on the host,
// makes the sections of an opening of it. What comes from the tree is material and bounded;
// Text labels it with its path.
package brief
