package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/dispatch/summary"
	"choir.dev/choiros/internal/fault"
	story "choir.dev/choiros/internal/run"
)

// These are the reasons with which the system denies requests.
const (
	reasonTimeout = "nobody answered in time"
	reasonEnded   = "the run ended"
)

// Approving counts the open approvals of every other run. Until done is called, no other run requests one.
func (r *run) Approving() (others int, done func()) {
	d := r.dispatcher
	d.approving.Lock()
	for _, other := range d.underWay() { // one that is parked has none
		if other != r {
			other.mu.Lock()
			others += other.story.OpenApprovals()
			other.mu.Unlock()
		}
	}
	return others, d.approving.Unlock
}

// Answered waits until an approval is answered; what nobody answers in time is denied.
func (r *run) Answered(ctx context.Context, id string, deadline time.Time) error {
	answered := func(s *story.Run) bool { return s.Approval(id).Answered }
	var left time.Duration
	r.Story(func(s *story.Run) { left = r.patience(s.Approval(id).Lost, deadline) })
	timed, cancel := awake.WithTimeout(ctx, left)
	err := r.Until(timed, answered)
	cancel()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	answer := contract.ApprovalDeny
	if defence.Off(defence.ApprovalDefault) {
		answer = contract.ApprovalOnce
	}
	// A conflict means that the user answered at the same moment; then their answer counts.
	if _, err := r.decide(ctx, contract.System(), id, answer, reasonTimeout); err != nil && !fault.Is(err, fault.Conflict) {
		return err
	}
	return r.Until(ctx, answered)
}

// patience returns how much of the time to answer is left of what a person is asked: an approval, or a question. The time
// since then in which no process ran or the machine stood still is added, however often, because nobody could answer in
// it; before is what the run had lost by that when it asked. The caller holds mu.
func (r *run) patience(before time.Duration, deadline time.Time) time.Duration {
	lost := max(r.story.Lost, r.lost) - before // what no process ran is in the story with the first event of this one
	return max(0, deadline.Sub(r.dispatcher.options.Now())+lost)
}

// decide appends the one answer to an approval.
func (r *run) decide(ctx context.Context, by contract.Actor, id string, answer contract.ApprovalAnswer, reason string) (uint64, error) {
	r.mu.Lock()
	k := r.story.Approval(id)
	r.mu.Unlock()
	if answer != contract.ApprovalDeny {
		reason = ""
	}
	draft := contract.Draft{Actor: by, Type: "approval.answered", Subject: "answer/" + id, Task: k.Task, Expect: &contract.Expect{Last: 0},
		Data: &contract.ApprovalAnswered{Approval: id, Digest: k.Digest, Answer: answer, Reason: reason}}
	if defence.Off(defence.ApprovalOnce) {
		draft.Expect = nil
	}
	es, err := r.Append(ctx, draft)
	if err != nil {
		return 0, err
	}
	return es[0].Sequence, nil
}

// Decide answers an approval of a run as its user. digest is the digest of the act that the user was
// shown. The error is fault.Conflict if the approval is about another act, or is answered already.
func (d *Dispatcher) Decide(ctx context.Context, by contract.Actor, id, digest string, answer contract.ApprovalAnswer) (runID string, sequence uint64, err error) {
	const op = "dispatch.Decide"
	if err := (contract.ApprovalAnswered{Approval: id, Digest: digest, Answer: answer}).Validate(); err != nil {
		return "", 0, fault.New(op, fault.Invalid, "", err)
	}
	if _, err := d.caughtUp(ctx); err != nil { // the user may have been shown it a moment ago, before the run's story had it
		return "", 0, fault.Wrap(op, err)
	}
	r, k := d.findApproval(id)
	switch {
	case r == nil:
		return "", 0, fault.New(op, fault.NotFound, "Only what a run under way waits for can be answered.", fmt.Errorf("no approval %q is open", summary.OneLine(id, 60)))
	case k.Digest != digest && !defence.Off(defence.ApprovalDigest):
		return "", 0, fault.New(op, fault.Conflict, "Look again at what is asked.", errors.New("the answer is for another act than the approval's"))
	case k.Answered && !defence.Off(defence.ApprovalOnce):
		return "", 0, fault.New(op, fault.Conflict, "Look again at what is asked.", fmt.Errorf("it was answered already: %s", k.Answer))
	}
	if k.Act.Kind == contract.ApprovalRequest && answer == contract.ApprovalRun {
		return "", 0, fault.New(op, fault.Invalid, "Allow it once, or deny it.", errors.New("a request that changes something is allowed one time alone"))
	}
	seq, err := r.decide(ctx, by, id, answer, "")
	return r.story.ID, seq, fault.Wrap(op, err)
}

func (d *Dispatcher) findApproval(id string) (*run, story.Approval) {
	for _, r := range d.underWay() {
		r.mu.Lock()
		if k := r.story.Approval(id); k != nil {
			found := *k
			r.mu.Unlock()
			return r, found
		}
		r.mu.Unlock()
	}
	return nil, story.Approval{}
}

// closeApprovals denies the approvals that are still open when a run ends.
func (r *run) closeApprovals(ctx context.Context) error {
	r.mu.Lock()
	list := slices.Clone(r.story.Approvals)
	r.mu.Unlock()
	for _, k := range list {
		r.mu.Lock()
		open := !k.Answered
		r.mu.Unlock()
		if !open {
			continue
		}
		if _, err := r.decide(ctx, contract.System(), k.Approval, contract.ApprovalDeny, reasonEnded); err != nil && !fault.Is(err, fault.Conflict) {
			return err
		}
	}
	return nil
}
