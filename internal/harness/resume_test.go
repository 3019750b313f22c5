package harness_test

import (
	"context"
	"reflect"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/harness"
)

// TestAResumedLoopTellsWhatWasToBeTold: what a turn gave cause to tell is told by the loop that resumes behind it, too.
func TestAResumedLoopTellsWhatWasToBeTold(t *testing.T) {
	same := use("a", "echo", `{"text":"x"}`)
	var records []contract.TurnRecorded
	var until [][]contract.TurnRecorded
	w := newWire(t, say(contract.Part{Text: "I think."}), say(same), say(same), say(same), say(same), say(use("a", "touch", `{"text":7}`)), say(use("z", "end", `{"text":"x"}`)))
	o := options(w, &bench{})
	o.Record = func(_ context.Context, r harness.Record) error { records = append(records, r.Recorded()); return nil }
	o.Model = asked{o.Model, func() { until = append(until, append([]contract.TurnRecorded(nil), records...)) }}
	if out := run(t, o); out.Reason != harness.Finished {
		t.Fatalf("%+v", out)
	}
	for i, had := range until[1:] {
		second := newWire(t, say(use("z", "end", `{"text":"x"}`)))
		again := options(second, &bench{})
		again.History = harness.History(had)
		run(t, again)
		if got, want := second.reqs[0].Messages, w.reqs[i+1].Messages; !reflect.DeepEqual(got, want) {
			t.Errorf("request %d was\n%s\nand is, resumed,\n%s", i+1, flat(t, w.reqs[i+1]), flat(t, second.reqs[0]))
		}
	}
}

// TestALoopThatRepeatedItselfDoesNotGoOnAfterARestart: what ended a loop ends the one that resumes it.
func TestALoopThatRepeatedItselfDoesNotGoOnAfterARestart(t *testing.T) {
	var records []contract.TurnRecorded
	w := newWire(t, say(use("a", "echo", `{"text":"x"}`)))
	o := options(w, &bench{})
	o.Record = func(_ context.Context, r harness.Record) error { records = append(records, r.Recorded()); return nil }
	if out := run(t, o); out.Reason != harness.Repetition {
		t.Fatalf("%+v", out)
	}
	second := newWire(t, say(use("a", "echo", `{"text":"x"}`)))
	again := options(second, &bench{})
	again.History = harness.History(records)
	if out := run(t, again); out.Reason != harness.Repetition || len(second.reqs) > 0 {
		t.Errorf("%+v after %d requests", out, len(second.reqs))
	}
}

// TestCallsThatWereNotMadeAreNotCounted: a loop that resumes has as many calls left as the one before.
func TestCallsThatWereNotMadeAreNotCounted(t *testing.T) {
	var spent contract.Usage
	byTurn := map[int]contract.Usage{}
	w := newWire(t, say(use("a", "nothing", `{}`), use("b", "echo", `{"text":7}`), use("c", "echo", `{"text":"x"}`)), say(use("z", "end", `{"text":"x"}`)))
	o := options(w, &bench{})
	o.Record = func(_ context.Context, r harness.Record) error { byTurn[r.Index] = r.Usage; return nil }
	out := run(t, o)
	for _, u := range byTurn {
		spent = spent.Add(u)
	}
	if spent.ToolCalls != out.Usage.ToolCalls || spent.ToolCalls != 2 {
		t.Errorf("recorded are %d calls, and the loop counted %d", spent.ToolCalls, out.Usage.ToolCalls)
	}
}
