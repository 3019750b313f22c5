package state_test

import (
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/state"
)

// cheese is a citation.
var cheese = contract.Citation{Label: "c0123456789", Source: contract.DeriveID("x", "source"), Address: "https://cheese.example/100%_a", Title: "On cheese", Claim: "Cheese is milk.",
	Excerpt: "Cheese is made of milk.", Line: 3, Support: contract.SupportUnknown, Reason: "nobody judged it"}

// TestTheLibrary: a source is added once, however often it is; a citation keeps its first verdict, which may come after
// it was unknown; both are found; and a
// citation of no source is poison.
func TestTheLibrary(t *testing.T) {
	l, s := newLog(), newStore(t)
	run, task := contract.DeriveID("r", "run"), contract.DeriveID("r", "task:0")
	source := func(address string) *contract.SourceAdded {
		return &contract.SourceAdded{Address: address, Title: "On cheese", Text: contract.NewBlobRef([32]byte{1}), Bytes: 7, Read: "2026-01-02T03:04:05Z"}
	}
	other := contract.DeriveID("y", "source")
	judged := cheese
	judged.Support, judged.Reason, judged.Model = contract.SupportYes, "It says so.", "script/judge"
	denied := judged
	denied.Support = contract.SupportNo
	for _, e := range []struct {
		subject string
		data    contract.Payload
	}{{cheese.Source, source(cheese.Address)}, {task, &contract.CitationRecorded{Citation: cheese}}, {cheese.Source, source(cheese.Address)}, {other, source("workspace/milk.md")}, {task, &contract.CitationRecorded{Citation: judged}},
		{task, &contract.CitationRecorded{Citation: cheese}}, {task, &contract.CitationRecorded{Citation: denied}}} {
		kind := "source.added"
		if _, ok := e.data.(*contract.CitationRecorded); ok {
			kind = "citation.recorded"
		}
		l.say(t, kind, e.data, inRun(run), inTask(task), about(e.subject))
	}
	project(t, s, l)
	ctx := t.Context()
	all, err := s.Sources(ctx, state.SourceFilter{})
	if err != nil || len(all) != 2 || all[0].Address != "workspace/milk.md" || all[0].Cited != 0 || all[1].ID != cheese.Source || all[1].Cited != 1 || all[1].Seq != 1 || all[1].Run != run {
		t.Fatalf("%+v %v", all, err)
	}
	for words, want := range map[string]int{"CHEESE milk.md": 1, "100%_a": 1, "100%": 1, "1000": 0, "on cheese": 2, "_": 1, "%%": 0} {
		if got, err := s.Sources(ctx, state.SourceFilter{Words: words}); err != nil || len(got) != want {
			t.Errorf("%q finds %d, want %d: %v", words, len(got), want, err)
		}
	}
	got, err := s.CitationsOf(ctx, cheese.Source)
	if err != nil || len(got) != 1 || got[0].Citation != judged {
		t.Errorf("%+v %v", got, err)
	}
	if found, err := s.Cited(ctx, []string{"c9", cheese.Label}); err != nil || len(found) != 1 || found[0].Citation != judged {
		t.Errorf("%+v %v", found, err)
	}
}
