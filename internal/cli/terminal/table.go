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
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 4, 2, ' ', 0)
	text(w)
	if err := w.Flush(); err != nil {
		return err
	}
	shown := Plain(b.String())
	if f, ok := to.(*os.File); ok && colours(f) {
		shown = marked.Replace(shown)
	}
	_, err := io.WriteString(to, shown)
	return err
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
