package harness

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"

	"choir.dev/choiros/contract"
)

// toolName says whether vendors accept s as the name of a tool or of a call. It uses no
// regular expression: compiling one that counts repetitions takes each guest 0.2 ms.
func toolName(s string) bool {
	const of = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
	return s != "" && len(s) <= 64 && strings.Trim(s, of) == ""
}

// MaxArgs bounds the arguments of one call, in bytes.
const MaxArgs = 1 << 20

// sanitize makes what a model wrote fit to be recorded and sent back: bounded
// text, at most CallsPerTurn calls, unique ids, names and arguments that every
// provider accepts. faults says per call id why it can't be run as written.
//
// used holds the call ids of the loop so far: the host takes a second call with the same id
// for a replay.
func sanitize(m contract.Message, lim Limits, index int, used map[string]bool) (contract.Message, map[string]string) {
	out := contract.Message{Role: contract.MessageAssistant}
	faults := map[string]string{}
	textLeft, n, dropped := lim.Text, 0, 0
	for _, p := range m.Parts {
		switch {
		case p.Call != nil:
			if n++; n > lim.CallsPerTurn {
				dropped++
				continue
			}
			c := *p.Call
			if !toolName(c.ID) || used[c.ID] {
				c.ID = fmt.Sprintf("t%d_c%d", index, n)
				for used[c.ID] {
					c.ID += "x"
				}
			}
			used[c.ID] = true
			if !toolName(c.Name) {
				faults[c.ID] = fmt.Sprintf("%q is not a tool's name.", Clip(c.Name, 60))
				c.Name = "invalid_name"
			}
			args := bytes.TrimSpace(c.Args)
			if len(args) == 0 {
				args = []byte("{}")
			}
			switch {
			case len(args) > MaxArgs:
				faults[c.ID] = fmt.Sprintf("Not run: the arguments are %d bytes long; at most %d are allowed.", len(args), MaxArgs)
				args = []byte("{}")
			case !json.Valid(args) || args[0] != '{':
				faults[c.ID] = "Not run: the arguments are not a JSON object: " + Clip(string(args), 300)
				args = []byte("{}")
			}
			c.Args = append(json.RawMessage(nil), args...)
			out.Parts = append(out.Parts, contract.Part{Call: &c})
		case p.Text != "" && textLeft > 0:
			t := Clip(strings.ReplaceAll(p.Text, "\x00", "\uFFFD"), textLeft)
			textLeft -= len(t)
			out.Parts = append(out.Parts, contract.Part{Text: t})
		}
	}
	if dropped > 0 {
		out.Parts = append(out.Parts, contract.Part{Text: fmt.Sprintf("(%d more calls of this turn were not run; at most %d are.)", dropped, lim.CallsPerTurn)})
		// Text after calls is refused by some providers, so it goes first.
		last := len(out.Parts) - 1
		out.Parts = append([]contract.Part{out.Parts[last]}, out.Parts[:last]...)
	}
	if len(out.Parts) == 0 {
		out.Parts = []contract.Part{{Text: "(empty answer)"}}
	}
	return out, faults
}

func calls(m contract.Message) []contract.ToolCall {
	var out []contract.ToolCall
	for _, p := range m.Parts {
		if p.Call != nil {
			out = append(out, *p.Call)
		}
	}
	return out
}

func textOf(m contract.Message) string {
	var parts []string
	for _, p := range m.Parts {
		if p.Text != "" {
			parts = append(parts, p.Text)
		}
	}
	return strings.Join(parts, "\n")
}

// lost answers the calls of a turn whose returns were not recorded.
func lost(m contract.Message) contract.Message {
	out := contract.Message{Role: contract.MessageUser}
	for _, c := range calls(m) {
		out.Parts = append(out.Parts, contract.Part{Return: &contract.ToolReturn{ID: c.ID, IsError: true,
			Content: "Unknown: the computer was restarted before this call's outcome was recorded. It may or may not have happened; look before you repeat it."}})
	}
	return out
}

// window returns the newest turns that fit into limit bytes, as messages that
// alternate from assistant to user, and one line for each older turn.
func (l *loop) window(limit int) ([]contract.Message, []string) {
	from, size := len(l.turns), 0
	for from > 0 {
		size += min(sizeOf(l.turns[from-1]), sizeOf(fit(l.turns[from-1], limit)))
		// The newest turn is always included: the model waits for its returns.
		if size > limit && from < len(l.turns) {
			break
		}
		from--
	}
	var elided []string
	for _, t := range l.turns[:from] {
		elided = append(elided, digest(t))
	}
	var out []contract.Message
	for _, t := range l.turns[from:] {
		if len(out) > 0 && out[len(out)-1].Role == contract.MessageAssistant {
			out = append(out, contract.Message{Role: contract.MessageUser, Parts: []contract.Part{{Text: "Go on."}}})
		}
		t = fit(t, limit)
		out = append(out, t.Message)
		out = append(out, t.Returns...)
	}
	return out, elided
}

