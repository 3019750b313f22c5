package catalogue

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/associate"
	"choir.dev/choiros/internal/director"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/tool"
	"choir.dev/choiros/internal/tool/boxtools"
)

// Model is what a task lists among its tools so that programs in its box may ask the computer's model. It
// is a grant like the others and bounded by the task's budget, but no tool: nobody calls it.
const Model = "model"

// ModelGranted reports whether programs in a task's box may ask the model. A task that only reads runs none.
func ModelGranted(t contract.DirectorTask) bool {
	return (t.Kind == contract.KindAgent || t.Kind == contract.KindExec) && slices.Contains(t.Tools, Model)
}

// HostTool is a tool that the host carries out, outside of every box.
type HostTool struct {
	tool.Tool
	Call func(ctx context.Context, call HostCall) (tool.Result, error)
}

// HostCall is one call of a HostTool. Its arguments fit the tool's schema.
type HostCall struct {
	Run, Task string
	Args      json.RawMessage
}

// Catalogue holds every tool of a computer with who may call it and where it is carried
// out.
type Catalogue struct {
	*tool.Registry
	host map[string]HostTool
}

// New collects the declared tools of the boxes, of the host and of both loops.
func New(host []HostTool) (*Catalogue, error) {
	c := &Catalogue{host: map[string]HostTool{}}
	all := boxtools.Declared()
	for _, h := range host {
		if h.Call == nil {
			return nil, fault.New("dispatch.tools", fault.Invalid, "", fmt.Errorf("nothing carries out the tool %q", h.Name))
		}
		h.Executor = tool.Host
		c.host[h.Name] = h
		all = append(all, h.Tool)
	}
	agent := []string{Model + " (programs in the box may ask the computer's model; for exec, too)"}
	for _, t := range all {
		if t.Name == Model {
			return nil, fault.New("dispatch.tools", fault.Invalid, "", fmt.Errorf("no tool can be called %q, which is a grant", Model))
		}
		if t.For(tool.Agent) && !t.Has(tool.Irreversible) && !t.Own {
			agent = append(agent, t.Name)
		}
	}
	all = append(append(all, associate.Declared()...), director.Declared(agent)...)
	var err error
	c.Registry, err = tool.NewRegistry(all...)
	return c, err
}

// OnHost returns the tool of a name, if the host carries it out.
func (c *Catalogue) OnHost(name string) (HostTool, bool) {
	h, ok := c.host[name]
	return h, ok
}

// Offered lists the tools that a task's model is told of: those that the task may use, and
// those that end it.
func (c *Catalogue) Offered(task contract.DirectorTask) []tool.Tool {
	return slices.DeleteFunc(c.For(tool.Agent), func(t tool.Tool) bool { return !t.Ends && (!Allowed(task, t) || Permitted(task, t) != nil) })
}

// Allowed reports whether the model of a task may call a tool: the tool must be for agents,
// the task must list it, or the one that it comes with, unless it is about nothing but the task itself, and a task of
// kind inspect gets only tools that read.
func Allowed(task contract.DirectorTask, t tool.Tool) bool {
	if !t.For(tool.Agent) || t.Executor == tool.Loop || (task.Kind == contract.KindInspect && !t.ReadOnly()) {
		return false
	}
	listed := t.Own || slices.Contains(task.Tools, t.Name) || (t.With != "" && slices.Contains(task.Tools, t.With))
	return listed && (task.Kind == contract.KindAgent || task.Kind == contract.KindInspect)
}

// ToolNames returns the tools that a task of the kind may list.
func (c *Catalogue) ToolNames(k contract.TaskKind) []string {
	var out []string
	for _, t := range c.For(tool.Agent) {
		if !t.Ends && !t.Own && !t.Has(tool.Irreversible) && (t.ReadOnly() || k == contract.KindAgent) {
			out = append(out, t.Name)
		}
	}
	return out
}

// Permitted refuses tools by the effects that they declare, whoever listed them. A box
// confines what happens in it, but nothing confines the host, and what can't be undone
// can't be taken back.
func Permitted(task contract.DirectorTask, t tool.Tool) error {
	switch {
	case t.Has(tool.Irreversible):
		return fault.New("", fault.Denied, "", fmt.Errorf("what %s does can't be undone; only a person may do it", t.Name))
	case t.Executor != tool.Box && t.Has(tool.Network) && task.Egress.Profile == contract.EgressNone:
		return fault.New("", fault.Denied, "", fmt.Errorf("%s reaches the network, and the task was granted none", t.Name))
	}
	return nil
}

// Canonical returns a call in the form in which it is compared with a task's steps.
func Canonical(name string, args json.RawMessage) (string, error) {
	var v any
	if err := json.Unmarshal(args, &v); err != nil {
		return "", err
	}
	b, err := json.Marshal(v)
	return name + "\x00" + string(b), err
}
