package bench

import (
	"fmt"
	"strconv"
	"strings"
	"time"
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
	limit := strconv.FormatFloat(t.Limit.Value, 'f', -1, 64) + " " + t.Limit.Unit
	switch t.Of {
	case ofAdded:
		return sign + " " + limit + " on top"
	default:
		return sign + " " + limit
	}
}

// cells are a result's columns: what, ours, raw, got, target, met.
func (r Result) cells() [6]string {
	out := [6]string{r.What, "", "", "", r.Target.String(), ""}
	if r.Ours == nil {
		out[1] = "not measured"
		return out
	}
	out[1] = r.Ours.String()
	if r.Raw != nil {
		out[2] = r.Raw.String()
		switch {
		case r.Target != nil && r.Target.Of == ofAdded:
			out[3] = "+ " + r.added().String()
		case r.Ratio > 0:
			out[3] = Quantity{r.Ratio, "×"}.String()
		}
	}
	if r.Met != nil {
		out[5] = map[bool]string{true: "yes", false: "**no**"}[*r.Met]
	}
	return out
}

// line is a result in one line of text.
func (r Result) line() string {
	if r.Ours == nil {
		return r.What + ": not measured: " + r.NotMeasured
	}
	c := r.cells()
	out := c[0] + ": " + c[1]
	if c[2] != "" {
		out += " (raw " + c[2] + ", " + c[3] + ")"
	}
	if r.Met != nil {
		out += map[bool]string{true: ", within ", false: ", MISSES "}[*r.Met] + c[4]
	}
	return out
}

var heads = [6]string{"what", "ours", "raw", "ours to raw", "target", "met"}

// Markdown is the report as a page. Cells line up in plain text too.
func (r Report) Markdown() string {
	var b strings.Builder
	b.WriteString("# Benchmarks\n\n")
	fmt.Fprintf(&b, "%s, version %s, took %s.\n\n", r.Started.Format("2006-01-02 15:04 UTC"), r.Version, r.Took.Round(time.Second))
	m := r.Machine
	fmt.Fprintf(&b, "Machine: %d CPUs (%s), %d MB, %s; scratch on %s; %s, git %s; load average %s before, %s after.\n\n",
		m.CPUs, m.CPU, m.MemoryMB, m.Kernel, m.FileSystem, m.Go, m.Git, m.LoadBefore, m.LoadAfter)
	b.WriteString("Ratios and differences are what count: both sides took turns in this run, on the same disk, with the same\n" +
		"durability and the same neighbors. Absolute times are for orientation, and suffer from a machine that is busy\n" +
		"with something else (see the load). Times are medians.\n\n")
	rows := [][6]string{heads}
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
			parts = append(parts, res.Note)
		}
		if res.NotMeasured != "" {
			why := "Not measured: "
			if res.Failed {
				why = "Failed: "
			}
			parts = append(parts, why+oneLine(res.NotMeasured))
		}
		if len(parts) > 0 {
			fmt.Fprintf(&b, "- **%s**: %s\n", res.What, strings.Join(parts, " "))
		}
	}
	b.WriteString("\nWhat is not in the table is not measured by this program: see docs/bench.md.\n")
	return b.String()
}

func writeTable(b *strings.Builder, rows [][6]string) {
	var width [6]int
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

func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > 400 {
		s = string(r[:400]) + "…"
	}
	return s
}
