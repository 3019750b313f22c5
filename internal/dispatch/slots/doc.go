// Package slots bounds how many holders may work at the same time; a holder gives its slot
// back while it waits for a person.
package slots
