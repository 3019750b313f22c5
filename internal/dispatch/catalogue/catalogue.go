package catalogue

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/associate"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/director"
	"choir.dev/choiros/internal/effect"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/harness"
	"choir.dev/choiros/internal/tool"
	"choir.dev/choiros/internal/tool/boxtools"
)

// Model is what a task lists among its tools so that programs in its box may ask the computer's model. It
// is a grant like the others and bounded by the task's budget, but no tool: nobody calls it.
const Model = "model"

// ModelGranted reports whether programs in a task's box may ask the model. A task that only reads runs none;
// one that an agent program does is asked of that program's model.
func ModelGranted(t contract.DirectorTask) bool {
	return (t.Kind == contract.KindAgent || t.Kind == contract.KindExec) && slices.Contains(t.Tools, Model) || t.Program != ""
}

// HostTool is a tool that the host carries out, outside of every box.
type HostTool struct {
	tool.Tool
	Call func(ctx context.Context, call HostCall) (tool.Result, error)
	// Outside is what the ledger of effects needs to know of a tool whose calls are irreversible; no other has it.
	Outside *Outside
}

// Outside describes a tool whose calls change something outside of the computer.
type Outside struct {
	Kind contract.EffectKind
	// Target is what all calls reach, one line.
	Target string
	// Key is the argument in which the service takes an idempotency key; "": it takes none.
	Key string
	// Harmless says that the service says of itself that what was done once is not done twice.
	Harmless bool
	// Each is of a tool of which each call is asked about, and has a target of its own.
	Each  *Each
	again bool // whether a call may name an earlier effect that it makes once more
}

// Each is what a tool does about each call before it is made.
type Each struct {
	// Read says what a call reaches, and what of its arguments leaves, in the one spelling in which calls are compared.
	Read func(args json.RawMessage) (target string, leaves json.RawMessage, err error)
	// Ask asks a person about exactly what leaves. approval is what they allowed; refused says why they did not.
	Ask func(ctx context.Context, q Question) (approval, refused string, err error)
}

// Question is what a person is asked about a call.
type Question struct {
	Args, Leaves json.RawMessage        // as the model wrote them, and as they leave
	Sends        contract.BlobRef       // of Leaves
	Again        string                 // the earlier effect that it makes once more
	Before       contract.EffectOutcome // what is known of that
}

// TakesAgain reports whether a call may name an earlier effect that it makes once more.
func (o Outside) TakesAgain() bool { return o.again }

// HostCall is one call of a HostTool. Its arguments fit the tool's schema.
type HostCall struct {
	Run, Task string
	Args      json.RawMessage
}

// Catalogue holds every tool of a computer with who may call it and where it is carried
// out. It is safe for concurrent use.
type Catalogue struct {
	fixed    []HostTool
	programs []string // names of agent programs
	now      atomic.Pointer[tools]
}

// tools are all of a moment.
type tools struct {
	*tool.Registry
	host map[string]HostTool
}

// New collects the declared tools of the boxes, of the host and of both loops. programs are the names of
// the agent programs that the Director may give a task to.
func New(host []HostTool, programs []string) (*Catalogue, error) {
	c := &Catalogue{fixed: host, programs: programs}
	return c, c.Add(nil)
}

// Add makes tools of the host the ones that there are besides those of New. What was added before is replaced.
func (c *Catalogue) Add(added []HostTool) error {
	t := &tools{host: map[string]HostTool{}}
	all := boxtools.Declared()
	for _, h := range slices.Concat(c.fixed, added) {
		if h.Call == nil {
			return fault.New("dispatch.tools", fault.Invalid, "", fmt.Errorf("nothing carries out the tool %q", h.Name))
		}
		h.Executor = tool.Host
		if err := h.declareOutside(); err != nil {
			return err
		}
		t.host[h.Name] = h
		all = append(all, h.Tool)
	}
	agent := []string{Model + " (programs in the box may ask the computer's model; for exec, too)"}
	for _, d := range all {
		switch {
		case d.Name == Model:
			return fault.New("dispatch.tools", fault.Invalid, "", fmt.Errorf("no tool can be called %q, which is a grant", Model))
		case !d.For(tool.Agent) || !grantable(d) || d.Own || len(d.Kinds) > 0:
		case d.Granted: // nobody knows it by its name
			agent = append(agent, d.Name+" ("+harness.Clip(strings.Join(strings.Fields(d.Description), " "), maxTold)+")")
		default:
			agent = append(agent, d.Name)
		}
	}
	directs := slices.DeleteFunc(director.Declared(agent, c.programs), func(d tool.Tool) bool {
		return t.host[d.Name].Call != nil // declared there, for tasks as well
	})
	all = append(append(all, associate.Declared()...), directs...)
	var err error
	if t.Registry, err = tool.NewRegistry(all...); err == nil {
		c.now.Store(t)
	}
	return err
}

