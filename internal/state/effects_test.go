package state_test

import (
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/state"
)

// TestEffectsAreListed: each by what is known of it now; a second end, a word on what is known and one on nothing are poison, and
// change nothing.
func TestEffectsAreListed(t *testing.T) {
	l, s := newLog(), newStore(t)
	run, task, _ := story(t, l)
	r, k := inRun(run), inTask(task)
	var ids []string
	for i, call := range []string{"a", "b", "c"} {
		id := contract.DeriveID(task, call)
		ids = append(ids, id)
		l.say(t, "effect.intended", &contract.EffectIntended{Effect: id, Kind: contract.EffectMCP, Target: "shop order", What: `{"what":"it"}`, Digest: "d", Args: blobRef("{}"), Call: call, Attempt: 1, Key: "k"}, r, k)
		if i < 2 {
			l.say(t, "effect.ended", &contract.EffectEnded{Effect: id, Outcome: []contract.EffectOutcome{contract.EffectDone, contract.EffectUnknown}[i], Detail: "so"}, r, k)
		}
	}
	project(t, s, l)
	of := func(f state.EffectFilter) (out []string) {
		t.Helper()
		got, err := s.Effects(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range got {
			out = append(out, e.Call)
		}
		return out
	}
	for outcome, want := range map[string]string{"done": "a", "unknown": "b", "open": "c"} {
		if got := of(state.EffectFilter{Run: run, Outcome: outcome}); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %v, want %s", outcome, got, want)
		}
	}
	if got := of(state.EffectFilter{}); len(got) != 3 || got[0] != "c" {
		t.Errorf("all: %v", got)
	}
	if got := of(state.EffectFilter{Run: contract.NewID()}); len(got) != 0 {
		t.Errorf("of another run: %v", got)
	}
	l.say(t, "effect.ended", &contract.EffectEnded{Effect: ids[1], Outcome: contract.EffectDone}, r, k)
	l.say(t, "effect.resolved", &contract.EffectResolved{Effect: ids[0], Found: contract.FoundNotDone}, r, k)
	l.say(t, "effect.resolved", &contract.EffectResolved{Effect: ids[2], Found: contract.FoundNotDone}, r, k)
	l.say(t, "effect.resolved", &contract.EffectResolved{Effect: ids[1], Found: contract.FoundNotDone, Note: "no order"}, r, k)
	l.say(t, "effect.resolved", &contract.EffectResolved{Effect: ids[1], Found: contract.FoundDone}, r, k)
	project(t, s, l)
	bad, err := s.Poison(t.Context(), 0)
	if err != nil || len(bad) != 4 {
		t.Errorf("poison: %v, %d: %+v", err, len(bad), bad)
	}
	got, err := s.Effects(t.Context(), state.EffectFilter{ID: ids[1]})
	if err != nil || len(got) != 1 || got[0].Resolved == nil || got[0].Resolved.Note != "no order" || got[0].Ended.Outcome != contract.EffectUnknown || got[0].Ended.Detail != "so" || got[0].Key != "k" {
		t.Errorf("%v %+v", err, got)
	}
	if failed := of(state.EffectFilter{Outcome: "failed"}); len(failed) != 1 || failed[0] != "b" {
		t.Errorf("what a person found not to have happened is listed as %v", failed)
	}
}
