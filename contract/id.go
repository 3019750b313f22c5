package contract

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
	"sync"

	"github.com/google/uuid"
)

// CID is a computer's id: 16 characters of [a-z0-9]. Everything is keyed by
// it, never by a user.
type CID string

// NewCID draws a computer id at random (about 82 bits).
func NewCID() CID {
	const alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
	out := make([]byte, 0, 16)
	var buf [32]byte
	for len(out) < 16 {
		_, _ = rand.Read(buf[:]) // never fails since Go 1.24
		for _, b := range buf {
			if int(b) < 252 && len(out) < 16 { // 252 = 7*36, so no letter is favoured
				out = append(out, alphabet[int(b)%36])
			}
		}
	}
	return CID(out)
}

// Validate reports whether c has a computer id's form.
func (c CID) Validate() error {
	if !c.wellFormed() {
		return fieldErr("computer", "is %q; a computer id is 16 characters of a-z and 0-9", Shorten(string(c), 40))
	}
	return nil
}

// wellFormed is called several times for each event, so it uses no regular expression.
func (c CID) wellFormed() bool {
	for i := range len(c) {
		if b := c[i]; (b < 'a' || b > 'z') && (b < '0' || b > '9') {
			return false
		}
	}
	return len(c) == 16
}

// NewID returns a UUIDv7: ids made later sort later.
func NewID() string { return uuid.Must(uuid.NewV7()).String() }

// DeriveID returns the UUIDv8 that names what follows from cause under label.
// The same cause and label always give the same id, so a step that is repeated
// after a crash is recognised as the same step.
func DeriveID(cause, label string) string {
	sum := sha256.Sum256([]byte("choir\x00" + cause + "\x00" + label))
	var u uuid.UUID
	copy(u[:], sum[:16])
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return u.String()
}

// Nonce draws 16 hex digits at random, for names that nobody else may have at the same time, such as a box's. The beginning of an id
// is none: ids of version 7 begin with the time, so two that are drawn in one moment begin alike.
func Nonce() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return hex.EncodeToString(b[:])
}

// ValidID checks an event, run, task or document id: a UUID of version 7 or 8
// in its canonical lower-case spelling.
func ValidID(field, id string) error {
	u, err := uuid.Parse(id)
	if err != nil || u.String() != id || (u.Version() != 7 && u.Version() != 8) {
		return fieldErr(field, "is %q; it must be a UUID of version 7 or 8 in lower case", Shorten(id, 40))
	}
	return nil
}

var shaPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{64}$`) })

// BlobRef names content by its SHA-256: "sha256:" and 64 hex digits.
type BlobRef string

// NewBlobRef makes a reference from a raw SHA-256 sum.
func NewBlobRef(sum [sha256.Size]byte) BlobRef {
	return BlobRef("sha256:" + hex.EncodeToString(sum[:]))
}

// Hex returns the 64 hex digits, without the prefix.
func (r BlobRef) Hex() string { return strings.TrimPrefix(string(r), "sha256:") }

// Validate reports whether r has a blob reference's form.
func (r BlobRef) Validate() error {
	if !strings.HasPrefix(string(r), "sha256:") || !shaPattern().MatchString(r.Hex()) {
		return fieldErr("ref", "is %q; a blob reference is sha256: and 64 hex digits", Shorten(string(r), 80))
	}
	return nil
}
