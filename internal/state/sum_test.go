package state_test

import "crypto/sha256"

func sum(s string) [sha256.Size]byte { return sha256.Sum256([]byte(s)) }
