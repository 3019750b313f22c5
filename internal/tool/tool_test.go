package tool_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/tool"
)

// whole returns a declaration with everything that one needs.
func whole() tool.Tool {
	return tool.Tool{Name: "look", Description: "Look at something.", Schema: tool.Object(`"at":{"type":"string","maxLength":9}`, "at"),
		Executor: tool.Host, Effects: []tool.Effect{tool.Reads}, Callers: []tool.Caller{tool.Agent},
		Limits: tool.Limits{In: 100, Out: 200, Time: time.Minute}}
}

func TestARegistryRefusesWhatIsNotDeclared(t *testing.T) {
	if _, err := tool.NewRegistry(whole()); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*tool.Tool){
		"name":                         func(t *tool.Tool) { t.Name = "Look" },
		"description":                  func(t *tool.Tool) { t.Description = "" },
		"schema: is missing":           func(t *tool.Tool) { t.Schema = nil },
		"schema: json: unknown field":  func(t *tool.Tool) { t.Schema = json.RawMessage(`{"type":"object","pattern":"x"}`) },
		"schema: is of type string":    func(t *tool.Tool) { t.Schema = json.RawMessage(`{"type":"string"}`) },
		"executor":                     func(t *tool.Tool) { t.Executor = "" },
		"executor \"mcp\"":             func(t *tool.Tool) { t.Executor = "mcp" },
		"effects: are missing":         func(t *tool.Tool) { t.Effects = nil },
		"effects: none stands alone":   func(t *tool.Tool) { t.Effects = []tool.Effect{tool.None, tool.Writes} },
		"effects: \"deletes\" is none": func(t *tool.Tool) { t.Effects = []tool.Effect{"deletes"} },
		"effects: \"reads\" stands":    func(t *tool.Tool) { t.Effects = []tool.Effect{tool.Reads, tool.Reads} },
		"callers: are missing":         func(t *tool.Tool) { t.Callers = nil },
		"limits.in":                    func(t *tool.Tool) { t.Limits.In = 0 },
		"limits.in: is 1073741824":     func(t *tool.Tool) { t.Limits.In = 1 << 30 },
		"limits.out":                   func(t *tool.Tool) { t.Limits.Out = 0 },
		"limits.time":                  func(t *tool.Tool) { t.Limits.Time = 0 },
		"limits.time: is 1000h":        func(t *tool.Tool) { t.Limits.Time = 1000 * time.Hour },
	} {
		bad := whole()
		change(&bad)
		if _, err := tool.NewRegistry(bad); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	beside := whole()
	beside.Name, beside.With = "more", "look"
	if _, err := tool.NewRegistry(beside, whole()); err != nil {
		t.Error(err)
	}
	if _, err := tool.NewRegistry(beside); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), `with: there is no tool "look"`) {
		t.Errorf("beside what is not there: %v", err)
	}
	beside.Effects = []tool.Effect{tool.Reads, tool.Writes}
	if _, err := tool.NewRegistry(beside, whole()); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "look does not have its effect writes") {
		t.Errorf("more than what it is beside: %v", err)
	}
	other := whole()
	other.Description = "Another one."
	if _, err := tool.NewRegistry(whole(), other); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), `tool "look": another tool has this name`) {
		t.Errorf("two of one name: %v", err)
	}
}

func TestARegistryFindsByNameAndByCaller(t *testing.T) {
	end := whole()
	end.Name, end.Ends, end.Effects = "stop", true, []tool.Effect{tool.None}
	step := whole()
	step.Name, step.Callers, step.Effects = "step", []tool.Caller{tool.Step}, []tool.Effect{tool.Network}
	r, err := tool.NewRegistry(whole(), step, end)
	if err != nil {
		t.Fatal(err)
	}
	if all := r.For(tool.Agent); len(all) != 2 || all[0].Name != "look" || r.End(tool.Agent) != "stop" || r.End(tool.Step) != "" {
		t.Errorf("%+v, ends with %q", all, r.End(tool.Agent))
	}
	if got, ok := r.Lookup("step"); !ok || got.ReadOnly() || !got.Has(tool.Network) {
		t.Errorf("%+v %v", got, ok)
	}
	if err := r.Check("look", json.RawMessage(`{"at":"here"}`)); err != nil {
		t.Error(err)
	}
	if err := r.Check("look", json.RawMessage(`{}`)); err == nil || !strings.Contains(err.Error(), "at: is required") {
		t.Error(err)
	}
	if _, ok := r.Lookup("other"); ok || r.Check("other", json.RawMessage(`{}`)) == nil {
		t.Error("found what nobody declared")
	}
}

func TestACallStaysWithinItsLimits(t *testing.T) {
	look := whole()
	gives := func(res tool.Result) func(context.Context) (tool.Result, error) {
		return func(context.Context) (tool.Result, error) { return res, nil }
	}
	if res, err := look.Do(t.Context(), json.RawMessage(strings.Repeat(" ", 101)), func(context.Context) (tool.Result, error) {
		t.Error("it was called")
		return tool.Result{}, nil
	}); err != nil || res.OK || !strings.Contains(res.Output, "101 bytes; look takes at most 100") {
		t.Errorf("%+v %v", res, err)
	}
	if res, err := look.Do(t.Context(), nil, gives(tool.Result{OK: true, Output: strings.Repeat("é", 1000)})); err != nil || !res.OK || !res.Truncated || len(res.Output) > 200 || !strings.Contains(res.Output, "left out") {
		t.Errorf("%+v %v", res, err)
	}
	if res, err := look.Do(t.Context(), nil, gives(tool.Result{OK: true, Output: "a\xffb"})); err != nil || res.Output != "a\uFFFDb" || res.Truncated {
		t.Errorf("%+v %v", res, err)
	}
	if _, err := look.Do(t.Context(), nil, gives(tool.Result{OK: true, Data: json.RawMessage(`"` + strings.Repeat("x", 200) + `"`)})); !fault.Is(err, fault.Exhausted) {
		t.Errorf("too much data: %v", err)
	}
	look.Limits.Time = time.Millisecond
	waits := func(ctx context.Context) (tool.Result, error) {
		<-ctx.Done()
		return tool.Result{OK: true}, ctx.Err()
	}
	if res, err := look.Do(t.Context(), nil, waits); !fault.Is(err, fault.Timeout) || res.OK {
		t.Errorf("%+v %v", res, err)
	}
	if got := look.Within(time.Second).Limits.Time; got != time.Second+time.Millisecond {
		t.Errorf("%s", got)
	}
	look.Limits.Time = tool.Untimed
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := look.Do(ctx, nil, waits); err == nil || fault.Is(err, fault.Timeout) {
		t.Errorf("cancelled: %v", err)
	}
	if look.Within(time.Second).Limits.Time != tool.Untimed {
		t.Error("what has no time got one")
	}
}
