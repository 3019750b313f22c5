// Package grant says who may do what. A computer has members, each with a role
// in it; what belongs to the machine is held apart, as powers of an account. Both are
// sets of capabilities (package contract), of which Holder.Inside and Outside make what an actor
// may; a method says in its declaration (package rpc) which it takes. It knows no storage: package
// identity keeps what was granted.
package grant
