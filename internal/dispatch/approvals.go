package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/dispatch/summary"
	"choir.dev/choiros/internal/egress"
	"choir.dev/choiros/internal/fault"
	story "choir.dev/choiros/internal/run"
)

// These bound how much a person is asked. Requests beyond them are denied.
const (
	maxOpenRun      = 5  // approvals of one run that wait at the same time
	maxOpenComputer = 20 // the same, of all runs of the computer
	maxApprovals    = 20 // approvals that one run may request in all
)

// These are the reasons with which the system denies requests.
const (
	reasonTimeout = "nobody answered in time"
	reasonEnded   = "the run ended"
)

// checkNetwork refuses hosts that no model may ask for. It is called when the task is delegated, while
// the Director can still correct it.
func checkNetwork(spec contract.EgressSpec) error {
	for i, s := range spec.Allow {
		field := fmt.Sprintf("egress.allow[%d]", i)
		if strings.HasPrefix(strings.ToLower(strings.TrimSpace(s)), "tcp:") && !defence.Off(defence.EgressRawTCP) {
			return &contract.FieldError{Field: field, Reason: "is a raw connection, which only the computer's owner can grant, in the configuration (egress.allow)"}
		}
		if _, err := egress.ParseRule(s); err != nil {
			return &contract.FieldError{Field: field, Reason: err.Error()}
		}
	}
	return nil
}

// network asks a person for the hosts of the task that go beyond what the computer was granted, and waits
// for a bounded time. approved lists those that were allowed; note tells the model which were not.
func (a *attempt) network(ctx context.Context) (approved []string, note string, err error) {
	spec := a.task.Egress
	if spec.Profile != contract.EgressCustom || len(spec.Allow) == 0 {
		return nil, "", nil
	}
	beyond := spec.Allow
	if a.run.dispatcher.options.BeyondGrant != nil {
		if beyond, err = a.run.dispatcher.options.BeyondGrant(ctx, spec); err != nil {
			return nil, "", fault.Wrap("dispatch.network", err)
		}
	}
	var waits []*waiting
	denied := map[string]string{} // by rule: the reason
	for _, text := range beyond {
		w, why, err := a.request(ctx, text)
		switch {
		case err != nil:
			return nil, "", err
		case why != "":
			denied[text] = why
		default:
			waits = append(waits, w)
		}
	}
	if err := a.awaitApprovals(ctx, waits); err != nil {
		return nil, "", err
	}
	a.run.mu.Lock()
	for _, w := range waits {
		k := a.run.story.Approval(w.id)
		switch {
		case k.Answer == contract.ApprovalOnce || k.Answer == contract.ApprovalRun:
			approved = append(approved, w.text)
		case k.BySystem:
			denied[w.text] = "nobody allowed it in time"
		default:
			denied[w.text] = "the user denied it"
		}
	}
	a.run.mu.Unlock()
	for _, text := range beyond {
		if why, ok := denied[text]; ok {
			a.decided(text, false)
			note += fmt.Sprintf("- %s can't be reached: %s.\n", text, why)
		}
	}
	if note != "" {
		note = "Some hosts of this task go beyond what the computer was granted. Do without them, and say so in your summary; asking again does not help.\n" + note
	}
	return approved, note, nil
}

// waiting is an approval that an attempt waits for.
type waiting struct {
	id       string
	text     string // the rule as the task wrote it
	deadline time.Time
}

// request asks for one host and port, unless this run has asked for the same already: there is one
// question for one act. why is the reason why it can't be allowed; it is empty if it may be.
func (a *attempt) request(ctx context.Context, text string) (w *waiting, why string, err error) {
	r, d := a.run, a.run.dispatcher
	rule, err := egress.ParseRule(text)
	if err != nil {
		return nil, "", fault.New("", fault.Invalid, "", err)
	}
	host, port, single := rule.Single()
	if !single {
		return nil, "only exact hosts can be asked for", nil
	}
	act := contract.Act{Kind: contract.ApprovalEgress, Run: a.ref.Run, Host: host, Port: port}
	digest, err := act.Digest()
	if err != nil {
		return nil, "", err
	}
	d.approving.Lock() // so that the counts stay right until the question is in the log
	defer d.approving.Unlock()
	others := d.openApprovals(r)
	r.mu.Lock()
	var last *story.Approval
	times := 0
	for _, k := range r.story.Approvals {
		if k.Digest == digest {
			last, times = k, times+1
		}
	}
	open, all := r.story.OpenApprovals(), len(r.story.Approvals)
	r.mu.Unlock()
	if last != nil && (!last.Answered || standsFor(last, a.ref)) {
		deadline, err := time.Parse(time.RFC3339, last.Deadline)
		return &waiting{id: last.Approval, text: text, deadline: deadline}, "", err
	}
	if !defence.Off(defence.ApprovalCap) {
		switch {
		case open >= maxOpenRun:
			return nil, fmt.Sprintf("%d questions of this run wait for the user already", open), nil
		case open+others >= maxOpenComputer:
			return nil, fmt.Sprintf("%d questions wait for the user already", open+others), nil
		case all >= maxApprovals:
			return nil, fmt.Sprintf("this run has asked the user %d times already", all), nil
		}
	}
	deadline := d.options.Now().Add(d.options.Times.Approval).UTC().Truncate(time.Second).Add(time.Second)
	p := &contract.ApprovalRequested{Approval: contract.DeriveID(r.story.ID, fmt.Sprintf("approval:%s:%d", digest, times)), Act: act, Digest: digest,
		Attempt: a.ref.Attempt, Claim: contract.Claim(cmp.Or(a.task.Egress.Reason, a.task.Goal)), Deadline: deadline.Format(time.RFC3339)}
	_, err = r.append(ctx, contract.Draft{ID: contract.DeriveID(p.Approval, "requested"), Actor: contract.AssociateOf(a.ref.Task), Type: "approval.requested",
		Subject: "approval/" + p.Approval, Task: a.ref.Task, Data: p})
	if err != nil {
		return nil, "", err
	}
	return &waiting{id: p.Approval, text: text, deadline: deadline}, "", nil
}

