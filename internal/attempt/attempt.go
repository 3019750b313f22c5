package attempt

import (
	"fmt"
	"slices"

	"choir.dev/choiros/contract"
)

// next holds every legal transition. "" is an attempt of which nothing is in
// the log.
var next = map[contract.AttemptState][]contract.AttemptState{
	"":                         {contract.AttemptBegun, contract.AttemptEnded},
	contract.AttemptBegun:      {contract.AttemptWorking, contract.AttemptTakingBack},
	contract.AttemptWorking:    {contract.AttemptWorking, contract.AttemptFinished, contract.AttemptTakingBack},
	contract.AttemptFinished:   {contract.AttemptMerged, contract.AttemptTakingBack, contract.AttemptEnded},
	contract.AttemptMerged:     {contract.AttemptVerifying, contract.AttemptTakingBack},
	contract.AttemptVerifying:  {contract.AttemptVerified, contract.AttemptTakingBack},
	contract.AttemptVerified:   {contract.AttemptPublishing, contract.AttemptTakingBack},
	contract.AttemptPublishing: {contract.AttemptMerged, contract.AttemptTakingBack, contract.AttemptLeft, contract.AttemptEnded},
	contract.AttemptTakingBack: {contract.AttemptEnded, contract.AttemptLeft},
	contract.AttemptLeft:       {contract.AttemptEnded},
	contract.AttemptEnded:      nil,
}

// States are all states an attempt can be in, "" included.
func States() []contract.AttemptState {
	var out []contract.AttemptState
	for s := range next {
		out = append(out, s)
	}
	slices.Sort(out)
	return out
}

// Legal says whether an attempt may go from one state to another.
func Legal(from, to contract.AttemptState) bool { return slices.Contains(next[from], to) }

// Edge is a legal transition.
type Edge struct{ From, To contract.AttemptState }

// Edges are all legal transitions, sorted.
func Edges() []Edge {
	var out []Edge
	for from, list := range next {
		for _, to := range list {
			out = append(out, Edge{from, to})
		}
	}
	slices.SortFunc(out, func(a, b Edge) int {
		return slices.Compare([]contract.AttemptState{a.From, a.To}, []contract.AttemptState{b.From, b.To})
	})
	return out
}

// Subject is what an attempt's transitions are about: their events expect one
// another under it.
func Subject(task string, number int) string { return fmt.Sprintf("task/%s/%d", task, number) }

// Attempt is one attempt as its events tell it. The zero value with a Number
// has not begun.
type Attempt struct {
	Number int
	State  contract.AttemptState
	Base   string // commit its tree is made from
	Starts int    // how often its loop was started
	Try    int    // which merge it is at, from 1
	// Result is as far as it stands; with State ended it is the one result.
	Result       *contract.AssociateResult
	Merge        *contract.AttemptMerge
	Verification *contract.Verification
	Scope        []string // what the verification depends on; empty: all
	Again        bool     // another attempt is made after this one
	Keep         bool     // its tree is kept for a look
	Moves        int      // how many transitions there were
	Last         uint64   // sequence of the newest
	Live         bool     // something of it is live that was neither taken back nor published
	Decided      bool     // its publish was begun: it is applied, now or after a crash
	Left         string   // why what it showed live stays there; "" when it does not
}

// IllegalError is a transition that is not in the table.
type IllegalError struct {
	Number   int
	From, To contract.AttemptState
}

func (e *IllegalError) Error() string {
	from := e.From
	if from == "" {
		from = "not begun"
	}
	return fmt.Sprintf("attempt %d is %s, from where it can't become %s", e.Number, from, e.To)
}

// To is the state that a payload moves its attempt to, and which attempt that
// is; "" when the payload is no transition.
func To(p contract.Payload) (number int, to contract.AttemptState) {
	switch p := p.(type) {
	case *contract.AttemptMoved:
		return p.Attempt, p.State
	case *contract.TaskStarted:
		return p.Attempt, contract.AttemptWorking
	case *contract.TaskFinished:
		return p.Result.Attempt, contract.AttemptEnded
	}
	return 0, ""
}

// Apply is the attempt after a transition. An illegal one is refused and
// changes nothing. Payloads that are no transition of this attempt change
// nothing either.
func (a Attempt) Apply(sequence uint64, p contract.Payload) (Attempt, error) {
	number, to := To(p)
	if to == "" || number != a.Number {
		return a, nil
	}
	if !Legal(a.State, to) {
		return a, &IllegalError{a.Number, a.State, to}
	}
	a.State, a.Last = to, sequence
	a.Moves++
	switch p := p.(type) {
	case *contract.TaskStarted:
		a.Base = p.Base
		a.Starts++
	case *contract.TaskFinished:
		r := p.Result
		a.Result = &r
	case *contract.AttemptMoved:
		if p.Result != nil {
			r := *p.Result
			a.Result = &r
		}
		switch to {
		case contract.AttemptBegun:
			a.Base = p.Base
		case contract.AttemptMerged:
			a.Merge, a.Try, a.Scope = p.Merge, p.Try, nil
		case contract.AttemptVerified:
			v := *p.Verification
			a.Verification, a.Scope = &v, p.Scope
		case contract.AttemptTakingBack:
			a.Again, a.Keep = p.Again, p.Keep
		case contract.AttemptLeft:
			a.Again, a.Live, a.Left = false, false, p.Reason
		}
	}
	return a, nil
}

// Ended says whether the attempt has its one result.
func (a Attempt) Ended() bool { return a.State == contract.AttemptEnded }

// Step is what is to be done with an attempt.
type Step string

// What is to be done.
const (
	Begin     Step = "begin"     // take a base and say so
	Work      Step = "work"      // make or reopen its tree, let its loop work
	Merge     Step = "merge"     // merge what it left
	Check     Step = "check"     // say that the merge is being checked
	Verify    Step = "verify"    // check the merge
	Decide    Step = "decide"    // publish or take back, by what the checks found
	Publish   Step = "publish"   // apply the merge; safe to repeat
	TakeBack  Step = "take back" // invert what it showed; safe to repeat
	Conclude  Step = "conclude"  // it ends with its result as it stands
	GiveUp    Step = "give up"   // nothing of it is kept; its result stands
	NothingTo Step = "nothing"
)

// Next is what is to be done with an attempt of a kind, by its state alone.
func (a Attempt) Next(kind contract.TaskKind) Step {
	switch a.State {
	case "":
		return Begin
	case contract.AttemptBegun, contract.AttemptWorking:
		return Work
	case contract.AttemptFinished:
		switch {
		case a.Result.Status != contract.ResultOK && kind != contract.KindGit:
			return GiveUp
		case a.Result.Status != contract.ResultOK, kind == contract.KindGit, kind == contract.KindInspect:
			return Conclude
		}
		return Merge
	case contract.AttemptMerged:
		if a.Merge == nil {
			return GiveUp // nothing was changed, so nothing of it may be live
		}
		return Check
	case contract.AttemptVerifying:
		return Verify
	case contract.AttemptVerified:
		return Decide
	case contract.AttemptPublishing:
		return Publish
	case contract.AttemptTakingBack:
		return TakeBack
	case contract.AttemptLeft:
		return Conclude
	}
	return NothingTo
}
