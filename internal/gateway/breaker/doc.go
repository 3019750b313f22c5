// Package breaker keeps calls away from a service that fails, for all who use it together: after
// some failures in a row, or when the service says until when it is not to be asked, one call at a
// time finds out whether it is back, and the others wait for what that one finds.
package breaker
