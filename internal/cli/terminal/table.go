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

// Table prints what text writes, with columns aligned and nothing in it that a terminal
// would obey.
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

// page is a verb's output while it is laid out. Colours are added last, by line: the
// laid-out text contains nothing that a terminal would obey.
type page struct {
	cells *tabwriter.Writer
	laid  strings.Builder
	lines int // that were written
	hues  map[int]Hue
}

// Write implements io.Writer.
func (p *page) Write(b []byte) (int, error) {
	p.lines += bytes.Count(b, []byte{'\n'})
	// The mark of a verbatim line is invalid UTF-8, so that only verbatim can write it.
	_, err := p.cells.Write(bytes.ToValidUTF8(b, []byte("\ufffd")))
	return len(b), err
}

// verbatim writes a line that is not laid out, tabs included.
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

// coloured adds the colours to what was laid out.
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

// maxCell is how many characters of a cell are shown.
const maxCell = 2000

// Coloured is Row in a colour, if the terminal has colours.
func Coloured(w io.Writer, h Hue, cells ...any) {
	if p, ok := w.(*page); ok {
		p.hues[p.lines] = h
	}
	Row(w, cells...)
}

// Row writes one line of cells. No content of a cell can end the cell or the line.
func Row(w io.Writer, cells ...any) {
	for i, c := range cells {
		if i > 0 {
			fmt.Fprint(w, "\t")
		}
		fmt.Fprint(w, OneLine(fmt.Sprint(c), maxCell))
	}
	fmt.Fprintln(w)
}
