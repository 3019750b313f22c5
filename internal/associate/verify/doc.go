// Package verify decides how a task's outcome is checked. Gather finds, in a box, the
// projects around the touched paths and what they consist of; Plan turns that and the
// task's profile into commands; Judge turns exit codes into a status. A model's words play
// no part in any of it.
package verify
