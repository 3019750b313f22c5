// Package effect decides about calls that change something outside of the computer, where no checkpoint reaches: which
// two are the same, whether one may be made, and under which idempotency key. It keeps nothing and asks nobody.
package effect
