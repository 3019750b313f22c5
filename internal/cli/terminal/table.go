package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
)

// Table prints what text writes, columns aligned and nothing in it that a
// terminal obeys, whichever verb wrote it.
func Table(to io.Writer, text func(w io.Writer)) error {
	p := &page{hues: map[int]Hue{}}
	p.cells = tabwriter.NewWriter(&p.laid, 0, 4, 2, ' ', tabwriter.StripEscape)
	text(p)
	if err := p.cells.Flush(); err != nil {
		return err
	}
	shown := Plain(p.laid.String())
	if f, ok := to.(*os.File); ok && colours(f) {
		shown = p.coloured(shown)
	}
	_, err := io.WriteString(to, shown)
	return err
}

// page is what a verb shows while it is laid out. Colours come last and by the line:
// what is laid out holds nothing that a terminal obeys.
type page struct {
	cells *tabwriter.Writer
	laid  strings.Builder
	lines int // that were written
	hues  map[int]Hue
}

// Write implements io.Writer.
func (p *page) Write(b []byte) (int, error) {
	p.lines += bytes.Count(b, []byte{'\n'})
	// The mark of what is not laid out is no valid text, and only verbatim's.
	_, err := p.cells.Write(bytes.ToValidUTF8(b, []byte("\ufffd")))
	return len(b), err
}

// verbatim writes a line with its end as it is, tabs too.
func (p *page) verbatim(line string, h Hue) error {
	p.hues[p.lines] = h
	text, ended := strings.CutSuffix(strings.ToValidUTF8(line, "\ufffd"), "\n")
	end := ""
	if ended {
		end = "\n"
		p.lines++
	}
	_, err := p.cells.Write(append(append(append([]byte{tabwriter.Escape}, text...), tabwriter.Escape), end...))
	return err
}

// coloured is what was laid out in its colours.
func (p *page) coloured(shown string) string {
	var b strings.Builder
	n := 0
	for line := range strings.SplitAfterSeq(shown, "\n") {
		text, end := strings.CutSuffix(line, "\n")
		if h := p.hues[n]; h != "" && text != "" {
			text = "\x1b[" + string(h) + "m" + text + "\x1b[0m"
		} else {
			text = marked.Replace(text)
		}
		b.WriteString(text)
		if end {
			b.WriteByte('\n')
		}
		n++
	}
	return b.String()
}

func PrintJSON(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := os.Stdout.Write(SafeJSON(b.Bytes()))
	return err
}

func Short(id string) string {
	if len(id) > 10 && !strings.Contains(id, "-") {
		return id[:10]
	}
	return id
}

func Time(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

// maxCell is how many characters one cell shows.
const maxCell = 2000

// Coloured is Row in a colour, where the terminal has them.
func Coloured(w io.Writer, h Hue, cells ...any) {
	if p, ok := w.(*page); ok {
		p.hues[p.lines] = h
	}
	Row(w, cells...)
}

// Row writes one line of cells. What a cell holds ends neither it nor the line.
func Row(w io.Writer, cells ...any) {
	for i, c := range cells {
		if i > 0 {
			fmt.Fprint(w, "\t")
		}
		fmt.Fprint(w, OneLine(fmt.Sprint(c), maxCell))
	}
	fmt.Fprintln(w)
}
