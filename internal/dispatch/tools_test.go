package dispatch_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/dispatch/catalogue"
	"choir.dev/choiros/internal/tool"
)

// weather is a tool whose name no other code knows.
func weather() tool.Tool {
	return tool.Tool{Name: "weather", Description: "Say how the weather is in a town.",
		Schema:  tool.Object(`"town":{"type":"string","minLength":1,"maxLength":100}`, "town"),
		Effects: []tool.Effect{tool.None}, Callers: []tool.Caller{tool.Agent},
		Limits: tool.Limits{In: 1 << 10, Out: 256, Time: time.Minute}}
}

// has declares a tool of the host that answers with text.
func (h *house) has(t tool.Tool, text string) *atomic.Int32 {
	calls := new(atomic.Int32)
	h.tune = func(o *dispatch.Options) {
		declared := catalogue.HostTool{Tool: t, Call: func(context.Context, catalogue.HostCall) (tool.Result, error) {
			calls.Add(1)
			return tool.Result{OK: true, Output: text}, nil
		}}
		if t.Has(tool.Irreversible) {
			declared.Outside = &catalogue.Outside{Kind: contract.EffectMCP, Target: "weather"}
		}
		o.Tools = append(o.Tools, declared)
	}
	h.sleep()
	h.wake()
	return calls
}

// spec returns what the model of a role was told of a tool, or nil if it was told nothing.
func (h *house) spec(end, name string) *contract.ToolSpec {
	h.model.mu.Lock()
	defer h.model.mu.Unlock()
	for _, req := range h.model.seen {
		if slices.ContainsFunc(req.Tools, func(s contract.ToolSpec) bool { return s.Name == end }) {
			for _, s := range req.Tools {
				if s.Name == name {
					return &s
				}
			}
		}
	}
	return nil
}

// TestANewToolIsOneDeclaration shows that a new tool takes one declaration: the Director learns of
// it, a task can list it, the task's model is told of it, and calls are checked, carried out,
// bounded and recorded.
func TestANewToolIsOneDeclaration(t *testing.T) {
	h := newHouse(t)
	calls := h.has(weather(), strings.Repeat("rain ", 200))
	h.model.director = plan(m{"kind": "inspect", "goal": "Look out", "tools": []string{"weather"}})
	h.model.associate = steps(use("c0", "weather", m{"city": "Oslo"}), use("c1", "weather", m{"town": strings.Repeat("o", 2000)}), use("c2", "weather", m{"town": "Oslo"}))
	rep := h.report(h.submit("how is the weather?"))
	if rep.Status != contract.RunDone {
		t.Fatalf("%+v\n%s", rep, h.story())
	}
	h.quiet()
	if n := calls.Load(); n != 1 {
		t.Errorf("%d calls; those with wrong arguments are none", n)
	}
	if d := h.spec("report", "delegate"); d == nil || !strings.Contains(string(d.Schema), " weather; for agent, inspect") {
		t.Errorf("the Director is not told: %+v", d)
	}
	if s := h.spec("finish", "weather"); s == nil || s.Description != weather().Description || string(s.Schema) != string(weather().Schema) {
		t.Errorf("the Associate is told %+v", s)
	}
	if s := h.spec("finish", "read"); s != nil {
		t.Errorf("the Associate is told of what its task does not list: %+v", s)
	}
	called, returned := h.events("tool.called"), h.events("tool.returned")
	if len(called) != 1 || !called[0].(*contract.ToolCalled).ReadOnly || len(returned) != 1 {
		t.Fatalf("%d calls, %d returns\n%s", len(called), len(returned), h.story())
	}
	if out := returned[0].(*contract.ToolReturned).Output; len(out) > 256 || !strings.Contains(out, "left out") {
		t.Errorf("%d bytes: %q", len(out), out)
	}
}

// TestEffectsDecideWhatATaskMayDo shows that what a task may do follows from the effects that its
// tools declare and not from their names.
func TestEffectsDecideWhatATaskMayDo(t *testing.T) {
	wants := func(t *testing.T, kind string, effects []tool.Effect, egress m) (*house, *atomic.Int32, string) {
		t.Helper()
		h := newHouse(t)
		w := weather()
		w.Effects = effects
		calls := h.has(w, "rain")
		var said string
		task := m{"kind": kind, "goal": "Look out", "tools": []string{"weather"}}
		if egress != nil {
			task["egress"] = egress
		}
		h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
			if n == 0 {
				return parts(use("d0", "delegate", m{"tasks": []m{task}}))
			}
			for _, msg := range req.Messages {
				for _, p := range msg.Parts {
					if p.Return != nil {
						said = p.Return.Content
					}
				}
			}
			return parts(use("d1", "report", m{"status": "done", "summary": "Asked."}))
		}
		h.model.associate = steps(use("c0", "weather", m{"town": "Oslo"}))
		h.report(h.submit("how is the weather?"))
		h.quiet()
		return h, calls, said
	}
	for name, c := range map[string]struct {
		kind    string
		effects []tool.Effect
		egress  m
		refused string // empty if the call is carried out
	}{
		"what writes, for an agent":              {"agent", []tool.Effect{tool.Writes}, nil, ""},
		"what writes, to inspect":                {"inspect", []tool.Effect{tool.Writes}, nil, "a task of kind inspect only reads"},
		"the network, without a grant":           {"agent", []tool.Effect{tool.Network}, nil, "weather reaches the network, and the task was granted none"},
		"the network, with a grant":              {"agent", []tool.Effect{tool.Network}, m{"profile": "default"}, ""},
		"what can't be undone":                   {"agent", []tool.Effect{tool.Irreversible}, nil, "weather does can't be undone"},
		"what can't be undone, with the network": {"agent", []tool.Effect{tool.Network, tool.Irreversible}, m{"profile": "default"}, "weather does can't be undone"},
	} {
		t.Run(name, func(t *testing.T) {
			h, calls, said := wants(t, c.kind, c.effects, c.egress)
			if (calls.Load() == 1) != (c.refused == "") || !strings.Contains(said, c.refused) {
				t.Errorf("%d calls, the Director reads %q, want %q\n%s", calls.Load(), said, c.refused, h.story())
			}
		})
	}
}

func TestAComputerWithABadDeclarationDoesNotWake(t *testing.T) {
	h := newHouse(t)
	h.sleep()
	for want, bad := range map[string]catalogue.HostTool{
		"nothing carries out":                  {Tool: weather()},
		"another tool has this name":           {Tool: func() tool.Tool { w := weather(); w.Name = "bash"; return w }(), Call: func(context.Context, catalogue.HostCall) (tool.Result, error) { return tool.Result{}, nil }},
		"outside: is for what is irreversible": {Tool: func() tool.Tool { w := weather(); w.Effects = []tool.Effect{tool.Irreversible}; return w }(), Call: func(context.Context, catalogue.HostCall) (tool.Result, error) { return tool.Result{}, nil }},
	} {
		o := h.options()
		o.Tools = []catalogue.HostTool{bad}
		if _, err := dispatch.New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