// declareOutside refuses a tool whose calls can't be undone and of which the ledger of effects would not know, and adds
// to the schema of one of which it does the argument with which an effect is made once more.
func (h *HostTool) declareOutside() error {
	if h.Has(tool.Irreversible) != (h.Outside != nil) {
		return fault.New("dispatch.tools", fault.Invalid, "docs/effects.md says what it declares.", fmt.Errorf("tool %q: outside: is for what is irreversible, and for all of it", h.Name))
	}
	if h.Asked != (h.Outside != nil && h.Outside.Each != nil && h.Outside.Kind == contract.EffectRequest) {
		return fault.New("dispatch.tools", fault.Invalid, "docs/effects.md says what it declares.", fmt.Errorf("tool %q: asked: is for requests, each of which says what it is, and for all of them", h.Name))
	}
	if h.Outside == nil {
		return nil
	}
	o := *h.Outside // the declaration may be another computer's, too
	var err error
	if h.Schema, o.again, err = effect.Offer(h.Schema); err != nil {
		return fault.New("dispatch.tools", fault.Invalid, "", fmt.Errorf("tool %q: schema: %w", h.Name, err))
	}
	h.Outside = &o
	return nil
}

// maxTold bounds what the Director is told of a tool that was added, in bytes.
const maxTold = 200

// grantable reports whether a task may list a tool at all.
func grantable(t tool.Tool) bool { return !t.Has(tool.Irreversible) || t.Granted || t.Asked }

// OnHost returns the tool of a name, if the host carries it out.
func (c *Catalogue) OnHost(name string) (HostTool, bool) {
	h, ok := c.now.Load().host[name]
	return h, ok
}

// For lists the tools that a caller may call.
func (c *Catalogue) For(caller tool.Caller) []tool.Tool { return c.now.Load().For(caller) }

// End is the name of the caller's tool that ends its loop, or "".
func (c *Catalogue) End(caller tool.Caller) string { return c.now.Load().End(caller) }

// Lookup finds a tool by its name.
func (c *Catalogue) Lookup(name string) (tool.Tool, bool) { return c.now.Load().Lookup(name) }

// Check checks a call's arguments against the tool's schema.
func (c *Catalogue) Check(name string, args json.RawMessage) error {
	return c.now.Load().Check(name, args)
}

// Offered lists the tools that a task's model is told of: those that the task may use, and
// those that end it.
func (c *Catalogue) Offered(task contract.DirectorTask) []tool.Tool {
	return slices.DeleteFunc(c.For(tool.Agent), func(t tool.Tool) bool { return !t.Ends && (!Allowed(task, t) || Permitted(task, t) != nil) })
}

// Allowed reports whether the model of a task may call a tool: the tool must be for agents and fit the task's kind, and
// the task must list it, or the one that it comes with, unless it is about nothing but the task itself, or a part of what
// tasks of the kind do.
func Allowed(task contract.DirectorTask, t tool.Tool) bool {
	if !t.For(tool.Agent) || t.Executor == tool.Loop || !task.Kind.Thinks() || !Fits(task.Kind, t) {
		return false
	}
	return t.Own || len(t.Kinds) > 0 || task.Kind == contract.KindWrite && t.OneFile ||
		slices.Contains(task.Tools, t.Name) || (t.With != "" && slices.Contains(task.Tools, t.With))
}

// Fits reports whether tasks of a kind may have a tool at all. An agent may have any; who only reads may have what reads, a
// researcher the web's tools, too; and a writer what a researcher has, and what changes nothing but one file.
func Fits(k contract.TaskKind, t tool.Tool) bool {
	if len(t.Kinds) > 0 {
		return slices.Contains(t.Kinds, k)
	}
	switch k {
	case contract.KindAgent:
		return true
	case contract.KindInspect:
		return t.ReadOnly()
	case contract.KindResearch:
		return t.ReadOnly() || t.Addressed
	case contract.KindWrite:
		return t.ReadOnly() || t.Addressed || t.OneFile
	}
	return false
}

// WithinDocument refuses a call of a task that writes a document, if it changes another file.
func WithinDocument(task contract.DirectorTask, t tool.Tool, args json.RawMessage) error {
	if task.Kind != contract.KindWrite || !t.OneFile || defence.Off(defence.WriteDocument) {
		return nil
	}
	var in struct{ Path string }
	if err := json.Unmarshal(args, &in); err != nil {
		return fault.New("", fault.Invalid, "", err)
	}
	if in.Path != task.Document && in.Path != "/computer/"+task.Document {
		return fault.New("", fault.Denied, "", fmt.Errorf("this task writes %s and nothing else", task.Document))
	}
	return nil
}

// ToolNames returns the tools that a task of the kind may list.
func (c *Catalogue) ToolNames(k contract.TaskKind) []string {
	var out []string
	for _, t := range c.For(tool.Agent) {
		if !t.Ends && !t.Own && len(t.Kinds) == 0 && grantable(t) && k.Thinks() && Fits(k, t) {
			out = append(out, t.Name)
		}
	}
	return out
}

// Permitted refuses tools by the effects that they declare, whoever listed them. A box
// confines what happens in it, but nothing confines the host, and what can't be undone
// can't be taken back. What a person approved in advance they approved with all that it does, and what they are asked about
// each time is up to them.
func Permitted(task contract.DirectorTask, t tool.Tool) error {
	switch {
	case t.Granted || t.Asked:
		return nil
	case t.Has(tool.Irreversible):
		return fault.New("", fault.Denied, "", fmt.Errorf("what %s does can't be undone; only a person may do it", t.Name))
	case t.Executor != tool.Box && t.Has(tool.Network) && !t.Addressed && task.Egress.Profile == contract.EgressNone:
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
