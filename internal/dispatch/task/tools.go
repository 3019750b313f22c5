package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"choir.dev/choiros/internal/associate"
	"choir.dev/choiros/internal/dispatch/catalogue"
	"choir.dev/choiros/internal/dispatch/loops"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/tool"
)

// attemptKey is the context key by which a call of one of this package's own tools finds its attempt.
type attemptKey struct{}

// byAttempt is the call of a tool that the calling attempt carries out.
func byAttempt(do func(*attempt, context.Context, json.RawMessage) (tool.Result, error)) func(context.Context, catalogue.HostCall) (tool.Result, error) {
	return func(ctx context.Context, c catalogue.HostCall) (tool.Result, error) {
		a, ok := ctx.Value(attemptKey{}).(*attempt)
		if !ok {
			return tool.Result{}, fault.New("dispatch.tool", fault.Internal, "", errors.New("no attempt calls it"))
		}
		return do(a, ctx, c.Args)
	}
}

// GitTool is the tool for git steps on the workspace's history, which no task's box contains.
func GitTool() catalogue.HostTool {
	return catalogue.HostTool{Tool: tool.Tool{Name: associate.Git, Effects: []tool.Effect{tool.Reads, tool.Writes}, Callers: []tool.Caller{tool.Step},
		Limits:      tool.Limits{In: 64 << 10, Out: loops.MaxResult, Time: time.Hour},
		Description: "Do something with the computer's history.",
		Schema: tool.Object(`"op":{"type":"string","enum":["checkpoint","restore","diff","log","status"]},"message":{"type":"string","maxLength":4096},
			"ref":{"type":"string","maxLength":64},"path":{"type":"string","maxLength":4096}`, "op")},
		Call: byAttempt((*attempt).git)}
}

// carryOut makes an admitted call in the box or on the host, as its tool declares, within the tool's
// limits.
func (a *attempt) carryOut(ctx context.Context, call string, t tool.Tool, args json.RawMessage) (tool.Result, error) {
	if t.Executor == tool.Box {
		return a.inBox(ctx, a.box, t, args)
	}
	h, ok := a.host.Tools.OnHost(t.Name)
	if !ok {
		return tool.Result{}, fault.New("dispatch.tool", fault.Internal, "", errors.New("nobody carries out "+t.Name))
	}
	return t.Do(ctx, args, func(ctx context.Context) (tool.Result, error) {
		if h.Outside != nil {
			return a.outside(ctx, call, h, args)
		}
		return h.Call(context.WithValue(ctx, attemptKey{}, a), catalogue.HostCall{Run: a.ref.Run, Task: a.ref.Task, Args: args})
	})
}

// checkBox calls a tool of verification in a box of its own.
func (a *attempt) checkBox(ctx context.Context, box ports.Box, name string, args json.RawMessage) (tool.Result, error) {
	t, ok := a.host.Tools.Lookup(name)
	if !ok || !t.For(tool.Check) {
		return tool.Result{}, fault.New("dispatch.check", fault.Internal, "", fmt.Errorf("%q is no tool of verification", name))
	}
	return a.inBox(ctx, box, t, args)
}
