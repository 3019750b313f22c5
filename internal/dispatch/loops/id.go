package loops

import (
	"crypto/rand"
	"fmt"
)

// BoxID returns a new id of a box; kind is its first letter.
func BoxID(kind string) string {
	var b [10]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return fmt.Sprintf("%s-%x", kind, b)
}
