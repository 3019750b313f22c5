package e2e_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/test/choirtest"
	"choir.dev/choiros/test/modelserver"
)

// badModel is one way in which a model misbehaves, with what the user has to see.
type badModel struct {
	name   string
	turns  []modelserver.Turn // matched by the case's own prompt and goal
	status contract.RunStatus
	says   []string // parts of the summary
	least  int      // the least number of metered calls
	most   int
	apart  string // what keeps it from being tried beside the others
}

func fault(kind string) modelserver.Turn {
	return modelserver.Turn{Fault: &modelserver.Fault{Kind: kind}}
}

func again(turn modelserver.Turn) modelserver.Turn {
	turn.Repeat = true
	return turn
}

func raw(name, args string) modelserver.Turn {
	return modelserver.Turn{Calls: []modelserver.Call{{Name: name, Raw: args}}}
}

// director and worker return the turns of the two loops.
func director(turns ...modelserver.Turn) []modelserver.Turn { return turnsOf("director", "", turns...) }
func worker(turns ...modelserver.Turn) []modelserver.Turn   { return turnsOf("associate", "", turns...) }

func join(lists ...[]modelserver.Turn) []modelserver.Turn {
	var out []modelserver.Turn
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

// badModels are tried in both formats. A case's number is in its prompt and, as {{goal}}, in its
// task.
func badModels() []badModel {
	fine := report("done", "It went well in the end.")
	const well = "It went well in the end."
	task := func(budget object) modelserver.Turn {
		return delegate(object{"kind": "agent", "goal": "{{goal}}", "tools": []any{"bash", "ls"}, "verify": object{"profile": "none"}, "budget": budget})
	}
	admits := report("failed", "The task failed.")
	return []badModel{
		{name: "garbage once", turns: director(fault("garbage"), fine), status: "done", says: []string{well}, least: 1, most: 3},
		{name: "garbage for ever", apart: "failing", turns: director(again(fault("garbage"))), status: "failed", says: []string{"no answer"}, least: 1, most: 3},
		{name: "cut once", turns: director(fault("cut"), fine), status: "done", says: []string{well}, least: 1, most: 3},
		{name: "an unknown tool", turns: director(raw("no_such_tool", `{}`), fine), status: "done", says: []string{well}, least: 2, most: 2},
		{name: "an unknown tool for ever", turns: director(again(raw("no_such_tool", `{}`))), status: "failed", says: []string{"no usable tool call in 3 turns"}, least: 3, most: 3},
		{name: "arguments of the wrong type", turns: director(raw("report", `{"status":5,"summary":["x"]}`), raw("delegate", `{"tasks":[{"kind":"magic","goal":7,"extra":1}]}`), fine),
			status: "done", says: []string{well}, least: 3, most: 3},
		{name: "arguments that are no JSON", turns: director(raw("report", `{"status":"done","summary":`), fine), status: "done", says: []string{well}, least: 2, most: 2},
		{name: "ten megabytes of text", turns: director(fault("big_text"), fine), status: "done", says: []string{well}, least: 2, most: 2},
		{name: "text without end", turns: director(fault("endless"), fine), status: "done", says: []string{well}, least: 2, most: 2},
		{name: "a thousand calls once", turns: director(fault("many_calls"), fine), status: "done", says: []string{well}, least: 2, most: 2},
		{name: "a thousand calls for ever", turns: director(again(fault("many_calls"))), status: "failed", says: []string{"the same call of ls 32 times"}, least: 2, most: 2},
		{name: "a tool's name of a million letters", turns: director(fault("long_name"), fine), status: "done", says: []string{well}, least: 2, most: 2},
		{name: "nothing but talk", turns: director(again(modelserver.Turn{Text: "Let me think about that."})), status: "failed",
			says: []string{"no usable tool call", "Let me think about that."}, least: 3, most: 3},
		{name: "a refusal", turns: director(modelserver.Turn{Text: "I would rather not.", Stop: "refusal"}), status: "failed", says: []string{"declined"}, least: 1, most: 1},
		{name: "429, then an answer", turns: director(modelserver.Turn{Fault: &modelserver.Fault{Kind: "status", Status: 429, RetryAfter: "1"}}, fine),
			status: "done", says: []string{well}, least: 1, most: 1},
		{name: "500 for ever", apart: "failing", turns: director(again(modelserver.Turn{Text: "out of order", Fault: &modelserver.Fault{Kind: "status", Status: 500}})),
			status: "failed", says: []string{"no answer", "out of order"}, least: 1, most: 1},
		{name: "401", turns: director(modelserver.Turn{Text: "who are you", Fault: &modelserver.Fault{Kind: "status", Status: 401}}),
			status: "failed", says: []string{"no answer"}, least: 1, most: 1},
		{name: "no answer to a task", apart: "hanging", turns: join(director(task(object{"wall_s": 2}), admits), worker(again(fault("hang")))),
			status: "failed", says: []string{"The task failed."}, least: 3, most: 4},
		{name: "a stream that stalls", apart: "hanging", turns: join(director(task(object{"wall_s": 2}), admits), worker(again(fault("stall")))),
			status: "failed", says: []string{"The task failed."}, least: 3, most: 4},
		{name: "a task that loops", turns: join(director(task(object{}), admits), worker(again(modelserver.Turn{Calls: call("ls", object{"path": "workspace"})}))),
			status: "failed", says: []string{"The task failed."}, least: 8, most: 8},
		{name: "a lie about a task", turns: join(director(task(object{}), report("done", "All is done.")), worker(again(modelserver.Turn{Text: "…"}))),
			status: "failed", says: []string{"called this done; it is not"}, least: 5, most: 5},
		{name: "more tool calls than granted", turns: join(director(task(object{"tool_calls": 2}), admits), worker(bash("echo 1"), bash("echo 2"), bash("echo 3"), finish("ok", "never"))),
			status: "failed", says: []string{"The task failed."}, least: 4, most: 5},
		{name: "more tokens than granted", turns: director(modelserver.Turn{Text: "expensive", Usage: &modelserver.Usage{In: 100, Out: 30_000_000, Exact: true}}, fine),
			status: "failed", says: []string{"tokens is used up"}, least: 1, most: 1},
	}
}

func TestBadModels(t *testing.T) {
	t.Parallel()
	for _, wire := range []modelserver.Wire{modelserver.Anthropic, modelserver.OpenAI} {
		t.Run(string(wire), func(t *testing.T) {
			t.Parallel()
			// A model that keeps failing is waited for by all who ask it, in which time a task's own stands still. So those
			// that never answer, and the tasks that are to use up their time, have a computer of their own.
			by := map[string][]badModel{}
			for _, c := range badModels() {
				by[c.apart] = append(by[c.apart], c)
			}
			for apart, cases := range by {
				t.Run(cmp.Or(apart, "answering"), func(t *testing.T) { tryBadModels(t, wire, cases) })
			}
		})
	}
}

func tryBadModels(t *testing.T, wire modelserver.Wire, cases []badModel) {
	t.Parallel()
	var script modelserver.Script
	for i, c := range cases {
		mark := fmt.Sprintf("case %02d:", i)
		for _, turn := range c.turns {
			turn.Match, turn.Calls = mark, slices.Clone(turn.Calls) // others share them, who try at the same time
			for k := range turn.Calls {
				turn.Calls[k].Args = []byte(strings.ReplaceAll(string(turn.Calls[k].Args), "{{goal}}", mark+" "+c.name))
			}
			script.Turns = append(script.Turns, turn)
		}
	}
	script.Turns = append(script.Turns, turnsOf("director", "afterwards", again(report("done", "Here I am.")))...)
	// Ten megabytes cost more than a run may spend by default; see below. All cases
	// together reserve more than the default for a day, which budget_test.go tests.
	in, s := startModel(t, wire, script, "CHOIR_BUDGET_COST_USD=50", "CHOIR_BUDGET_DAY_COST_USD=0", "CHOIR_MODELS_PATIENCE_S=20")
	got := make([]prompted, len(cases))
	errs := make([]error, len(cases))
	var wg sync.WaitGroup
	for i, c := range cases {
		wg.Add(1)
		go func() {
			defer wg.Done()
			got[i], errs[i] = tryPrompt(in, fmt.Sprintf("case %02d: %s", i, c.name))
		}()
	}
	wg.Wait()
	metered := map[string][]contract.UsageMetered{}
	for _, e := range eventsOf(t, in, "usage.metered") {
		metered[e.Run] = append(metered[e.Run], data[contract.UsageMetered](t, e))
	}
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if errs[i] != nil {
				t.Fatal(errs[i])
			}
			c.check(t, in, s, i, got[i], metered[got[i].Run])
		})
	}
	if p := prompt(t, in, "and afterwards"); p.Status != "done" || p.code != 0 {
		t.Errorf("afterwards: %+v", p)
	}
	usable(t, in)
	boxesGone(t, in)
}

