package contract

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// Link is the hash of one event of a log as it is stored: "sha256:" and 64 hex
// digits. Every event carries, as prev, the Link of the event before it, so that
// a log that was changed, cut or mixed with another does not hold together.
type Link string

// Validate reports whether l has a Link's form.
func (l Link) Validate() error {
	if BlobRef(l).Validate() != nil {
		return fieldErr("prev", "is %q; it must be sha256: and 64 hex digits", Shorten(string(l), 80))
	}
	return nil
}

// LinkOf is the Link of an event as stored: the bytes of its JSON form.
func LinkOf(encoded []byte) Link {
	sum := sha256.Sum256(encoded)
	var b [7 + 2*sha256.Size]byte
	copy(b[:], "sha256:")
	hex.Encode(b[7:], sum[:])
	return Link(b[:])
}

// FirstLink is what the first event of a computer's log carries as prev.
func FirstLink(cid CID) Link { return LinkOf([]byte("choiros log of " + string(cid))) }

// Stored returns the bytes that an event is stored as, of which its Link is the hash: an
// event that was read from a log encodes to the same bytes again.
func Stored(e Event) ([]byte, error) {
	b, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode event: %w", err)
	}
	return b, nil
}
