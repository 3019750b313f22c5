package task

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch/catalogue"
	"choir.dev/choiros/internal/dispatch/recall"
	"choir.dev/choiros/internal/dispatch/summary"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/harness"
	story "choir.dev/choiros/internal/run"
	"choir.dev/choiros/internal/tool"
)

// RecallTool shows a model what an earlier call of its own attempt returned.
func RecallTool() catalogue.HostTool {
	return catalogue.HostTool{Tool: recall.Tool(), Call: byAttempt((*attempt).recall)}
}

// maxLiveDiff bounds what is shown of what others changed, in bytes.
const maxLiveDiff = 64 << 10

func (a *attempt) recall(ctx context.Context, args json.RawMessage) (tool.Result, error) {
	return recall.Show(args, func(call string) (recall.Returned, string) {
		var ret contract.ToolReturned
		known, called := false, false
		var others []string
		a.run.Story(func(s *story.Run) {
			t := s.Task(a.ref.Task)
			ret, known = t.Returns[call]
			others = summary.OutdatedOf(t, call)
			for _, c := range t.Calls {
				called = called || c.Call == call
			}
		})
		switch {
		case !known && !called && len(others) > 0:
			diff, err := a.host.Workspace.LiveDiff(ctx, a.now.Base, others, maxLiveDiff)
			if err != nil {
				return recall.Returned{}, "The live files can't be read now: " + fault.Text(err)
			}
			return recall.Returned{Name: "the live files against those that you began with", Output: cmp.Or(diff, "They are as you began with them.")}, ""
		case !known && called:
			return recall.Returned{}, fmt.Sprintf("What %s returned is not known: nothing was recorded of its end.", call)
		case !known:
			return recall.Returned{}, fmt.Sprintf("There was no call %s.", harness.Clip(call, 60))
		}
		out := recall.Returned{Name: ret.Name, Output: ret.Output, Images: ret.Images}
		if ret.OutputRef != "" {
			whole, err := a.blob(ctx, ret.OutputRef)
			if err != nil {
				return recall.Returned{}, fmt.Sprintf("The whole of what %s returned can't be read (%s). Its beginning and end:\n%s", call, fault.Text(err), out.Output)
			}
			out.Output = whole
		}
		return out, ""
	}), nil
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
