package harness

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"choir.dev/choiros/contract"
)

// Clip bounds s to max bytes, keeping its head and tail and saying between them
// how much was left out. The result is valid UTF-8 and the same for the same
// input.
func Clip(s string, max int) string {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	if len(s) <= max {
		return s
	}
	const room = 48 // what the note below needs at most
	if max <= room {
		return contract.Clip(s, max)
	}
	keep := max - room
	head := contract.Clip(s, keep*2/3)
	tail := cutTail(s, keep-keep*2/3)
	return fmt.Sprintf("%s\n[… %d bytes left out …]\n%s", head, len(s)-len(head)-len(tail), tail)
}

func cutTail(s string, n int) string {
	i := len(s) - n
	for i < len(s) && !utf8.RuneStart(s[i]) {
		i++
	}
	return s[i:]
}

// Section is one part of a wake context. Max bounds its body; 0 means only the
// whole is bounded.
type Section struct {
	Title string
	Body  string
	Max   int
}

// Compose joins the sections that have a body, most important first, into at
// most limit bytes. When they do not fit, later sections are clipped first;
// one that gets less than 200 bytes is left out and named at the end.
func Compose(limit int, sections ...Section) string {
	var b strings.Builder
	var dropped []string
	reserve := 160
	for _, s := range sections {
		body := strings.TrimSpace(s.Body)
		if body == "" {
			continue
		}
		if s.Max > 0 {
			body = Clip(body, s.Max)
		}
		head := "## " + s.Title + "\n\n"
		left := limit - reserve - b.Len() - len(head) - 2
		if left < len(body) {
			if left < 200 {
				dropped = append(dropped, s.Title)
				continue
			}
			body = Clip(body, left)
		}
		b.WriteString(head)
		b.WriteString(body)
		b.WriteString("\n\n")
	}
	if len(dropped) > 0 {
		b.WriteString(Clip("(left out for length: "+strings.Join(dropped, ", ")+")", reserve))
	}
	return strings.TrimSpace(Clip(b.String(), limit))
}

// Opening is Compose, and behind it what the host says of the tree and the machine, as much of
// it as fits.
func Opening(limit int, brief string, sections ...Section) string {
	text := Compose(limit, sections...)
	if left := limit - len(text) - 2; brief != "" && left >= 200 {
		text += "\n\n" + Clip(brief, left)
	}
	return text
}
