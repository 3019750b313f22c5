package tool

import (
	"encoding/json"
	"errors"
	"fmt"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/tool/schema"
)

// Registry is a set of tools, each with a name of its own. It does not change
// and is safe for concurrent use.
type Registry struct {
	tools []Tool
	named map[string]entry
}

type entry struct {
	Tool
	schema *schema.Schema
}

// maxTools bounds a registry: each tool stands in every request to a model.
const maxTools = 100

// NewRegistry admits the tools, in their order. A declaration that is not
// complete, and a second one of a name, are refused.
func NewRegistry(tools ...Tool) (*Registry, error) {
	const op = "tool.NewRegistry"
	if len(tools) > maxTools {
		return nil, fault.New(op, fault.Exhausted, "Offer fewer tools.", fmt.Errorf("%d tools are declared; at most %d are taken", len(tools), maxTools))
	}
	r := &Registry{named: make(map[string]entry, len(tools))}
	for _, t := range tools {
		err := t.validate()
		var s *schema.Schema
		if err == nil {
			s, err = compile(t)
		}
		if _, twice := r.named[t.Name]; twice {
			err = errors.New("another tool has this name")
		}
		if err != nil {
			return nil, fault.New(op, fault.Invalid, "Complete the declaration; docs/tools.md says what it has.", fmt.Errorf("tool %q: %w", t.Name, err))
		}
		r.tools = append(r.tools, t)
		r.named[t.Name] = entry{t, s}
	}
	for _, t := range r.tools {
		if err := r.beside(t); err != nil {
			return nil, fault.New(op, fault.Invalid, "Complete the declaration; docs/tools.md says what it has.", fmt.Errorf("tool %q: with: %w", t.Name, err))
		}
	}
	return r, nil
}

// beside refuses a tool that would come with another one and may do more than that.
func (r *Registry) beside(t Tool) error {
	if t.With == "" {
		return nil
	}
	other, ok := r.named[t.With]
	if !ok {
		return fmt.Errorf("there is no tool %q", t.With)
	}
	for _, e := range t.Effects {
		if !other.Has(e) {
			return fmt.Errorf("%s does not have its effect %s", t.With, e)
		}
	}
	return nil
}

// For lists the tools that a caller may call, in the registry's order.
func (r *Registry) For(c Caller) []Tool {
	var out []Tool
	for _, t := range r.tools {
		if t.For(c) {
			out = append(out, t)
		}
	}
	return out
}

// End is the name of the caller's tool that ends its loop, or "".
func (r *Registry) End(c Caller) string {
	for _, t := range r.For(c) {
		if t.Ends {
			return t.Name
		}
	}
	return ""
}

// Lookup finds a tool by its name.
func (r *Registry) Lookup(name string) (Tool, bool) {
	e, ok := r.named[name]
	return e.Tool, ok
}

// Check checks a call's arguments against the tool's schema.
func (r *Registry) Check(name string, args json.RawMessage) error {
	e, ok := r.named[name]
	if !ok {
		return fmt.Errorf("there is no tool %q", name)
	}
	return e.schema.Validate(args)
}
