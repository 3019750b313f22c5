// Package grant says who may do what. A computer has members, each with a role
// in it; what belongs to the machine is held apart, as powers of an account. A
// method says in its declaration (package rpc) what it takes, as a Rule, and
// Rule.Decide is the one function that decides. It knows no storage: package
// identity keeps what was granted.
package grant
