package library

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MinExcerpt is how many letters and digits an excerpt has at least: fewer are in any text.
const MinExcerpt = 8

// Find looks for an excerpt in a text, word for word: white space counts as one blank, however much of which kind
// it is, and nothing else is forgiven. It returns the excerpt in that form, and the line in which it begins, from 1.
func Find(text, excerpt string) (words string, line int, ok bool) {
	words = strings.Join(strings.Fields(excerpt), " ")
	letters := 0
	for _, r := range words {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			letters++
		}
	}
	if letters < MinExcerpt {
		return words, 0, false
	}
	// at[i] is where byte i of flat is in the text.
	var flat strings.Builder
	at := make([]int32, 0, len(text))
	blank := true
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if unicode.IsSpace(r) {
			if !blank {
				flat.WriteByte(' ')
				at = append(at, int32(i))
			}
			blank = true
		} else {
			flat.WriteString(text[i : i+size])
			for j := range size {
				at = append(at, int32(i+j))
			}
			blank = false
		}
		i += size
	}
	found := strings.Index(flat.String(), words)
	if found < 0 {
		return words, 0, false
	}
	return words, 1 + strings.Count(text[:at[found]], "\n"), true
}

// Around returns the lines of a text around one, at most so many bytes of them on each side, for whoever judges what an
// excerpt says there.
func Around(text string, line, bytes int) string {
	begin := 0
	for range line - 1 {
		next := strings.IndexByte(text[begin:], '\n')
		if next < 0 {
			break
		}
		begin += next + 1
	}
	from, to := max(0, begin-bytes), min(len(text), begin+bytes)
	return strings.ToValidUTF8(text[from:to], "")
}

// Label is what documents name a citation by. It follows from what is cited and for what, so the same is the same.
func Label(source, claim, excerpt string) string {
	sum := sha256.Sum256([]byte(source + "\x00" + claim + "\x00" + excerpt))
	return "c" + hex.EncodeToString(sum[:5])
}
