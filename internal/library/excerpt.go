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
// it is, and nothing else is forgiven; it begins and ends with whole words. It returns the excerpt in that form, and the line in which it begins, from 1.
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
	from, _ := find(text, words)
	if from < 0 {
		return words, 0, false
	}
	return words, 1 + strings.Count(text[:from], "\n"), true
}

// find returns where in a text words are that have one blank each between them, -1 for nowhere.
func find(text, words string) (from, to int) {
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
	s := flat.String()
	for i := 0; ; i++ {
		next := strings.Index(s[i:], words)
		if next < 0 || words == "" {
			return -1, -1
		}
		if i += next; !joined(s, i) && !joined(s, i+len(words)) {
			return int(at[i]), int(at[i+len(words)-1]) + 1
		}
	}
}

// joined reports whether a place in a text is within a word or a number. Scripts without blanks between words have none.
func joined(s string, at int) bool {
	before, size := utf8.DecodeLastRuneInString(s[:at])
	after, width := utf8.DecodeRuneInString(s[at:])
	if size == 0 || width == 0 {
		return false
	}
	part := func(r rune) bool {
		return unicode.In(r, unicode.L, unicode.M, unicode.N) &&
			!unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar, unicode.Tibetan)
	}
	point := func(r rune) bool { return r == '.' || r == ',' }
	digit := func(r rune, _ int) bool { return unicode.IsDigit(r) }
	return part(before) && part(after) ||
		point(before) && unicode.IsDigit(after) && digit(utf8.DecodeLastRuneInString(s[:at-size])) ||
		point(after) && unicode.IsDigit(before) && digit(utf8.DecodeRuneInString(s[at+width:]))
}

// Around returns what a text has around words of it that begin in a line, at most so many bytes on each side, for whoever judges what they
// say there.
func Around(text, words string, line, bytes int) string {
	begin := 0
	for range line - 1 {
		next := strings.IndexByte(text[begin:], '\n')
		if next < 0 {
			break
		}
		begin += next + 1
	}
	from, to := find(text[begin:], words)
	if from < 0 {
		from, to = 0, 0
	}
	return strings.ToValidUTF8(text[max(0, begin+from-bytes):min(len(text), begin+to+bytes)], "")
}

// Label is what documents name a citation by. It follows from what is cited and for what, so the same is the same.
func Label(source, claim, excerpt string) string {
	sum := sha256.Sum256([]byte(source + "\x00" + claim + "\x00" + excerpt))
	return "c" + hex.EncodeToString(sum[:5])
}
