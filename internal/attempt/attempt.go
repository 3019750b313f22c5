package attempt

import (
	"fmt"
	"slices"

	"choir.dev/choiros/contract"
)

// next holds every legal transition. "" is the state of an attempt that has no event in the
// log.
var next = map[contract.AttemptState][]contract.AttemptState{
	"":                         {contract.AttemptBegun, contract.AttemptEnded},
	contract.AttemptBegun:      {contract.AttemptWorking, contract.AttemptTakingBack},
	contract.AttemptWorking:    {contract.AttemptWorking, contract.AttemptFinished, contract.AttemptTakingBack},
	contract.AttemptFinished:   {contract.AttemptMerged, contract.AttemptTakingBack, contract.AttemptEnded},
	contract.AttemptMerged:     {contract.AttemptVerifying, contract.AttemptTakingBack},
	contract.AttemptVerifying:  {contract.AttemptVerified, contract.AttemptTakingBack},
	contract.AttemptVerified:   {contract.AttemptPublishing, contract.AttemptReviewing, contract.AttemptRepairing, contract.AttemptTakingBack},
	contract.AttemptReviewing:  {contract.AttemptReviewed, contract.AttemptTakingBack},
	contract.AttemptReviewed:   {contract.AttemptPublishing, contract.AttemptMerged, contract.AttemptReviewing, contract.AttemptRepairing, contract.AttemptTakingBack},
	contract.AttemptRepairing:  {contract.AttemptWorking, contract.AttemptTakingBack},
	contract.AttemptPublishing: {contract.AttemptMerged, contract.AttemptTakingBack, contract.AttemptLeft, contract.AttemptEnded},
	contract.AttemptTakingBack: {contract.AttemptEnded, contract.AttemptLeft},
	contract.AttemptLeft:       {contract.AttemptEnded},
	contract.AttemptEnded:      nil,
}

// States returns all states that an attempt can be in, including "".
func States() []contract.AttemptState {
	var out []contract.AttemptState
	for s := range next {
		out = append(out, s)
	}
	slices.Sort(out)
	return out
}

// Legal reports whether an attempt may go from one state to another.
func Legal(from, to contract.AttemptState) bool { return slices.Contains(next[from], to) }

// Edge is a legal transition.
type Edge struct{ From, To contract.AttemptState }

// Edges returns all legal transitions, sorted.
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

// Subject returns the subject of an attempt's transitions. Each is appended only if the one
// before it is the newest event with this subject.
func Subject(task string, number int) string { return fmt.Sprintf("task/%s/%d", task, number) }

// Attempt is the state of an attempt as computed from its events. The zero value with a
// Number has not begun.
type Attempt struct {
	Number  int
	State   contract.AttemptState
	Base    string // the commit that its work is compared, merged and checked against
	From    string // the kept tree that its own is made from; "" when that is Base
	Starts  int    // how often its loop was started
	Resumes int    // of these, how often since it began, was last sent back or got on
	Repairs int    // how often its loop was asked to repair what the checks found
	// Review is the number of its newest review, Work the tree that is or was looked at, and Answer what
	// the person decided of it; nil while they have not, and once the loop works on.
	Review int
	Work   string
	Answer *contract.ReviewAnswered
	// Failed is the tree that failed the checks before it was last sent back.
	Failed string
	Try    int // the number of its current merge, from 1
	// Result is the result so far; in state ended it is the attempt's final one.
	Result       *contract.AssociateResult
	Merge        *contract.AttemptMerge
	Verification *contract.Verification
	Scope        []string // what the verification depends on; empty: all
	Again        bool     // whether another attempt is made after this one
	Keep         bool     // whether its tree is kept for inspection
	Moves        int      // how many transitions there were
	Last         uint64   // the sequence of the newest transition
	Live         bool     // whether it has changes in the live tree that were neither taken back nor published
	Decided      bool     // whether its publish was begun, which is then applied, now or after a crash
	Left         string   // why its changes stay in the live tree; "" when they do not
}