// maxReplayedArgs bounds a call's arguments when they are shown again; they were run and
// recorded whole.
const maxReplayedArgs = 8 << 10

// fit bounds one turn so that even the newest, which always goes along, keeps
// the request within its limit.
func fit(t Record, limit int) Record {
	argsMax, retMax := maxReplayedArgs, limit
	if sizeOf(t) > limit {
		n := max(1, len(t.Message.Parts))
		argsMax, retMax = min(argsMax, limit/(4*n)), limit/(2*n)
	}
	cut := func(m contract.Message) contract.Message {
		parts := make([]contract.Part, len(m.Parts))
		for i, p := range m.Parts {
			switch {
			case p.Call != nil && len(p.Call.Args) > argsMax:
				c := *p.Call
				c.Args = json.RawMessage(fmt.Sprintf(`{"left_out":"%d bytes"}`, len(c.Args)))
				p.Call = &c
			case p.Return != nil && len(p.Return.Content) > retMax:
				r := *p.Return
				r.Content = Clip(r.Content, retMax)
				p.Return = &r
			case len(p.Text) > retMax:
				p.Text = Clip(p.Text, retMax)
			}
			parts[i] = p
		}
		return contract.Message{Role: m.Role, Parts: parts}
	}
	out := Record{Index: t.Index, Message: cut(t.Message), Usage: t.Usage}
	for _, m := range t.Returns {
		out.Returns = append(out.Returns, cut(m))
	}
	return out
}

func sizeOf(t Record) int {
	n := 0
	for _, m := range append([]contract.Message{t.Message}, t.Returns...) {
		for _, p := range m.Parts {
			n += len(p.Text) + 64
			if p.Call != nil {
				n += len(p.Call.Args) + len(p.Call.Name)
			}
			if p.Return != nil {
				n += len(p.Return.Content)
			}
		}
	}
	return n
}

// digest is a turn in one line: what was called and whether it succeeded.
func digest(t Record) string {
	failed := map[string]bool{}
	for _, m := range t.Returns {
		for _, p := range m.Parts {
			if p.Return != nil {
				failed[p.Return.ID] = p.Return.IsError
			}
		}
	}
	var parts []string
	for _, c := range calls(t.Message) {
		word := "ok"
		if failed[c.ID] {
			word = "error"
		}
		parts = append(parts, fmt.Sprintf("%s %s → %s", c.Name, oneLine(string(c.Args), 120), word))
	}
	if len(parts) == 0 {
		parts = append(parts, oneLine(textOf(t.Message), 160))
	}
	return oneLine(fmt.Sprintf("turn %d: %s", t.Index+1, strings.Join(parts, "; ")), 400)
}

func oneLine(s string, max int) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > max {
		s = contract.Clip(s, max) + "…"
	}
	return s
}

// repeats counts calls that were made with the same arguments and outcome.
type repeats struct {
	counts map[[32]byte]int
	warned map[[32]byte]int // the turn in which the model was first warned
}

func newRepeats() *repeats {
	return &repeats{counts: map[[32]byte]int{}, warned: map[[32]byte]int{}}
}

// add counts one call and returns the key that it is counted under and how often it was
// seen. A call that changed something for the first time resets the count of all others:
// the same test run after an edit is progress, not repetition.
func (r *repeats) add(c contract.ToolCall, ret Return, changed bool) (key [32]byte, n int) {
	var canon bytes.Buffer
	if json.Compact(&canon, c.Args) != nil {
		canon.Write(c.Args)
	}
	key = sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%t\x00%s", c.Name, canon.Bytes(), ret.IsError, ret.Content))
	if changed && r.counts[key] == 0 {
		mine := map[[32]byte]int{}
		for k, n := range r.counts {
			if n >= 1 {
				mine[k] = 1
			}
		}
		r.counts, r.warned = mine, map[[32]byte]int{}
	}
	r.counts[key]++
	return key, r.counts[key]
}

// warn notes that the returns of this turn warn the model of a repetition. fresh says that
// the turn had no such warning yet, heard that an earlier turn had one.
func (r *repeats) warn(key [32]byte, turn int) (fresh, heard bool) {
	first, told := r.warned[key]
	if !told {
		r.warned[key] = turn
	}
	return !told, told && first < turn
}
