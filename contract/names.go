package contract

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxSubject bounds an event's subject, in bytes.
const maxSubject = 1024

// FileSubject is the subject of events about a file, whatever bytes its name has. A name
// that is one line of text is in the subject unchanged. In any other name the bytes that
// are not text are written in hex, and the end of one that is too long is replaced by its
// SHA-256; such a subject is marked by two slashes, with which no path begins. No two paths
// share a subject.
func FileSubject(p string) string {
	const mark = "file/"
	if s := mark + p; len(s) <= maxSubject && utf8.ValidString(p) && strings.TrimSpace(s) == s && !strings.ContainsFunc(s, unicode.IsControl) {
		return s
	}
	var b strings.Builder
	b.WriteString(mark + "/")
	for i := 0; i < len(p); {
		r, n := utf8.DecodeRuneInString(p[i:])
		if r == utf8.RuneError && n == 1 || unicode.IsControl(r) || unicode.IsSpace(r) || r == '%' || r == '#' {
			for _, c := range []byte(p[i : i+n]) {
				b.WriteString("%" + hex.EncodeToString([]byte{c}))
			}
		} else {
			b.WriteString(p[i : i+n])
		}
		i += n
	}
	s := b.String()
	if len(s) > maxSubject {
		sum := sha256.Sum256([]byte(p))
		s = strings.ToValidUTF8(s[:maxSubject-1-2*len(sum)], "") + "#" + hex.EncodeToString(sum[:])
	}
	return s
}

// FilePath is a file's name as events store it: as text, and in base64 when it is not text.
func FilePath(p string) (shown, raw string) {
	if utf8.ValidString(p) {
		return p, ""
	}
	return strings.ToValidUTF8(p, "\uFFFD"), base64.StdEncoding.EncodeToString([]byte(p))
}