// standsFor reports whether an answer also counts for an attempt that asks now. A person's denial and an
// approval for the run do; an approval for one time counts only for the attempt that asked. What nobody
// answered may be asked again.
func standsFor(k *story.Approval, t ports.TaskRef) bool {
	switch k.Answer {
	case contract.ApprovalRun:
		return true
	case contract.ApprovalOnce:
		return k.Task == t.Task && k.Attempt == t.Attempt
	}
	return !k.BySystem
}

// openApprovals counts the open approvals of every other run. The caller holds d.approving.
func (d *Dispatcher) openApprovals(but *run) int {
	d.mu.Lock()
	runs := make([]*run, 0, len(d.runs))
	for _, r := range d.runs {
		runs = append(runs, r)
	}
	d.mu.Unlock()
	n := 0
	for _, r := range runs {
		if r != but {
			r.mu.Lock()
			n += r.story.OpenApprovals()
			r.mu.Unlock()
		}
	}
	return n
}

// awaitApprovals waits until each approval is answered. Meanwhile the task gives its slot to others.
func (a *attempt) awaitApprovals(ctx context.Context, list []*waiting) error {
	r := a.run
	r.mu.Lock()
	list = slices.DeleteFunc(slices.Clone(list), func(w *waiting) bool { return r.story.Approval(w.id).Answered })
	r.mu.Unlock()
	if len(list) == 0 {
		return nil
	}
	r.waiting(1)
	defer r.waiting(-1)
	if err := r.move(ctx, contract.RunWaiting, "something waits for you on the console"); err != nil {
		return err
	}
	return r.restTask(a.ref.Task, func() error { return r.eachAnswered(ctx, list) })
}

// eachAnswered waits until each approval is answered; those that nobody answers in time are denied.
func (r *run) eachAnswered(ctx context.Context, list []*waiting) error {
	for _, w := range list {
		answered := func(s *story.Run) bool { return s.Approval(w.id).Answered }
		timed, cancel := awake.WithTimeout(ctx, r.left(w.deadline))
		err := r.until(timed, answered)
		cancel()
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		answer := contract.ApprovalDeny
		if defence.Off(defence.ApprovalDefault) {
			answer = contract.ApprovalOnce
		}
		// A conflict means that the user answered at the same moment; then their answer counts.
		if _, err := r.decide(ctx, contract.System(), w.id, answer, reasonTimeout); err != nil && !fault.Is(err, fault.Conflict) {
			return err
		}
		if err := r.until(ctx, answered); err != nil {
			return err
		}
	}
	return nil
}

// left returns how much of the time to answer is left. For a question from before this process took the
// run up, the time during which no process ran is added, because nobody could answer then.
func (r *run) left(deadline time.Time) time.Duration {
	left := deadline.Sub(r.dispatcher.options.Now())
	if !deadline.After(r.taken.Add(r.dispatcher.options.Times.Approval)) {
		left += r.down
	}
	return max(0, left)
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
	es, err := r.append(ctx, draft)
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
	seq, err := r.decide(ctx, by, id, answer, "")
	return r.story.ID, seq, fault.Wrap(op, err)
}

func (d *Dispatcher) findApproval(id string) (*run, story.Approval) {
	d.mu.Lock()
	runs := make([]*run, 0, len(d.runs))
	for _, r := range d.runs {
		runs = append(runs, r)
	}
	d.mu.Unlock()
	for _, r := range runs {
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
