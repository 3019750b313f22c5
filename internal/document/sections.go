package document

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/lazy"
)

// A section's heading is followed by a mark: a link definition that no Markdown
// renderer shows, with the section's key and a digest of its text as written
// here. While text and digest agree, nobody has edited the section.
const markPrefix = "[//]: # (choir "

var markPattern = lazy.Regexp(`^\[//\]: # \(choir ([a-z]+) ([0-9a-f]{16})\)$`)

func (s section) render() string {
	return "## " + s.heading + "\n" + markPrefix + s.key + " " + digest(s.text) + ")\n\n" + s.text
}

// digest is taken of the text without the blank lines around it.
func digest(text string) string {
	sum := sha256.Sum256([]byte(strings.Trim(text, "\n")))
	return hex.EncodeToString(sum[:8])
}

// piece is a stretch of a document: a marked section, or what lies between.
type piece struct {
	key, mark string // of a marked section
	content   string // what follows the mark
	text      string // everything, as it stands
}

// split cuts a document before each heading of level 1 or 2 outside code
// blocks. The pieces' texts, joined, are the document.
func split(body string) []piece {
	var out []piece
	var cur piece
	var f fence
	lines := strings.SplitAfter(body, "\n")
	for i := 0; i < len(lines); i++ {
		l := strings.TrimRight(lines[i], "\r\n")
		f.next(l)
		if !f.open() && (strings.HasPrefix(l, "# ") || strings.HasPrefix(l, "## ")) {
			if cur.text != "" {
				out = append(out, cur)
			}
			cur = piece{text: lines[i]}
			if i+1 < len(lines) && strings.HasPrefix(l, "## ") {
				if m := markPattern().FindStringSubmatch(strings.TrimRight(lines[i+1], "\r\n")); m != nil {
					i++
					cur.key, cur.mark, cur.text = m[1], m[2], cur.text+lines[i]
				}
			}
			continue
		}
		cur.text += lines[i]
		cur.content += lines[i]
	}
	if cur.text != "" {
		out = append(out, cur)
	}
	return out
}

// Edited returns the parts of a run's document that its user wrote: the sections they
// changed, and what they wrote besides, at most max bytes.
func Edited(body string, max int) string {
	var out strings.Builder
	for i, p := range split(body) {
		content := strings.TrimSpace(p.content)
		switch {
		case p.key != "" && digest(p.content) == p.mark:
		case p.key != "":
			heading, _, _ := strings.Cut(p.text, "\n")
			out.WriteString(heading + "\n\n" + content + "\n\n")
		case content == "" && (i == 0 || strings.TrimSpace(p.text) == "## Notes"):
		case content == "":
			out.WriteString(strings.TrimSpace(p.text) + "\n\n")
		case i == 0 && strings.HasPrefix(p.text, "# "):
			out.WriteString(content + "\n\n") // the title was there before the user's text
		default:
			out.WriteString(strings.TrimSpace(p.text) + "\n\n")
		}
	}
	return strings.TrimSpace(contract.Clip(out.String(), max))
}

// fence keeps track, line by line, of whether a line is in a code block.
type fence struct{ mark string }

func (f *fence) open() bool    { return f.mark != "" }
func (f *fence) close() string { return f.mark }

func (f *fence) next(line string) {
	l := strings.TrimLeft(line, " ")
	for _, c := range []string{"`", "~"} {
		n := len(l) - len(strings.TrimLeft(l, c))
		if n < 3 {
			continue
		}
		rest := l[n:]
		switch {
		case f.mark == "" && (c == "~" || !strings.Contains(rest, "`")):
			f.mark = l[:n]
		case f.mark != "" && f.mark[:1] == c && n >= len(f.mark) && strings.TrimSpace(rest) == "":
			f.mark = ""
		}
		return
	}
}
