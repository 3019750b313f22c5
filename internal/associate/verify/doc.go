// Package verify decides how a task's outcome is checked. Gather reads, in a
// box, what the projects around the touched paths are made of; Plan turns that
// and the task's profile into commands; Judge turns exit codes into a status.
// No word of a model takes part in any of it.
package verify
