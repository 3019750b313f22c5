package past

import (
	"errors"
	"io/fs"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
)

// TestWhatWaitsIsReadOfASleeper shows that what is unknown is listed with its run's and task's words, from the state and
// from its file; and that it waits no more once it is resolved.
func TestWhatWaitsIsReadOfASleeper(t *testing.T) {
	c, _ := open(t)
	say := func(d contract.Draft) {
		t.Helper()
		if d.Actor.Kind == "" {
			d.Actor = contract.System()
		}
		if _, err := c.log.Append(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	run, task := contract.NewID(), contract.NewID()
	say(contract.Draft{Type: "computer.created", Data: contract.ComputerCreated{Name: "Studio", Driver: "local"}})
	say(contract.Draft{Actor: contract.Person(""), Type: "prompt.submitted", Run: run, Data: contract.PromptSubmitted{Text: "order a ladder"}})
	ids := []string{contract.DeriveID(task, "a"), contract.DeriveID(task, "b")}
	for _, id := range ids {
		say(contract.Draft{Actor: contract.AssociateOf(task), Type: "effect.intended", Run: run, Task: task, Subject: contract.EffectSubject(id), Data: contract.EffectIntended{Effect: id, Kind: contract.EffectMCP, Target: "shop order", Digest: "d",
			Args: contract.NewBlobRef([32]byte{1}), Call: id, Attempt: 1, Key: "k"}})
		say(contract.Draft{Type: "effect.ended", Run: run, Task: task, Subject: contract.EffectSubject(id), Data: contract.EffectEnded{Effect: id, Outcome: contract.EffectUnknown}})
	}
	say(contract.Draft{Actor: contract.Person(""), Type: "effect.resolved", Run: run, Task: task, Subject: contract.EffectSubject(ids[1]), Data: contract.EffectResolved{Effect: ids[1], Found: contract.FoundDone}})
	if err := c.state.Recover(t.Context(), c.log); err != nil {
		t.Fatal(err)
	}
	check := func(where string, got []view.Waiting, err error) {
		t.Helper()
		if err != nil || len(got) != 1 || got[0].Kind != view.WaitsEffect || got[0].Effect.ID != ids[0] || got[0].Effect.Key != "k" || got[0].Prompt != "order a ladder" || got[0].Over || got[0].Name != "Studio" || got[0].Computer != c.cid {
			t.Errorf("%s: %v %+v", where, err, got)
		}
	}
	got, err := c.Waiting(t.Context())
	check("awake", got, err)
	path := c.state.Path()
	got, err = ReadWaiting(t.Context(), c.cid, "Studio", path)
	check("asleep", got, err)
	if _, err := ReadWaiting(t.Context(), c.cid, "Studio", path+"-none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of none: %v", err)
	}
}

// TestWhatRunsAskWaits: approvals and questions of runs that have not ended are listed with the words of their runs, and not
// among what stays.
func TestWhatRunsAskWaits(t *testing.T) {
	c, _ := open(t)
	say := func(kind string, actor contract.Actor, run, task string, data contract.Payload) {
		t.Helper()
		if _, err := c.log.Append(t.Context(), contract.Draft{Actor: actor, Type: kind, Run: run, Task: task, Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	say("computer.created", contract.System(), "", "", contract.ComputerCreated{Name: "Studio", Driver: "local"})
	over, runs := contract.NewID(), contract.NewID()
	for _, run := range []string{over, runs} {
		say("prompt.submitted", contract.Person(""), run, "", contract.PromptSubmitted{Text: "fetch it"})
		say("run.started", contract.System(), run, "", contract.RunStarted{Document: contract.NewID(), Provider: "p", Model: "m"})
		say("question.asked", contract.DirectorOf(run), run, "", contract.QuestionAsked{Question: contract.Question{ID: "q-" + run, Text: "Which one?"}})
		act := contract.Act{Kind: contract.ApprovalEgress, Run: run, Host: "example.org", Port: 443}
		digest, err := act.Digest()
		if err != nil {
			t.Fatal(err)
		}
		task := contract.NewID()
		say("approval.requested", contract.AssociateOf(task), run, task, contract.ApprovalRequested{Approval: contract.NewID(), Act: act, Digest: digest, Attempt: 1, Deadline: "2100-01-01T00:00:00Z"})
	}
	say("run.moved", contract.System(), over, "", contract.RunMoved{Status: contract.RunCancelled})
	if err := c.state.Recover(t.Context(), c.log); err != nil {
		t.Fatal(err)
	}
	got, err := c.Waiting(t.Context())
	if err != nil || len(got) != 2 || got[0].Kind != view.WaitsApproval || got[0].Approval.Host != "example.org" || got[1].Kind != view.WaitsQuestion || got[1].Question.Text != "Which one?" {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, w := range got {
		if w.Run != runs || w.Prompt != "fetch it" || w.Name != "Studio" || w.Computer != c.cid {
			t.Errorf("%+v", w)
		}
	}
	if got, err := c.Staying(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("stays: %+v, %v", got, err)
	}
}