func (c badModel) check(t *testing.T, in *choirtest.Instance, s *modelserver.Server, i int, p prompted, metered []contract.UsageMetered) {
	t.Helper()
	if p.Status != string(c.status) || (p.code == 0) != (c.status == contract.RunDone) || p.code > 1 {
		t.Errorf("status %s, exit code %d, %q; want %s", p.Status, p.code, clipped(p.Summary), c.status)
	}
	for _, part := range c.says {
		if !strings.Contains(p.Summary, part) {
			t.Errorf("the summary is %q; want it to say %q", clipped(p.Summary), part)
		}
	}
	r := runOf(t, in, p.Run)
	if c.status == contract.RunFailed && r.Error == "" {
		t.Error("the run has no error")
	}
	if n := len(metered); n < c.least || n > c.most {
		t.Errorf("%d calls were metered; want from %d to %d", n, c.least, c.most)
	}
	requests, retries := 0, 0
	for _, q := range s.Requests() {
		if strings.Contains(q.Present(), fmt.Sprintf("case %02d:", i)) {
			requests++
		}
		if q.Turn < 0 {
			t.Errorf("the script had nothing for a request of the %s", q.Role)
		}
	}
	seen := map[string]bool{}
	for _, m := range metered {
		retries += m.Retries
		if seen[m.Call] {
			t.Errorf("call %s was metered twice", m.Call)
		}
		seen[m.Call] = true
	}
	if requests != len(metered)+retries {
		t.Errorf("the service had %d requests; metered were %d calls with %d retries", requests, len(metered), retries)
	}
}

