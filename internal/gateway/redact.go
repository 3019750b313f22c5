package gateway

import (
	"strings"
	"unicode"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/redact"
)

// maxMessage is the most bytes of an error's text from outside that are shown.
const maxMessage = 600

const redacted = redact.Mark

// redactor removes a key from text, in every spelling in which a service could repeat it.
type redactor struct {
	spellings []string
	longest   int
}

func newRedactor(key string) redactor {
	if defence.Off(defence.GatewayKeys) {
		return redactor{}
	}
	r := redactor{spellings: redact.Spellings(key)}
	for _, s := range r.spellings {
		r.longest = max(r.longest, len(s))
	}
	return r
}

// secrets removes every spelling of the key.
func (r redactor) secrets(s string) string {
	for _, k := range r.spellings {
		s = strings.ReplaceAll(s, k, redacted)
	}
	return s
}

// stream removes the key from text that arrives in pieces: it returns what can be shown now, and
// holds back an end that could be the beginning of a spelling.
func (r redactor) stream(s string) (show, hold string) {
	s = r.secrets(s)
	keep := 0
	for n := min(r.longest-1, len(s)); n > 0 && keep == 0; n-- {
		tail := s[len(s)-n:]
		for _, k := range r.spellings {
			if len(k) > n && strings.HasPrefix(k, tail) {
				keep = n
				break
			}
		}
	}
	// A character must not be cut in two either.
	for i := 1; i <= min(3, len(s)-keep); i++ {
		b := s[len(s)-keep-i]
		if b >= 0xC0 {
			need := 2
			if b >= 0xF0 {
				need = 4
			} else if b >= 0xE0 {
				need = 3
			}
			if i < need {
				keep += i
			}
			break
		}
		if b < 0x80 {
			break
		}
	}
	return s[:len(s)-keep], s[len(s)-keep:]
}

// text makes a message from outside fit to be shown: without the key and without anything that
// looks like one, on one line, of bounded length.
func (r redactor) text(s string) string {
	s = redact.Shaped(r.secrets(clean(s)))
	s = strings.Join(strings.FieldsFunc(s, func(c rune) bool { return unicode.IsControl(c) || unicode.IsSpace(c) }), " ")
	if len(s) > maxMessage {
		s = strings.ToValidUTF8(s[:maxMessage], "") + "…"
	}
	return s
}
