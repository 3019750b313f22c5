package summary

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/harness"
	story "choir.dev/choiros/internal/run"
)

// Words is what the user said to a run, each with its number, so that a loop can tell which it was told.
func Words(s *story.Run) []string {
	var out []string
	for i, text := range s.Steering {
		out = append(out, fmt.Sprintf("The user says (%d): %s", i+1, harness.Clip(text, 4096)))
	}
	return out
}

// Closed returns the turns of a resumed loop whose calls were answered for it: they are recorded so.
func Closed(recorded, resumed []contract.TurnRecorded) []contract.TurnRecorded {
	var out []contract.TurnRecorded
	for i, t := range resumed {
		if recorded[i].Returns == nil && t.Returns != nil {
			out = append(out, t)
		}
	}
	return out
}

// Sent is what of its turns a loop that resumes is sent: of those that a compaction left out, only what it was told
// there, and the ids of their calls, of which none may be used again.
func Sent(turns []contract.TurnRecorded) []contract.TurnRecorded {
	keeps := 0
	for _, t := range turns {
		if t.Compacted != nil {
			keeps = t.Compacted.Keeps
		}
	}
	var out []contract.TurnRecorded
	for _, t := range turns {
		switch {
		case t.Index >= keeps:
		case t.Compacted != nil:
			continue
		default:
			left := contract.Message{Role: contract.MessageAssistant}
			for _, p := range t.Message.Parts {
				if p.Call != nil {
					left.Parts = append(left.Parts, contract.Part{Call: &contract.ToolCall{ID: p.Call.ID, Name: p.Call.Name, Args: json.RawMessage("{}")}})
				}
			}
			if t.Told == "" && t.Index != 0 && len(left.Parts) == 0 {
				continue
			}
			t = contract.TurnRecorded{Attempt: t.Attempt, Index: t.Index, Told: t.Told, Message: left}
		}
		out = append(out, t)
	}
	return out
}

// AlsoKept is a section with what a computer keeps since a run began, which is not told again when it was left out.
func AlsoKept(kept []string) string {
	if len(kept) == 0 {
		return ""
	}
	return "## Kept since this run began\n\n" + strings.Join(kept, "\n") + "\n\n"
}

// Bounds of what Facts says of one call, in bytes.
const (
	maxErrorText = 1200 // of the newest failures
	maxOldError  = 200
	newestErrors = 8
	maxPaths     = 200 // of one call; no patch has so many files
)

// Facts is what the log knows of an attempt, word for word, in at most so many bytes: what the computer keeps since
// the run began, what the user said, what was changed, run and checked, and what failed, each with the id of its call.
// When it does not fit, the oldest goes first.
func Facts(s *story.Run, t *story.Task, kept []string, most int) string {
	if t == nil {
		return ""
	}
	var changed, read order
	var ran, failed []string
	failures := 0
	for i := len(t.Calls) - 1; i >= 0; i-- { // newest first
		c := t.Calls[i]
		ret, returned := t.Returns[c.Call]
		paths := PathsOf(c.Args)
		text, size := "", maxErrorText
		if returned && (!ret.OK || (ret.Command != nil && ret.Command.ExitCode != 0)) {
			if failures++; failures > newestErrors {
				size = maxOldError
			}
			text = "\n" + indent(tail(strings.TrimSpace(ret.Output), size))
		}
		switch {
		case !returned:
			failed = append(failed, fmt.Sprintf("[%s] %s %s → unknown: nothing was recorded of its end", c.Call, c.Name, OneLine(string(c.Args), 200)))
		case ret.Command != nil:
			ran = append(ran, fmt.Sprintf("[%s] %s → exit code %d%s", c.Call, OneLine(commandLine(ret.Command.Argv), 400), ret.Command.ExitCode, text))
		case !ret.OK:
			failed = append(failed, fmt.Sprintf("[%s] %s %s%s", c.Call, c.Name, OneLine(string(c.Args), 200), text))
		case c.ReadOnly:
			read.add(paths, c.Call)
		default:
			changed.add(paths, c.Call)
		}
	}
	var checks []string
	for i := len(t.Repairs) - 1; i >= 0; i-- {
		why := "checks failed"
		if t.Repairs[i].Review > 0 {
			why = "the user looked at it and commented"
		}
		checks = append(checks, fmt.Sprintf("Sent back (%d) because %s:\n%s", i+1, why, indent(harness.Clip(t.Repairs[i].Failed, 3000))))
	}
	words := Words(s)
	slices.Reverse(words)
	// Each part gets what the ones before left, and no more than its share while others want room. The user's words
	// get up to half of all: what a loop was told of them is left out with its turns, and is not told again.
	said := AlsoKept(kept)
	return said + composeLines(max(most-len(said), most/2), most/2,
		part{"The user's words (newest first)", words},
		part{"Changed (newest first; in brackets the call)", changed.lines()},
		part{"Changed by others in the live files, while your tree has them as before (newest first)", outdated(t)},
		part{"Checks", checks},
		part{"Run (newest first)", ran},
		part{"Calls that failed", failed},
		part{"Read", read.lines()},
	)
}

