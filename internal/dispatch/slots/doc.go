// Package slots bounds how many go on at the same time, where one gives its place
// back while it waits for a person.
package slots
