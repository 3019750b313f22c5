package report

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"choir.dev/choiros/internal/fault"
)

// String writes a number with about three digits.
func (q Quantity) String() string {
	digits := 2
	switch {
	case q.Value >= 100:
		digits = 0
	case q.Value >= 10:
		digits = 1
	case q.Value < 0.1 && q.Value > 0:
		digits = 3
	}
	s := strconv.FormatFloat(q.Value, 'f', digits, 64)
	if q.Unit == "" {
		return s
	}
	return s + " " + q.Unit
}

func (t *Target) String() string {
	if t == nil {
		return ""
	}
	sign := "≤"
	if t.AtLeast {
		sign = "≥"
	}
	limit := strings.TrimSpace(strconv.FormatFloat(t.Limit.Value, 'f', -1, 64) + " " + t.Limit.Unit)
	switch t.Of {
	case OfAdded:
		return sign + " " + limit + " on top"
	default:
		return sign + " " + limit
	}
}

// columns of the table, in their order.
const (
	colWhat = iota
	colOurs
	colP99
	colFsyncs
	colRaw
	colGot
	colTarget
	colMet
	columns
)

var heads = [columns]string{"what", "ours", "p99", "fsyncs", "raw", "ours to raw", "target", "met"}

// cells are a result's columns.
func (r Result) cells() [columns]string {
	out := [columns]string{colWhat: r.What, colTarget: r.Target.String()}
	if r.Ours == nil {
		out[colOurs] = "not measured"
		return out
	}
	out[colOurs] = r.Ours.String()
	if r.P99 != nil {
		out[colP99] = r.P99.String()
	}
	if r.Fsyncs != nil {
		out[colFsyncs] = strconv.FormatFloat(*r.Fsyncs, 'f', 1, 64)
	}
	if r.Raw != nil {
		out[colRaw] = r.Raw.String()
	}
	switch {
	case r.Raw != nil && r.Target != nil && r.Target.Of == OfAdded:
		out[colGot] = "+ " + r.added().String()
	case r.Ratio > 0:
		out[colGot] = Quantity{r.Ratio, "×"}.String()
	}
	if r.Met != nil {
		out[colMet] = map[bool]string{true: "yes", false: "**no**"}[*r.Met]
	}
	return out
}

// Line is a result in one line of text.
func (r Result) Line() string {
	if r.Ours == nil {
		return r.What + ": not measured: " + r.NotMeasured
	}
	c := r.cells()
	out := c[colWhat] + ": " + c[colOurs]
	if c[colRaw] != "" {
		out += " (raw " + c[colRaw] + ", " + c[colGot] + ")"
	}
	if c[colP99] != "" {
		out += ", p99 " + c[colP99]
	}
	if c[colFsyncs] != "" {
		out += ", " + c[colFsyncs] + " fsyncs"
	}
	if r.Met != nil {
		out += map[bool]string{true: ", within ", false: ", MISSES "}[*r.Met] + c[colTarget]
	}
	return out
}

// Markdown is the report in a page. Cells line up in plain text too.
func (r Report) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, version %s, took %s.\n\n", r.Started.Format("2006-01-02 15:04 UTC"), r.Version, r.Took.Round(time.Second))
	m := r.Machine
	fmt.Fprintf(&b, "Machine: %d CPUs (%s), %d MB, %s; scratch on %s; %s, git %s; load average %s before, %s after.\n",
		m.CPUs, m.CPU, m.MemoryMB, m.Kernel, m.FileSystem, m.Go, m.Git, m.LoadBefore, m.LoadAfter)
	if m.busy() {
		b.WriteString("**The machine was busy with something else**: its load was above the number of its processors when this run began.\n" +
			"Absolute times, and what of them is held to a target, say more about its neighbors than about ChoirOS.\n")
	}
	b.WriteString("\n")
	rows := [][columns]string{heads}
	for _, res := range r.Results {
		rows = append(rows, res.cells())
	}
	writeTable(&b, rows)
	b.WriteString("\n")
	for _, res := range r.Results {
		var parts []string
		if res.RawWhat != "" {
			parts = append(parts, "Raw: "+res.RawWhat+".")
		}
		if res.Note != "" {
			parts = append(parts, strings.TrimSpace(res.Note))
		}
		if res.NotMeasured != "" {
			why := "Not measured: "
			if res.Failed {
				why = "Failed: "
			}
			parts = append(parts, why+OneLine(res.NotMeasured))
		}
		if len(parts) > 0 {
			fmt.Fprintf(&b, "- **%s**: %s\n", res.What, strings.Join(parts, " "))
		}
	}
	return b.String()
}

// The marks in a page between which the report is put.
const (
	pageBegin = "<!-- choir bench writes what follows -->\n"
	pageEnd   = "<!-- until here -->\n"
)

// WritePage puts the report and its curves between the marks of the page at
// path, and the curves' files beside it. fault.Invalid: it has no marks.
func (r Report) WritePage(path string) error {
	const op = "bench.WritePage"
	b, err := os.ReadFile(path)
	if err != nil {
		return fault.Wrap(op, err)
	}
	head, rest, found := strings.Cut(string(b), pageBegin)
	_, tail, ended := strings.Cut(rest, pageEnd)
	if !found || !ended {
		return fault.New(op, fault.Invalid, "Name a page that has them, such as docs/bench.md.", fmt.Errorf("%s has no marks for the table: %q and %q", path, pageBegin, pageEnd))
	}
	page := head + pageBegin + "\n" + r.Markdown()
	for _, c := range r.Curves {
		file := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)) + "-" + c.ID + ".svg"
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), file), []byte(c.SVG()), 0o644); err != nil {
			return fault.Wrap(op, err)
		}
		page += fmt.Sprintf("\n![%s](%s)\n", c.Title, file)
	}
	return fault.Wrap(op, os.WriteFile(path, []byte(page+"\n"+pageEnd+tail), 0o644))
}

func writeTable(b *strings.Builder, rows [][columns]string) {
	var width [columns]int
	for _, row := range rows {
		for i, c := range row {
			width[i] = max(width[i], len([]rune(c)))
		}
	}
	for n, row := range rows {
		for i, c := range row {
			fmt.Fprintf(b, "| %s%s ", c, strings.Repeat(" ", width[i]-len([]rune(c))))
		}
		b.WriteString("|\n")
		if n == 0 {
			for i := range row {
				b.WriteString("|" + strings.Repeat("-", width[i]+2))
			}
			b.WriteString("|\n")
		}
	}
}

// OneLine is a text on one line, of bounded length.
func OneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > 400 {
		s = string(r[:400]) + "…"
	}
	return s
}
