// Package recall shows a loop what an earlier call of its own returned, a piece at a time: the log has it
// after the conversation has not.
package recall

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/harness"
	"choir.dev/choiros/internal/tool"
)

// Bounds of what is shown at once, in bytes and lines.
const (
	maxShown     = 14 << 10
	maxShownLine = 2 << 10
	shownLines   = 300
)

// Name is the tool's.
const Name = "recall"

// Tool declares the tool. Who calls it decides where an earlier call is looked for.
func Tool() tool.Tool {
	return tool.Tool{Name: Name, Own: true, Effects: []tool.Effect{tool.Reads}, Callers: []tool.Caller{tool.Agent, tool.Director},
		Limits:      tool.Limits{In: 4 << 10, Out: 64 << 10, Time: time.Minute},
		Description: "Show again what an earlier call of yours returned, by the call's id (in brackets in \"From the log\"), also what was cut out of it.",
		Schema: tool.Object(`"call":{"type":"string","minLength":1,"maxLength":128},
			"from":{"type":"integer","minimum":1,"maximum":100000000,"description":"the first line, from 1"},
			"lines":{"type":"integer","minimum":1,"maximum":2000,"description":"how many; 300 when left out"}`, "call")}
}

// Returned is what is known of an earlier call.
type Returned struct {
	Name   string
	Output string
	Images []contract.Image
}

// Show answers a call of the tool. find looks for the earlier call by its id, and says why there is nothing to show.
func Show(args json.RawMessage, find func(call string) (ret Returned, why string)) tool.Result {
	var in struct {
		Call  string `json:"call"`
		From  int    `json:"from"`
		Lines int    `json:"lines"`
	}
	if err := json.Unmarshal(args, &in); err != nil {
		return tool.Failed("%v", err)
	}
	ret, why := find(in.Call)
	if why != "" {
		return tool.Failed("%s", why)
	}
	lines := strings.Split(strings.TrimRight(ret.Output, "\n"), "\n")
	first, most := max(in.From, 1), in.Lines
	if most == 0 {
		most = shownLines
	}
	if first > len(lines) {
		return tool.Failed("It has %d lines.", len(lines))
	}
	var b strings.Builder
	last := first - 1
	for last < len(lines) && last-first+1 < most {
		line := harness.Clip(lines[last], maxShownLine)
		if b.Len() > 0 && b.Len()+len(line) > maxShown {
			break
		}
		b.WriteString(line + "\n")
		last++
	}
	head := fmt.Sprintf("Lines %d to %d of %d of what %s (%s) returned:\n", first, last, len(lines), in.Call, ret.Name)
	if last < len(lines) {
		b.WriteString(fmt.Sprintf("(go on with from: %d)\n", last+1))
	}
	return tool.Result{OK: true, Output: head + b.String(), Images: ret.Images}
}

// OfTurns finds a call among turns, which have what it returned as its model was shown it.
func OfTurns(turns []contract.TurnRecorded, call string) (ret Returned, why string) {
	for _, t := range turns {
		for _, p := range t.Message.Parts {
			if p.Call != nil && p.Call.ID == call {
				ret.Name = p.Call.Name
			}
		}
		for _, m := range t.Returns {
			for _, p := range m.Parts {
				if p.Return != nil && p.Return.ID == call && ret.Name != "" {
					ret.Output, ret.Images = p.Return.Content, p.Return.Images
					return ret, ""
				}
			}
		}
	}
	if ret.Name != "" {
		return ret, fmt.Sprintf("What %s returned is not known: nothing was recorded of its end.", call)
	}
	return ret, fmt.Sprintf("There was no call %s.", harness.Clip(call, 60))
}