// maxLooked bounds how many of its calls a Director is told of.
const maxLooked = 60

// Looked lists a Director's calls of tools that show it files, newest first, each with the call's id.
func Looked(s *story.Run, shows func(name string) bool) (out []string) {
	for _, t := range slices.Backward(s.Turns) {
		for _, p := range slices.Backward(t.Message.Parts) {
			if p.Call == nil || !shows(p.Call.Name) {
				continue
			}
			if out = append(out, fmt.Sprintf("[%s] %s %s", p.Call.ID, p.Call.Name, OneLine(string(p.Call.Args), 160))); len(out) == maxLooked {
				return out
			}
		}
	}
	return out
}

// part is a section of facts, whose lines are dropped from their end; the first is clipped if it does not fit.
type part struct {
	title string
	lines []string
}

// composeLines joins parts in at most so many bytes, of which the first may have some in any case.
func composeLines(most, first int, parts ...part) string {
	if len(parts[0].lines) == 0 {
		first = 0
	}
	parts = slices.DeleteFunc(parts, func(p part) bool { return len(p.lines) == 0 })
	var b strings.Builder
	for i, p := range parts {
		room := (most - b.Len()) / (len(parts) - i)
		if i < len(parts)-1 { // a short one leaves its room to others; a long one may have more than its share
			rest := 0
			for _, o := range parts[i+1:] {
				for _, l := range o.lines {
					rest += len(l) + 1
				}
				rest += len(o.title) + 8
			}
			room = max(room, most-b.Len()-rest)
		}
		if i == 0 {
			room = max(room, first)
		}
		room -= len(p.title) + 60
		if room <= 0 {
			continue
		}
		fmt.Fprintf(&b, "## %s\n\n", p.title)
		left := 0
		for n, l := range p.lines {
			if len(l) >= room && n > 0 {
				left = len(p.lines) - n
				break
			}
			l = harness.Clip(l, room-1)
			room -= len(l) + 1
			b.WriteString(l + "\n")
		}
		if left > 0 {
			fmt.Fprintf(&b, "(and %d older)\n", left)
		}
		b.WriteString("\n")
	}
	return strings.TrimSpace(b.String())
}

// order is a list of paths, each once, with the newest call that named it.
type order struct {
	paths []string
	calls map[string]string
}

func (o *order) add(paths []string, call string) {
	for _, p := range paths {
		if _, ok := o.calls[p]; ok {
			continue
		}
		if o.calls == nil {
			o.calls = map[string]string{}
		}
		o.calls[p] = call
		o.paths = append(o.paths, p)
	}
}

func (o *order) lines() []string {
	var out []string
	for _, p := range o.paths {
		shown := p
		if strings.ContainsFunc(p, func(r rune) bool { return !unicode.IsPrint(r) }) {
			shown = strconv.Quote(p) // it must not pass for a line of its own
		}
		out = append(out, fmt.Sprintf("%s [%s]", shown, o.calls[p]))
	}
	return out
}

// PathsOf finds the paths that a call's arguments name.
func PathsOf(args json.RawMessage) []string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(args, &fields) != nil {
		return nil
	}
	var out []string
	add := func(p string) {
		if p = strings.TrimSpace(p); p != "" && len(p) <= 1024 && len(out) < maxPaths && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	for _, name := range []string{"path", "file", "from", "to"} {
		var p string
		if json.Unmarshal(fields[name], &p) == nil {
			add(p)
		}
	}
	for _, name := range []string{"patch", "diff"} {
		var text string
		if json.Unmarshal(fields[name], &text) != nil {
			continue
		}
		for line := range strings.Lines(text) {
			for _, mark := range []string{"+++ b/", "*** Update File: ", "*** Add File: ", "*** Delete File: ", "*** Move to: "} {
				if p, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), mark); ok {
					add(p)
				}
			}
		}
	}
	return out
}

// commandLine is a command as a person would type it.
func commandLine(argv []string) string {
	if n := len(argv); n >= 3 && (argv[n-2] == "-c" || argv[n-2] == "-lc") {
		return argv[n-1]
	}
	return strings.Join(argv, " ")
}

func indent(s string) string { return "  " + strings.ReplaceAll(s, "\n", "\n  ") }

// Shortened returns a command as the log and the task's result store it.
func Shortened(ran *contract.Command, logs bool) *contract.Command {
	if ran == nil {
		return nil
	}
	keep := 2 << 10
	if logs {
		keep = 8 << 10
	}
	c := *ran
	c.Argv = slices.Clone(c.Argv[:min(len(c.Argv), 64)])
	for i := range c.Argv {
		c.Argv[i] = harness.Clip(c.Argv[i], 4<<10)
	}
	c.Truncated = c.Truncated || len(c.Stdout) > keep || len(c.Stderr) > keep
	c.Stdout, c.Stderr = harness.Clip(c.Stdout, keep), harness.Clip(c.Stderr, keep)
	c.DurationMS = max(0, c.DurationMS)
	return &c
}
