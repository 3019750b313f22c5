package attempt_test

import (
	"errors"
	"reflect"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/attempt"
)

// payload moves attempt 1 to a state.
func payload(to contract.AttemptState, status contract.ResultStatus) contract.Payload {
	res := contract.AssociateResult{Version: 1, Task: "t", Attempt: 1, Status: status, Summary: "s"}
	switch to {
	case contract.AttemptWorking:
		return &contract.TaskStarted{Attempt: 1, Base: "b"}
	case contract.AttemptRepairing:
		return &contract.RepairRequested{Attempt: 1, Repair: 1, Failed: "f"}
	case contract.AttemptEnded:
		return &contract.TaskFinished{Result: res}
	}
	m := &contract.AttemptMoved{Attempt: 1, State: to}
	switch to {
	case contract.AttemptFinished, contract.AttemptTakingBack, contract.AttemptLeft:
		m.Result = &res
	case contract.AttemptMerged:
		m.Result, m.Merge, m.Try = &res, &contract.AttemptMerge{Commit: "c", Tree: "t"}, 1
	case contract.AttemptVerified:
		m.Verification = &contract.Verification{Status: contract.VerificationPass}
	}
	return m
}

// TestOnlyLegalTransitionsAreMade shows that every pair of states is accepted or refused as the
// table says, and that a refused transition changes nothing.
func TestOnlyLegalTransitionsAreMade(t *testing.T) {
	for _, from := range attempt.States() {
		for _, to := range attempt.States() {
			if to == "" {
				continue
			}
			a := attempt.Attempt{Number: 1, State: from, Last: 3}
			got, err := a.Apply(7, payload(to, contract.ResultOK))
			var illegal *attempt.IllegalError
			switch {
			case attempt.Legal(from, to) && (err != nil || got.State != to || got.Last != 7 || got.Moves != 1):
				t.Errorf("%q to %s: %+v %v", from, to, got, err)
			case !attempt.Legal(from, to) && (!errors.As(err, &illegal) || !reflect.DeepEqual(got, a)):
				t.Errorf("%q to %s was not refused: %+v %v", from, to, got, err)
			}
		}
	}
	a := attempt.Attempt{Number: 2}
	if got, err := a.Apply(1, payload(contract.AttemptBegun, "")); err != nil || !reflect.DeepEqual(got, a) {
		t.Errorf("another attempt's transition counted: %+v %v", got, err)
	}
}

// TestEveryStateLeadsToAnEnd shows that every state but the last has a next step that leads on,
// that every state can be reached, and that every one leads to the end.
func TestEveryStateLeadsToAnEnd(t *testing.T) {
	reach := map[contract.AttemptState]bool{"": true}
	leads := map[contract.AttemptState]bool{contract.AttemptEnded: true}
	for range attempt.States() {
		for _, e := range attempt.Edges() {
			reach[e.To] = reach[e.To] || reach[e.From]
			leads[e.From] = leads[e.From] || leads[e.To]
		}
	}
	for _, s := range attempt.States() {
		if !reach[s] || !leads[s] {
			t.Errorf("%q: reached %v, leads to the end %v", s, reach[s], leads[s])
		}
		a := attempt.Attempt{Number: 1, State: s, Result: &contract.AssociateResult{Status: contract.ResultOK}, Merge: &contract.AttemptMerge{}}
		if step := a.Next(contract.KindAgent); (step == attempt.NothingTo) != a.Ended() {
			t.Errorf("%q: %s", s, step)
		}
	}
}

func TestWhatIsNext(t *testing.T) {
	ok, failed := &contract.AssociateResult{Status: contract.ResultOK}, &contract.AssociateResult{Status: contract.ResultFailed}
	merge := &contract.AttemptMerge{Commit: "c"}
	for _, c := range []struct {
		state  contract.AttemptState
		kind   contract.TaskKind
		result *contract.AssociateResult
		merge  *contract.AttemptMerge
		want   attempt.Step
	}{
		{contract.AttemptFinished, contract.KindAgent, ok, nil, attempt.Merge},
		{contract.AttemptFinished, contract.KindAgent, failed, nil, attempt.GiveUp},
		{contract.AttemptFinished, contract.KindExec, failed, nil, attempt.GiveUp},
		{contract.AttemptFinished, contract.KindInspect, ok, nil, attempt.Conclude},
		{contract.AttemptFinished, contract.KindInspect, failed, nil, attempt.GiveUp},
		{contract.AttemptFinished, contract.KindGit, ok, nil, attempt.Conclude},
		{contract.AttemptFinished, contract.KindGit, failed, nil, attempt.Conclude},
		{contract.AttemptMerged, contract.KindAgent, ok, merge, attempt.Check},
		{contract.AttemptMerged, contract.KindAgent, ok, nil, attempt.GiveUp},
		{contract.AttemptTakingBack, contract.KindAgent, ok, merge, attempt.TakeBack},
		{contract.AttemptLeft, contract.KindAgent, failed, merge, attempt.Conclude},
	} {
		a := attempt.Attempt{Number: 1, State: c.state, Result: c.result, Merge: c.merge}
		if got := a.Next(c.kind); got != c.want {
			t.Errorf("%s, %s, %v: %s; want %s", c.state, c.kind, c.result.Status, got, c.want)
		}
	}
}
