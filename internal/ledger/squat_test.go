package ledger_test

import (
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/ledger"
)

// Attack row 15: somebody who uses the id of a future event must not make the real event
// disappear as a duplicate. Ids count per source, and a draft is a repetition only if its
// content is the stored one, too.
func TestTakenIDNeverDropsTheRealEvent(t *testing.T) {
	b := openBus(t, t.TempDir())
	cid := contract.NewCID()
	l := openLog(t, b, ledger.Options{CID: cid})
	task := contract.NewID()
	toCome := contract.DeriveID(task, "finished:1") // anyone who knows the task can reckon it
	squatter := prompt("squatted")
	squatter.ID = toCome
	stored := mustAppend(t, l, squatter)[0]

	// Another source with the same id appends an event of its own, both at once and after
	// the log was opened again and has read its ids from the stream.
	genuine := contract.Draft{ID: toCome, Actor: contract.System(), Type: "computer.woken",
		Data: contract.ComputerWoken{Version: "1", Driver: "local", Isolation: "namespaces"}}
	got := mustAppend(t, l, genuine)[0]
	if got.Sequence != stored.Sequence+1 || got.Source == stored.Source || got.ID != toCome || got.Type != genuine.Type {
		t.Fatalf("the real event is %+v; want one of its own after %d", got, stored.Sequence)
	}

	// The same source and id with other content is refused with an error, in every form of
	// a call, and nothing of the call is stored.
	other := prompt("the real one")
	other.ID = toCome
	otherType := renamed("x", "")
	otherType.ID = toCome
	check := func(when string) {
		t.Helper()
		before := l.Last()
		for name, batch := range map[string][]contract.Draft{
			"alone": {other}, "as another type": {otherType}, "first of a batch": {other, prompt("b")}, "last of a batch": {prompt("a"), other},
		} {
			events, err := l.Append(t.Context(), batch...)
			if !fault.Is(err, fault.Conflict) || events != nil {
				t.Errorf("%s, %s: got %d events, %v; want a conflict", when, name, len(events), err)
			}
		}
		if l.Last() != before {
			t.Errorf("%s: a refused batch was stored: last is %d, was %d", when, l.Last(), before)
		}
	}
	check("while open")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = openLog(t, b, ledger.Options{CID: cid})
	check("after opening again")
	if again := mustAppend(t, l, genuine)[0]; again.Sequence != got.Sequence {
		t.Errorf("the real event repeated is %d; want %d", again.Sequence, got.Sequence)
	}

	// If both are in one call, neither hides the other's conflict.
	id := contract.NewID()
	one, two := prompt("one"), prompt("two")
	one.ID, two.ID = id, id
	if _, err := l.Append(t.Context(), one, two); !fault.Is(err, fault.Conflict) {
		t.Errorf("two contents under one id in one call: %v; want a conflict", err)
	}
	if all := wholeLog(t, l); len(all) != 2 {
		t.Errorf("the log holds %d events; want the squatter's and the real one", len(all))
	}
}
