package dispatch

import (
	"crypto/rand"
	"fmt"
)

func boxID(kind string) string {
	var b [10]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return fmt.Sprintf("%s-%x", kind, b)
}
