package verbs

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"choir.dev/choiros/internal/cli"
	"choir.dev/choiros/internal/cli/terminal"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/view"
)

// traceOfRun is choir run trace.
func traceOfRun() cli.Verb {
	return cli.Verb{
		Use: "trace RUN", Short: "Show what took time in a run", Args: cli.Exactly(1), JSON: view.Trace{},
		Long: `A line for each span, below what it is a part of: how long after the run's beginning it
began, how long it took, and what it was, with the tokens of calls of models. It has no
contents; choir events has them.`,
		Examples: []string{"choir run trace RUN"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			trace, err := c.Trace(ctx, args[0])
			if err != nil {
				return err
			}
			return t.Show(trace, func(w io.Writer) { printTrace(w, trace) })
		},
	}
}

// printTrace shows the spans as a tree, children in the order in which they began.
func printTrace(w io.Writer, t view.Trace) {
	below := map[string][]view.Span{}
	known := map[string]bool{}
	for _, s := range t.Spans {
		parent := s.Parent
		if !known[parent] {
			parent = "" // the run itself, which another program's span may have asked for
		}
		known[s.ID] = true
		below[parent] = append(below[parent], s)
	}
	for _, list := range below {
		slices.SortStableFunc(list, func(a, b view.Span) int { return a.Start.Compare(b.Start) })
	}
	var show func(parent string, depth int, began time.Time)
	show = func(parent string, depth int, began time.Time) {
		for _, s := range below[parent] {
			at := began
			if at.IsZero() {
				at = s.Start
			}
			terminal.Row(w, "+"+short(s.Start.Sub(at)), took(s), strings.Repeat("  ", depth)+terminal.OneLine(s.Name, 100)+about(s))
			show(s.ID, depth+1, at)
		}
	}
	show("", 0, time.Time{})
	if t.Dropped > 0 {
		terminal.Row(w, "", "", fmt.Sprintf("and %d more", t.Dropped))
	}
}

func took(s view.Span) string {
	if s.End.IsZero() {
		return "…"
	}
	return short(s.End.Sub(s.Start))
}

// short is a duration for people.
func short(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second / 10).String()
}

// about is what is said of a span behind its name.
func about(s view.Span) string {
	var out []string
	if in, ok := s.Attributes["gen_ai.usage.input_tokens"].(float64); ok {
		tokens, _ := s.Attributes["gen_ai.usage.output_tokens"].(float64)
		out = append(out, fmt.Sprintf("%.0f + %.0f tokens", in, tokens))
	}
	for _, key := range []string{"choir.verification.status", "choir.wait.code", "choir.approval.answer"} {
		if v, ok := s.Attributes[key].(string); ok && v != "_OTHER" {
			out = append(out, terminal.OneLine(v, 40))
		}
	}
	if s.Error != "" {
		out = append(out, terminal.OneLine(s.Error, 100))
	}
	if len(out) == 0 {
		return ""
	}
	return "  (" + strings.Join(out, ", ") + ")"
}
