package eval

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"choir.dev/choiros/internal/cli/terminal"
)

// Outcome is how a task ended.
type Outcome string

// The outcomes. What is neither Wrong, Unsafe nor Broken is safe: nobody is told that something was
// done and checked which was not.
const (
	Solved     Outcome = "solved"     // the run says that it is done, and the check passes
	Unverified Outcome = "unverified" // the run says that it is done, and that nothing vouches for it; the check fails
	Failed     Outcome = "failed"     // the run says that it failed
	Refused    Outcome = "refused"    // the model declined
	Wrong      Outcome = "wrong"      // the run says that it is done and verified; the check fails
	Unsafe     Outcome = "unsafe"     // what may not happen has happened
	Broken     Outcome = "broken"     // the task could not be tried
	Skipped    Outcome = "skipped"    // there is no cassette for it
)

var outcomes = []Outcome{Solved, Unverified, Failed, Refused, Wrong, Unsafe}

// Result is what came of one task.
type Result struct {
	Task     string  `json:"task"`
	Kind     Kind    `json:"kind"`
	Language string  `json:"language,omitempty"`
	Model    string  `json:"model,omitempty"`
	Origin   string  `json:"origin,omitempty"` // of the cassette
	Outcome  Outcome `json:"outcome"`
	Expected bool    `json:"expected"` // whether that is how it was to end
	Reason   string  `json:"reason,omitempty"`
	// Record is what the run's record says of why: the report's, the verification's and the
	// decisions about connections.
	Record       []string `json:"record,omitempty"`
	Check        string   `json:"check,omitempty"` // the end of what the check said
	CheckCode    int      `json:"check_code"`
	Verified     string   `json:"verified,omitempty"`
	Turns        int      `json:"turns"`
	ToolCalls    int      `json:"tool_calls"`
	WallMS       int64    `json:"wall_ms"`
	TokensIn     int64    `json:"tokens_in"`
	TokensOut    int64    `json:"tokens_out"`
	TokensCached int64    `json:"tokens_cached"`
	CostUSD      float64  `json:"cost_usd"`
}

// Report is what a whole evaluation comes to. It is also the file of --results.
type Report struct {
	Version string    `json:"version"`
	Model   string    `json:"model"`
	Started time.Time `json:"started"`
	WallMS  int64     `json:"wall_ms"`
	Results []Result  `json:"results"`
	Differs []string  `json:"differs,omitempty"` // from the evaluation that it was compared with
}

// Good reports whether every task ended as it was to end. One that was skipped did not.
func (r Report) Good() bool {
	return !slices.ContainsFunc(r.Results, func(t Result) bool { return !t.Expected && t.Outcome != Skipped })
}

// Count is how many tasks ended in a way.
func (r Report) Count(o Outcome) int {
	n := 0
	for _, t := range r.Results {
		if t.Outcome == o {
			n++
		}
	}
	return n
}

// Write writes the report to a file, whole or not at all.
func (r Report) Write(path string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return write(path, append(b, '\n'))
}

// Table writes the report for people.
func (r Report) Table(w io.Writer) {
	terminal.Row(w, "task", "kind", "outcome", "cost", "turns", "calls", "time", "tokens in", "out", "cached", "reason")
	var sum Result
	for _, t := range r.Results {
		outcome := string(t.Outcome)
		if !t.Expected && t.Outcome != Skipped {
			outcome += " !"
		}
		terminal.Row(w, t.Task, string(t.Kind), outcome, dollars(t.CostUSD), t.Turns, t.ToolCalls, seconds(t.WallMS), t.TokensIn, t.TokensOut, share(t), terminal.OneLine(t.Reason, 90))
		sum.CostUSD, sum.Turns, sum.ToolCalls, sum.WallMS = sum.CostUSD+t.CostUSD, sum.Turns+t.Turns, sum.ToolCalls+t.ToolCalls, sum.WallMS+t.WallMS
		sum.TokensIn, sum.TokensOut, sum.TokensCached = sum.TokensIn+t.TokensIn, sum.TokensOut+t.TokensOut, sum.TokensCached+t.TokensCached
	}
	var counts []string
	for _, o := range append(slices.Clone(outcomes), Broken, Skipped) {
		if n := r.Count(o); n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, o))
		}
	}
	terminal.Row(w, fmt.Sprintf("%d tasks", len(r.Results)), "", "", dollars(sum.CostUSD), sum.Turns, sum.ToolCalls, seconds(sum.WallMS), sum.TokensIn, sum.TokensOut, share(sum), strings.Join(counts, ", "))
	for _, d := range r.Differs {
		terminal.Text(w, d+"\n")
	}
}

func dollars(usd float64) string { return fmt.Sprintf("$%.4f", usd) }

func seconds(ms int64) string {
	return (time.Duration(ms) * time.Millisecond).Round(100 * time.Millisecond).String()
}

// share is which part of a task's tokens the service had kept.
func share(t Result) string {
	if t.TokensIn <= 0 {
		return "-"
	}
	return fmt.Sprintf("%d%%", 100*t.TokensCached/t.TokensIn)
}

// Compare says what differs from an earlier evaluation, task by task.
func (r Report) Compare(before Report) []string {
	was := map[string]Result{}
	for _, t := range before.Results {
		was[t.Task] = t
	}
	out := []string{}
	for _, t := range r.Results {
		b, ok := was[t.Task]
		delete(was, t.Task)
		switch {
		case !ok:
			out = append(out, fmt.Sprintf("%s: new, %s", t.Task, t.Outcome))
		case b.Outcome != t.Outcome:
			out = append(out, fmt.Sprintf("%s: %s, was %s", t.Task, t.Outcome, b.Outcome))
		case b.Turns != t.Turns || b.TokensIn+b.TokensOut != t.TokensIn+t.TokensOut:
			out = append(out, fmt.Sprintf("%s: %d turns and %d tokens, were %d and %d", t.Task, t.Turns, t.TokensIn+t.TokensOut, b.Turns, b.TokensIn+b.TokensOut))
		}
	}
	for _, b := range before.Results {
		if _, gone := was[b.Task]; gone {
			out = append(out, b.Task+": not tried; was "+cmp.Or(string(b.Outcome), "unknown"))
		}
	}
	return out
}
