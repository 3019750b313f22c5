package webpage

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Bounds of a page. They are the reader's, which keeps them, and the host's, which does not trust it.
const (
	MaxBody   = 8 << 20   // bytes of an answer's body that are read, decompressed
	MaxText   = 512 << 10 // bytes of the text that is made of it
	MaxTitle  = 200       // characters
	MaxAnswer = 2 << 20   // bytes of a reader's whole answer
)

// Request is what a reader is asked for: a page, or that it sends something.
type Request struct {
	URL  string   `json:"url,omitempty"`
	Send *Sending `json:"send,omitempty"`
}

// MaxRequest bounds a Request in JSON, in which each character of a body may take six.
const MaxRequest = 6*MaxSent + 64<<10

// Page is what a reader made of a page, or why it could not.
type Page struct {
	From      string `json:"from,omitempty"`  // the address that answered
	Title     string `json:"title,omitempty"` // one line
	Media     string `json:"media,omitempty"` // the media type that the server named
	Status    int    `json:"status,omitempty"`
	Bytes     int64  `json:"bytes,omitempty"`     // of the body, decompressed, as far as it was read
	Text      string `json:"text,omitempty"`      // Markdown, or the text as it came
	Truncated bool   `json:"truncated,omitempty"` // there was more
	// Redirect is where the server sends the reader, if that is at another host: nothing was read then.
	Redirect string `json:"redirect,omitempty"`
	// Failed says in a sentence why there is no page.
	Failed string `json:"failed,omitempty"`
}

// Decode reads a reader's answer, which is not trusted: what is too long, malformed or no text is refused or
// made harmless.
func Decode(raw []byte) (Page, error) {
	var p Page
	if len(raw) > MaxAnswer {
		return p, fmt.Errorf("the reader's answer has more than %d bytes", MaxAnswer)
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return Page{}, errors.New("the reader's answer can't be read")
	}
	p.Failed, p.Title, p.Media = Line(p.Failed, 400), Line(p.Title, MaxTitle), mediaType(p.Media)
	if p.Failed != "" {
		return Page{Failed: p.Failed}, nil
	}
	if p.Redirect != "" {
		a, err := Parse(p.Redirect)
		if err != nil {
			return Page{Failed: "the server names another place that can't be read"}, nil
		}
		return Page{Redirect: a.URL}, nil
	}
	from, err := Parse(p.From)
	if err != nil || p.Status < 100 || p.Status > 999 || p.Bytes < 0 || p.Media == "" || len(p.Text) > MaxText {
		return Page{}, errors.New("the reader's answer is none of a page")
	}
	p.From = from.URL
	p.Text = Plain(p.Text)
	return p, nil
}

// mediaType is a media type in its one form, of which nothing else can be said: a name that is long or odd stands for bytes.
func mediaType(s string) string {
	if s == "" {
		return ""
	}
	kind, sub, ok := strings.Cut(s, "/")
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789.+-"
	if !ok || kind == "" || sub == "" || len(s) > 80 || strings.Trim(kind, letters) != "" || strings.Trim(sub, letters) != "" {
		return "application/octet-stream"
	}
	return s
}

// Line makes one line of plain text of at most so many characters.
func Line(s string, most int) string {
	s = strings.Join(strings.Fields(Plain(s)), " ")
	if utf8.RuneCountInString(s) > most {
		s = string([]rune(s)[:most-1]) + "…"
	}
	return s
}