func clipped(s string) string { return s[:min(len(s), 600)] }

// boxesGone checks that a run left no box. A command's box is kept for a while for its user's next
// command, and one box of each of our loops waits for the next run's.
func boxesGone(t *testing.T, in *choirtest.Instance) {
	t.Helper()
	open := map[string]contract.BoxKind{}
	events := eventsOf(t, in, "box.opened", "box.closed", "turn.recorded")
	for _, e := range events {
		if e.Type == "turn.recorded" {
			continue
		}
		if e.Type == "box.closed" {
			delete(open, data[contract.BoxClosed](t, e).Box)
			continue
		}
		b := data[contract.BoxOpened](t, e)
		open[b.Box] = b.Kind
	}
	var of []string // no person, no desktop and no keeper
	for box, kind := range open {
		if kind != contract.BoxKeeper && kind != contract.BoxDesktop && kind != contract.BoxTerminal {
			of = append(of, box)
		}
	}
	left, err := choirtest.NotWaiting(events, of)
	if err != nil {
		t.Fatal(err)
	}
	for _, box := range left {
		t.Errorf("the %s box %s is still open", open[box], box)
	}
}

// TestAModelThatNeverAnswersTheDirector shows that such a run ends when its time is used up.
func TestAModelThatNeverAnswersTheDirector(t *testing.T) {
	t.Parallel()
	in, _ := startModel(t, modelserver.Anthropic, modelserver.Script{Turns: []modelserver.Turn{again(fault("hang"))}}, "CHOIR_BUDGET_WALL_S=3")
	p := prompt(t, in, "are you there?")
	if p.Status != "failed" || p.code != 1 || !strings.Contains(p.Summary, "budget of 3 seconds") {
		t.Errorf("%+v", p)
	}
	usable(t, in)
}

// TestTextWithoutEndEndsAtTheBudget shows that what a service sent counts against the budget
// although it was cut off.
func TestTextWithoutEndEndsAtTheBudget(t *testing.T) {
	t.Parallel()
	in, s := startModel(t, modelserver.OpenAI, modelserver.Script{Turns: []modelserver.Turn{again(fault("endless"))}}, "CHOIR_BUDGET_COST_USD=0.5")
	p := prompt(t, in, "go on and on")
	if p.Status != "failed" || p.code != 1 || !strings.Contains(p.Summary, "budget of 0.5 USD is used up") {
		t.Errorf("%s, %d: %s", p.Status, p.code, clipped(p.Summary))
	}
	if n := len(s.Requests()); n != 1 {
		t.Errorf("the service was asked %d times", n)
	}
	usable(t, in)
}

// TestTurnsEndAtTheBudget uses a model that works and never finishes.
func TestTurnsEndAtTheBudget(t *testing.T) {
	t.Parallel()
	var turns []modelserver.Turn
	for i := range 8 {
		turns = append(turns, director(modelserver.Turn{Calls: call("revise_plan", object{"objective": fmt.Sprintf("plan %d", i), "plan": []any{}})})...)
	}
	in, s := startModel(t, modelserver.Anthropic, modelserver.Script{Turns: turns}, "CHOIR_BUDGET_TURNS=4")
	p := prompt(t, in, "never mind")
	if p.Status != "failed" || p.code != 1 || !strings.Contains(p.Summary, "budget of 4 model turns is used up") {
		t.Errorf("%s, %d: %s", p.Status, p.code, clipped(p.Summary))
	}
	if n := len(s.Requests()); n != 4 {
		t.Errorf("the model was asked %d times", n)
	}
	usable(t, in)
}
