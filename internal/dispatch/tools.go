package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/associate"
	"choir.dev/choiros/internal/director"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/tool"
	"choir.dev/choiros/internal/tool/boxtools"
)

// HostTool is a tool that the host carries out, outside of every box.
type HostTool struct {
	tool.Tool
	Call func(ctx context.Context, call HostCall) (tool.Result, error)
}

// HostCall is one call of a HostTool. Its arguments fit the tool's schema.
type HostCall struct {
	Run, Task string
	Args      json.RawMessage
	attempt   *attempt
}

// gitTool does a git step on the workspace's history, which no task's box holds.
func gitTool() HostTool {
	return HostTool{tool.Tool{Name: associate.Git, Effects: []tool.Effect{tool.Reads, tool.Writes}, Callers: []tool.Caller{tool.Step},
		Limits:      tool.Limits{In: 64 << 10, Out: maxResult, Time: time.Hour},
		Description: "Do something with the computer's history.",
		Schema: tool.Object(`"op":{"type":"string","enum":["checkpoint","restore","diff","log","status"]},"message":{"type":"string","maxLength":4096},
			"ref":{"type":"string","maxLength":64},"path":{"type":"string","maxLength":4096}`, "op")},
		func(ctx context.Context, c HostCall) (tool.Result, error) { return c.attempt.git(ctx, c.Args) }}
}

// catalogue is every tool of a computer, by who calls it and who carries it out.
type catalogue struct {
	*tool.Registry
	host map[string]HostTool
}

// newCatalogue puts the declarations together: those of the boxes, the host's,
// those of both loops.
func newCatalogue(more []HostTool) (*catalogue, error) {
	c := &catalogue{host: map[string]HostTool{}}
	all := boxtools.Declared()
	for _, h := range append([]HostTool{gitTool()}, more...) {
		if h.Call == nil {
			return nil, fault.New("dispatch.tools", fault.Invalid, "", fmt.Errorf("nothing carries out the tool %q", h.Name))
		}
		h.Executor = tool.Host
		c.host[h.Name] = h
		all = append(all, h.Tool)
	}
	var agent []string
	for _, t := range all {
		if t.For(tool.Agent) && !t.Has(tool.Irreversible) {
			agent = append(agent, t.Name)
		}
	}
	all = append(append(all, associate.Declared()...), director.Declared(agent)...)
	var err error
	c.Registry, err = tool.NewRegistry(all...)
	return c, err
}

// offered lists what a task's model is told of: what the task may use, and what
// ends it.
func (c *catalogue) offered(task contract.DirectorTask) []tool.Tool {
	return slices.DeleteFunc(c.For(tool.Agent), func(t tool.Tool) bool { return !t.Ends && (!allowed(task, t) || permitted(task, t) != nil) })
}

// allowed reports whether the model of a task may call a tool: the tool is for
// agents, the task lists it, and a task of kind inspect gets what only reads.
func allowed(task contract.DirectorTask, t tool.Tool) bool {
	if !t.For(tool.Agent) || t.Executor == tool.Loop || (task.Kind == contract.KindInspect && !t.ReadOnly()) {
		return false
	}
	return (task.Kind == contract.KindAgent || task.Kind == contract.KindInspect) && slices.Contains(task.Tools, t.Name)
}

// toolNames are the tools that a task of the kind may list.
func (c *catalogue) toolNames(k contract.TaskKind) []string {
	var out []string
	for _, t := range c.For(tool.Agent) {
		if !t.Ends && !t.Has(tool.Irreversible) && (t.ReadOnly() || k == contract.KindAgent) {
			out = append(out, t.Name)
		}
	}
	return out
}

// permitted refuses what a task may not do by the effects that a tool declares,
// whoever listed it. A box confines what happens in it; nothing confines the
// host, and nothing takes back what can't be undone.
func permitted(task contract.DirectorTask, t tool.Tool) error {
	switch {
	case t.Has(tool.Irreversible):
		return fault.New("", fault.Denied, "", fmt.Errorf("what %s does can't be undone; only a person may do it", t.Name))
	case t.Executor != tool.Box && t.Has(tool.Network) && task.Egress.Profile == contract.EgressNone:
		return fault.New("", fault.Denied, "", fmt.Errorf("%s reaches the network, and the task was granted none", t.Name))
	}
	return nil
}

// carryOut makes an admitted call where its tool says, within its limits.
func (a *attempt) carryOut(ctx context.Context, t tool.Tool, args json.RawMessage) (tool.Result, error) {
	if t.Executor == tool.Box {
		return a.inBox(ctx, a.box, t, args)
	}
	h, ok := a.r.d.tools.host[t.Name]
	if !ok {
		return tool.Result{}, fault.New("dispatch.tool", fault.Internal, "", errors.New("nobody carries out "+t.Name))
	}
	return t.Do(ctx, args, func(ctx context.Context) (tool.Result, error) {
		return h.Call(ctx, HostCall{Run: a.ref.Run, Task: a.ref.Task, Args: args, attempt: a})
	})
}

// checkBox calls a tool of verification in a box of its own.
func (a *attempt) checkBox(ctx context.Context, box Box, name string, args json.RawMessage) (tool.Result, error) {
	t, ok := a.r.d.tools.Lookup(name)
	if !ok || !t.For(tool.Check) {
		return tool.Result{}, fault.New("dispatch.check", fault.Internal, "", fmt.Errorf("%q is no tool of verification", name))
	}
	return a.inBox(ctx, box, t, args)
}
