package library

import (
	"crypto/sha256"
	"encoding/hex"

	"choir.dev/choiros/contract"
)

// SourceID is the same for the same text of the same place.
func SourceID(s contract.SourceAdded) string {
	sum := sha256.Sum256([]byte(s.Address + "\x00" + string(s.Text)))
	return contract.DeriveID("00000000-0000-8000-8000-000000000000", "source:"+hex.EncodeToString(sum[:]))
}
