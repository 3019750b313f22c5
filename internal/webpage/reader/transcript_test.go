package reader_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"choir.dev/choiros/internal/webpage"
	"choir.dev/choiros/internal/webpage/reader"
)

const vtt = `WEBVTT

STYLE
::cue { color: red }

NOTE nobody reads this

1
00:00:01.000 --> 00:00:04.000 align:start
<v Ada>We weighed <i>forty</i> cats.</v>

00:00:04.000 --> 00:00:06.000
<v Ada>We weighed forty cats.</v>
<v Ada>Thirty were light.</v>

00:01:05.500 --> 00:01:07.000
<v Bob>And ten?</v>
`

// TestATranscriptIsReadWithItsPage: what a page offers for its recordings is in its text, in paragraphs with their times; in the page's
// language, and of each recording one.
func TestATranscriptIsReadWithItsPage(t *testing.T) {
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		page := func(body string) { _, _ = io.WriteString(w, `<html lang="en"><title>Talk</title><body>`+body) }
		switch r.URL.Path {
		case "/talk":
			page(`<p>A talk.</p><video src="/v.mp4"><track kind="chapters" src="/chapters.vtt" default><track src="/de.vtt" srclang="de"><track kind="captions" src="en.vtt" srclang="en" label="English"></video>`)
		case "/two":
			page(`<video><track src="/en.vtt" srclang="en"><track src="/de.srt" srclang="de" default></video><audio><track src="/t.ttml"></audio>`)
		case "/far":
			page(`<p>Far.</p><video><track src="https://captions.example/x.vtt?v=1"></video>`)
		case "/broken":
			page(`<p>Still read.</p><video><track src="/gone.vtt"></video><video><track src="/away.vtt"></video><video><track src="/none.vtt"></video><video><track src="/fourth.vtt"></video>`)
		case "/en.vtt":
			w.Header().Set("Content-Type", "text/vtt")
			_, _ = io.WriteString(w, vtt)
		case "/de.srt":
			w.Header().Set("Content-Type", "text/plain")
			_, _ = io.WriteString(w, "1\n00:00:01,000 --> 00:00:02,000\nVierzig Katzen.\n\n2\n00:00:02,000 --> 00:00:03,000\nDreißig leichte.\n")
		case "/t.ttml":
			w.Header().Set("Content-Type", "application/ttml+xml")
			_, _ = io.WriteString(w, `<tt xmlns="http://www.w3.org/ns/ttml"><body><div><p begin="00:00:01.000" end="00:00:02.000">Purring.</p></div></body></tt>`)
		case "/away.vtt":
			http.Redirect(w, r, "/en.vtt", http.StatusFound)
		case "/none.vtt":
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<p>Sign in</p>")
		case "/fourth.vtt":
			t.Error("a fourth transcript of a page is asked for")
		default:
			http.NotFound(w, r)
		}
	})
	for path, want := range map[string][]string{
		"/talk":   {"A talk.", "## Transcript: English\n\n[0:00:01] Ada: We weighed forty cats. Thirty were light.\n\n[0:01:05] Bob: And ten?"},
		"/two":    {"## Transcript\n\n[0:00:01] Vierzig Katzen. Dreißig leichte.", "[0:00:01] Purring."},
		"/far":    {"Far.", "At another host, as a page of its own: https://captions.example/x.vtt?v=1"},
		"/broken": {"Still read.", "could not be read: its server answers 404 (https://example.com/gone.vtt)", "its server answers 302", "in no form of transcripts"},
		"/en.vtt": {"[0:00:01] Ada: We weighed forty cats."},
	} {
		p := s.read(t, path)
		for _, w := range want {
			if !strings.Contains(p.Text, w) {
				t.Errorf("%s lacks %q:\n%s\n%s", path, w, p.Text, p.Failed)
			}
		}
	}
	if text := s.read(t, "/talk").Text; strings.Contains(text, "Katzen") || strings.Contains(text, "color: red") || strings.Contains(text, "nobody reads") {
		t.Errorf("too much is in it:\n%s", text)
	}
}

// TestHostileTranscripts: one that is too large or malformed, or that never ends, takes nothing but itself away.
func TestHostileTranscripts(t *testing.T) {
	var sent atomic.Int64
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/huge", "/bad", "/long":
			fmt.Fprintf(w, `<title>T</title><p>The page.</p><video><track src="%s.vtt"></video>`, r.URL.Path)
		case "/huge.vtt":
			w.Header().Set("Content-Type", "text/vtt")
			_, _ = io.WriteString(w, "WEBVTT\n\n")
			for { // until the reader leaves
				n, err := io.WriteString(w, strings.Repeat("00:00:01.000 --> 00:00:02.000\nword\n\n", 1000))
				sent.Add(int64(n))
				if err != nil {
					return
				}
			}
		case "/bad.vtt":
			w.Header().Set("Content-Type", "text/vtt")
			_, _ = io.WriteString(w, "WEBVTT\n\n99:99 --> x\n\x00\xff")
		case "/long.vtt":
			w.Header().Set("Content-Type", "text/vtt")
			_, _ = io.WriteString(w, "WEBVTT\n\n00:00:01.000 --> 00:00:02.000\n"+strings.Repeat("meow ", 300_000))
		}
	})
	for path, want := range map[string]string{"/huge": "more than 2 MiB", "/bad": "malformed", "/long": "a line of more than 60 kB"} {
		p := s.read(t, path)
		if !strings.Contains(p.Text, "The page.") || !strings.Contains(p.Text, want) || len(p.Text) > webpage.MaxText || !utf8.ValidString(p.Text) {
			t.Errorf("%s: %d bytes, %s\n%.300s", path, len(p.Text), p.Failed, p.Text)
		}
	}
	if n := sent.Load(); n > 64<<20 {
		t.Errorf("%d bytes of a transcript without end were taken", n)
	}
}

func FuzzSpoken(f *testing.F) {
	f.Add(0, []byte(vtt))
	f.Add(1, []byte("1\n00:00:01,000 --> 00:00:02,000\na\n"))
	f.Add(2, []byte(`<tt xmlns="http://www.w3.org/ns/ttml"><body><div><p begin="1s" end="2s">a<br/>b</p></div></body></tt>`))
	f.Fuzz(func(t *testing.T, form int, body []byte) {
		text, err := reader.Spoken([]string{"WebVTT", "SubRip", "TTML"}[uint(form)%3], body)
		if (err == nil) != (text != "") {
			t.Fatalf("%q, %v", text, err)
		}
	})
}