// IllegalError is the error of a transition that is not in the table.
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

// To returns the attempt that a payload is about and the state that it moves the attempt
// to; "" when the payload is no transition.
func To(p contract.Payload) (number int, to contract.AttemptState) {
	switch p := p.(type) {
	case *contract.AttemptMoved:
		return p.Attempt, p.State
	case *contract.TaskStarted:
		return p.Attempt, contract.AttemptWorking
	case *contract.RepairRequested:
		return p.Attempt, contract.AttemptRepairing
	case *contract.ReviewRequested:
		return p.Attempt, contract.AttemptReviewing
	case *contract.ReviewAnswered:
		return p.Attempt, contract.AttemptReviewed
	case *contract.TaskFinished:
		return p.Result.Attempt, contract.AttemptEnded
	}
	return 0, ""
}

// Apply returns the attempt after a transition. An illegal transition is refused and
// changes nothing. A payload that is no transition of this attempt changes nothing either.
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
		a.Resumes++
	case *contract.RepairRequested:
		a.Repairs, a.Resumes, a.Try = p.Repair, 0, 0
		if a.Verification != nil {
			a.Failed = a.Verification.Tree
		}
		a.Result, a.Merge, a.Scope, a.Work, a.Answer = nil, nil, nil, "", nil
	case *contract.ReviewRequested:
		if a.Chosen() {
			a.Merge, a.Scope = nil, nil // they are of what was chosen
		}
		a.Try = 0 // the live tree may change as often again, for nobody waits for a quick answer
		a.Review, a.Work, a.Answer = p.Review, p.Work, nil
	case *contract.ReviewAnswered:
		answer := *p
		a.Answer = &answer
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
			a.Base, a.From = p.Base, p.From
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

// Taken reports whether a person has taken the work, or what they chose of it, for publishing.
func (a Attempt) Taken() bool {
	return a.Answer != nil && a.Answer.Decision == contract.ReviewPublish
}

// Chosen reports whether a person has taken only a part of the work.
func (a Attempt) Chosen() bool { return a.Taken() && len(a.Answer.Only) > 0 }

// Ended reports whether the attempt has its final result.
func (a Attempt) Ended() bool { return a.State == contract.AttemptEnded }

// Step is what is to be done with an attempt.
type Step string

// These are the steps.
const (
	Begin     Step = "begin"     // choose the commit to start from and record it
	Work      Step = "work"      // make or reopen its tree, and let its loop work
	Merge     Step = "merge"     // merge its tree with the live tree
	Check     Step = "check"     // record that the merge is being verified
	Verify    Step = "verify"    // verify the merge
	Decide    Step = "decide"    // publish, send back or take back, by what the checks found
	Review    Step = "review"    // wait until a person has decided about it
	Follow    Step = "follow"    // do what the person decided
	Publish   Step = "publish"   // apply the merge; safe to repeat
	TakeBack  Step = "take back" // revert what it showed live; safe to repeat
	Conclude  Step = "conclude"  // end it with the result that it has
	GiveUp    Step = "give up"   // keep nothing of it but its result
	NothingTo Step = "nothing"
)

// Next returns the step to take for an attempt of a kind; it depends on its state alone.
func (a Attempt) Next(kind contract.TaskKind) Step {
	switch a.State {
	case "":
		return Begin
	case contract.AttemptBegun, contract.AttemptWorking, contract.AttemptRepairing:
		return Work
	case contract.AttemptFinished:
		switch {
		case a.Result.Status != contract.ResultOK && kind != contract.KindGit:
			return GiveUp
		case a.Result.Status != contract.ResultOK, kind == contract.KindGit, kind.OnlyReads():
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
	case contract.AttemptReviewing:
		return Review
	case contract.AttemptReviewed:
		return Follow
	case contract.AttemptPublishing:
		return Publish
	case contract.AttemptTakingBack:
		return TakeBack
	case contract.AttemptLeft:
		return Conclude
	}
	return NothingTo
}
