package reader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/asticode/go-astisub"
	"golang.org/x/net/html"

	"choir.dev/choiros/internal/webpage"
)

const (
	maxTracks     = 3       // of a page, one for each recording
	maxTrack      = 2 << 20 // bytes of one
	maxLine       = 60 << 10
	paragraphTime = time.Minute
)

// track is a transcript that a page offers for a recording.
type track struct {
	at    webpage.Address
	label string
}

// tracks returns the transcripts that a page offers, one for each recording: the one that the page itself would show, else
// one in the page's language, else the first. Chapters and metadata are none.
func tracks(doc *html.Node, at webpage.Address) []track {
	var out []track
	language := ""
	if n := find(doc, "html"); n != nil {
		language = attribute(n, "lang")
	}
	for n := range doc.Descendants() {
		if n.Type != html.ElementNode || n.Data != "video" && n.Data != "audio" || len(out) == maxTracks {
			continue
		}
		best, rank := track{}, 0
		for c := range n.Descendants() {
			if c.Type != html.ElementNode || c.Data != "track" {
				continue
			}
			kind := strings.ToLower(attribute(c, "kind"))
			to, err := at.Refer(attribute(c, "src"))
			if err != nil || attribute(c, "src") == "" || kind != "" && kind != "subtitles" && kind != "captions" && kind != "descriptions" {
				continue
			}
			r := 1
			if kind != "descriptions" {
				r++
			}
			if l := attribute(c, "srclang"); l != "" && strings.EqualFold(l, language) {
				r += 2
			}
			if has(c, "default") {
				r += 4
			}
			if r > rank {
				best, rank = track{to, webpage.Line(attribute(c, "label"), 80)}, r
			}
		}
		if rank > 0 {
			out = append(out, best)
		}
	}
	return out
}

func has(n *html.Node, name string) bool {
	for _, a := range n.Attr {
		if a.Key == name {
			return true
		}
	}
	return false
}

// transcribe adds the transcripts that a page offers to its text. Those at another host than the page's are named only, for
// each host is asked for in a box of its own; and so are those that can't be read, with why.
func transcribe(ctx context.Context, client *http.Client, p *webpage.Page, at webpage.Address, offered []track) {
	for _, t := range offered {
		heading := "Transcript"
		if t.label != "" {
			heading += ": " + t.label
		}
		text := "At another host, as a page of its own: " + t.at.URL
		if t.at.Target() == at.Target() {
			var err error
			if text, err = fetchTrack(ctx, client, t.at); err != nil {
				text = fmt.Sprintf("It could not be read: %v (%s)", err, t.at.URL)
			}
		}
		p.Text = strings.TrimSpace(p.Text) + "\n\n## " + heading + "\n\n" + text
	}
}

// fetchTrack reads a transcript. Redirects are not followed: none is needed within a host, and none is to lead elsewhere.
func fetchTrack(ctx context.Context, client *http.Client, at webpage.Address) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.URL, nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("User-Agent", agent)
	req.Header.Set("Accept", "text/vtt, application/ttml+xml;q=0.9, application/x-subrip;q=0.9, */*;q=0.1")
	res, err := client.Do(req)
	if err != nil {
		return "", errors.New(reason(err))
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return "", fmt.Errorf("its server answers %d", res.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxTrack+1))
	if err != nil {
		return "", errors.New("it did not arrive: " + reason(err))
	}
	if len(body) > maxTrack {
		return "", fmt.Errorf("it has more than %d MiB", maxTrack>>20)
	}
	form := subtitles(res.Header.Get("Content-Type"), body, at)
	if form == "" {
		return "", errors.New("it is in no form of transcripts that is read (WebVTT, SubRip, TTML)")
	}
	return spoken(form, body)
}

// subtitles returns in which form of transcripts a body is, "" if in none: by the type that its server names, its beginning, or
// its address where the server says no more than that it is text.
func subtitles(named string, body []byte, at webpage.Address) string {
	t := media(named, body)
	name, _, _ := strings.Cut(at.URL, "?")
	end := strings.ToLower(path.Ext(name))
	vague := t == "text/plain" || t == "application/octet-stream" || strings.HasSuffix(t, "xml")
	switch {
	case t == "text/vtt", bytes.HasPrefix(bytes.TrimPrefix(body, []byte("\ufeff")), []byte("WEBVTT")):
		return "WebVTT"
	case t == "application/x-subrip", t == "application/srt", t == "text/srt", vague && end == ".srt":
		return "SubRip"
	case t == "application/ttml+xml", vague && (end == ".ttml" || end == ".dfxp"):
		return "TTML"
	}
	return ""
}

// spoken returns what is said in a transcript, in paragraphs of about a minute that begin with their time. Captions that repeat
// the line before, as ones that roll do, say it once.
func spoken(form string, body []byte) (text string, err error) {
	defer func() {
		if recover() != nil { // the library is for files of people who want them read
			text, err = "", errors.New("it is malformed")
		}
	}()
	for line := range bytes.Lines(body) {
		if form != "TTML" && len(line) > maxLine { // the library would end there, and say nothing of it
			return "", fmt.Errorf("it has a line of more than %d kB", maxLine>>10)
		}
	}
	var subs *astisub.Subtitles
	switch r := bytes.NewReader(body); form {
	case "WebVTT":
		subs, err = astisub.ReadFromWebVTT(r)
	case "SubRip":
		subs, err = astisub.ReadFromSRT(r)
	default:
		subs, err = astisub.ReadFromTTML(r)
	}
	if err != nil {
		return "", errors.New("it is malformed")
	}
	var b strings.Builder
	var began time.Duration
	last := ""
	for i, item := range subs.Items {
		for _, line := range item.Lines {
			var said []string
			for _, l := range line.Items {
				said = append(said, strings.Fields(l.Text)...)
			}
			words := strings.Join(said, " ")
			if words == "" || words == last {
				continue
			}
			last = words
			switch {
			case b.Len() == 0 || item.StartAt-began >= paragraphTime || item.StartAt < began:
				if b.Len() > 0 {
					b.WriteString("\n\n")
				}
				began = item.StartAt
				s := int(max(0, began) / time.Second)
				fmt.Fprintf(&b, "[%d:%02d:%02d] ", s/3600, s/60%60, s%60)
			default:
				b.WriteByte(' ')
			}
			if line.VoiceName != "" && (i == 0 || !voiced(subs.Items[i-1], line.VoiceName)) {
				b.WriteString(webpage.Line(line.VoiceName, 80) + ": ")
			}
			b.WriteString(words)
			if b.Len() > webpage.MaxText {
				return b.String(), nil
			}
		}
	}
	if b.Len() == 0 {
		return "", errors.New("it says nothing")
	}
	return b.String(), nil
}

// voiced reports whether a caption's last line is somebody's.
func voiced(item *astisub.Item, name string) bool {
	n := len(item.Lines)
	return n > 0 && item.Lines[n-1].VoiceName == name
}
