package harness

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
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
			case c.Cut:
				faults[c.ID] = fmt.Sprintf("Not run: your answer was cut off at its longest inside the arguments, of which %d bytes arrived. Do it in smaller steps. They began: %s", c.Arrived, Clip(string(args), 2000))
				args = []byte("{}")
			case len(args) > MaxArgs:
				faults[c.ID] = fmt.Sprintf("Not run: the arguments are %d bytes long; at most %d are allowed.", len(args), MaxArgs)
				args = []byte("{}")
			case !json.Valid(args) || args[0] != '{':
				faults[c.ID] = "Not run: the arguments are not a JSON object: " + Clip(string(args), 300)
				args = []byte("{}")
			}
			c.Args, c.Cut, c.Arrived = append(json.RawMessage(nil), args...), false, 0
			out.Parts = append(out.Parts, contract.Part{Call: &c})
		case p.Reasoning != nil && len(p.Reasoning.Text)+len(p.Reasoning.Opaque) <= MaxArgs && p.Reasoning.Provider != "":
			// Services want it back as they gave it, or not at all.
			out.Parts = append(out.Parts, contract.Part{Reasoning: p.Reasoning})
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
	if !slices.ContainsFunc(out.Parts, func(p contract.Part) bool { return p.Reasoning == nil }) {
		out.Parts = append(out.Parts, contract.Part{Text: "(empty answer)"})
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
