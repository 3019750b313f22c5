package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch/catalogue"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/harness"
	story "choir.dev/choiros/internal/run"
	"choir.dev/choiros/internal/tool"
)

// Bounds of what recall shows at once, in bytes and lines.
const (
	maxRecalled     = 14 << 10
	maxRecalledLine = 2 << 10
	recallLines     = 300
)

// RecallTool shows a model what an earlier call of its own attempt returned, whole, a piece at a time: the log has it
// after the conversation has not.
func RecallTool() catalogue.HostTool {
	return catalogue.HostTool{Tool: tool.Tool{Name: "recall", Own: true, Effects: []tool.Effect{tool.Reads}, Callers: []tool.Caller{tool.Agent},
		Limits:      tool.Limits{In: 4 << 10, Out: 64 << 10, Time: time.Minute},
		Description: "Show again what an earlier call of yours returned, by the call's id (in brackets in \"From the log\"), also what was cut out of it.",
		Schema: tool.Object(`"call":{"type":"string","minLength":1,"maxLength":128},
			"from":{"type":"integer","minimum":1,"maximum":100000000,"description":"the first line, from 1"},
			"lines":{"type":"integer","minimum":1,"maximum":2000,"description":"how many; 300 when left out"}`, "call")},
		Call: func(ctx context.Context, c catalogue.HostCall) (tool.Result, error) {
			a, ok := ctx.Value(attemptKey{}).(*attempt)
			if !ok {
				return tool.Result{}, fault.New("dispatch.tool", fault.Internal, "", errors.New("no attempt calls recall"))
			}
			return a.recall(ctx, c.Args)
		}}
}

func (a *attempt) recall(ctx context.Context, args json.RawMessage) (tool.Result, error) {
	var in struct {
		Call  string `json:"call"`
		From  int    `json:"from"`
		Lines int    `json:"lines"`
	}
	if err := json.Unmarshal(args, &in); err != nil {
		return tool.Failed("%v", err), nil
	}
	var ret contract.ToolReturned
	known, called := false, false
	a.run.Story(func(s *story.Run) {
		t := s.Task(a.ref.Task)
		ret, known = t.Returns[in.Call]
		for _, c := range t.Calls {
			called = called || c.Call == in.Call
		}
	})
	switch {
	case !known && called:
		return tool.Failed("What %s returned is not known: nothing was recorded of its end.", in.Call), nil
	case !known:
		return tool.Failed("There was no call %s.", harness.Clip(in.Call, 60)), nil
	}
	output := ret.Output
	if ret.OutputRef != "" {
		whole, err := a.blob(ctx, ret.OutputRef)
		if err != nil {
			return tool.Failed("The whole of what %s returned can't be read (%s). Its beginning and end:\n%s", in.Call, fault.Text(err), output), nil
		}
		output = whole
	}
	lines := strings.Split(strings.TrimRight(output, "\n"), "\n")
	first, most := max(in.From, 1), in.Lines
	if most == 0 {
		most = recallLines
	}
	if first > len(lines) {
		return tool.Failed("It has %d lines.", len(lines)), nil
	}
	var b strings.Builder
	last := first - 1
	for last < len(lines) && last-first+1 < most {
		line := harness.Clip(lines[last], maxRecalledLine)
		if b.Len() > 0 && b.Len()+len(line) > maxRecalled {
			break
		}
		b.WriteString(line + "\n")
		last++
	}
	head := fmt.Sprintf("Lines %d to %d of %d of what %s (%s) returned:\n", first, last, len(lines), in.Call, ret.Name)
	if last < len(lines) {
		b.WriteString(fmt.Sprintf("(go on with from: %d)\n", last+1))
	}
	return tool.Result{OK: true, Output: head + b.String(), Images: ret.Images}, nil
}

// blob reads an output that was too long for its event.
func (a *attempt) blob(ctx context.Context, ref contract.BlobRef) (string, error) {
	r, size, err := a.host.Blobs.Open(ctx, a.host.CID, ref)
	if err != nil {
		return "", err
	}
	defer r.Close()
	if size > contract.MaxTurn {
		return "", fmt.Errorf("it has %d bytes", size)
	}
	b, err := io.ReadAll(io.LimitReader(r, contract.MaxTurn))
	return strings.ToValidUTF8(string(b), "\uFFFD"), err
}
