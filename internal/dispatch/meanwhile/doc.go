// Package meanwhile notices which of the files that a task's loop has read or written others have changed in the live tree since the
// task's own tree was made. The log says what changed, and which files the loop named: nothing of it is asked of a box, and nothing is
// looked for in the tree.
package meanwhile
