// Package blob stores content by its hash: data that are too large for an event, output of
// tools, uploads. Each computer has its own namespace and quota, so that deleting a
// computer deletes its content. The backends that store it are in packages below this one.
package blob
