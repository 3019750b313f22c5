package inward

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"

	"choir.dev/choiros/contract"
)

// sealed is what a program keeps of a thought and gives back unread: in the place of a signature or of an
// encrypted text. It says whose the thought is, because only that service understands it, and where in its
// turn it was.
type sealed struct {
	Provider string `json:"p"`
	ID       string `json:"i,omitempty"`
	Opaque   string `json:"o,omitempty"`
	Text     string `json:"t,omitempty"` // only of a hidden thought
	Hidden   bool   `json:"h,omitempty"`
	At       int    `json:"n,omitempty"`
}

// sealMark distinguishes these from signatures of a vendor, of which nothing is known here.
const sealMark = "choir1."

func seal(at int, r contract.Reasoning) string {
	s := sealed{Provider: r.Provider, ID: r.ID, Opaque: r.Opaque, Hidden: r.Hidden, At: at}
	if r.Hidden {
		s.Text = r.Text
	}
	b, err := json.Marshal(s)
	if err != nil { // strings and numbers can always be encoded
		return ""
	}
	return sealMark + base64.RawURLEncoding.EncodeToString(b)
}

// unseal returns a thought that a program gives back, with the text that it was shown. One that was made
// elsewhere is left out: the service that answers would refuse it.
func unseal(s, text string) (at int, r contract.Reasoning, ok bool) {
	rest, found := strings.CutPrefix(s, sealMark)
	if !found {
		return 0, r, false
	}
	b, err := base64.RawURLEncoding.DecodeString(rest)
	var in sealed
	if err != nil || json.Unmarshal(b, &in) != nil || in.Provider == "" {
		return 0, r, false
	}
	r = contract.Reasoning{Provider: in.Provider, ID: in.ID, Opaque: in.Opaque, Hidden: in.Hidden, Text: text}
	if in.Hidden {
		r.Text = in.Text
	}
	return in.At, r, true
}

func sum(b []byte) [sha256.Size]byte { return sha256.Sum256(b) }

// newID returns an id as the vendors' clients expect it, with their prefix.
func newID(prefix string) string { return prefix + strings.ReplaceAll(contract.NewID(), "-", "") }
