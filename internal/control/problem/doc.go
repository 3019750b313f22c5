// Package problem is how HTTP says that something was refused or failed: RFC 9457
// problems, with the code, the hint and the field that every error of ours has.
package problem
