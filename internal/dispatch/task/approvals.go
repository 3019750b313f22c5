package task

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
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

// CheckNetwork refuses hosts that no model may ask for. It is called when the task is delegated, while
// the Director can still correct it.
func CheckNetwork(spec contract.EgressSpec) error {
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
	if a.host.BeyondGrant != nil {
		if beyond, err = a.host.BeyondGrant(ctx, spec); err != nil {
			return nil, "", fault.Wrap("dispatch.network", err)
		}
	}
	var waits []*waiting
	denied := map[string]string{} // by rule: the reason
	for _, text := range beyond {
		w, why, err := a.requestHost(ctx, text)
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
	for _, w := range waits {
		if why := a.refusal(w); why != "" {
			denied[w.text] = why
		} else {
			approved = append(approved, w.text)
		}
	}
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
	text     string // what it is about, as the task or its model wrote it
	deadline time.Time
}

// refusal returns why what was asked for is not allowed, "" if it is.
func (a *attempt) refusal(w *waiting) (why string) {
	a.run.Story(func(s *story.Run) {
		switch k := s.Approval(w.id); {
		case k.Answer == contract.ApprovalOnce || k.Answer == contract.ApprovalRun && k.Act.Kind != contract.ApprovalRequest:
		case k.BySystem:
			why = "nobody allowed it in time"
		default:
			why = "the user denied it"
		}
	})
	return why
}

// requestHost asks for one host and port.
func (a *attempt) requestHost(ctx context.Context, text string) (w *waiting, why string, err error) {
	rule, err := egress.ParseRule(text)
	if err != nil {
		return nil, "", fault.New("", fault.Invalid, "", err)
	}
	host, port, single := rule.Single()
	if !single {
		return nil, "only exact hosts can be asked for", nil
	}
	act := contract.Act{Kind: contract.ApprovalEgress, Run: a.ref.Run, Host: host, Port: port}
	return a.request(ctx, act, text, contract.Claim(cmp.Or(a.task.Egress.Reason, a.task.Goal)), nil)
}

// request asks for an act, unless this run has asked for the same already: there is one question for one
// act, of a request one for each attempt. shown is what is shown of a request. why is the reason why it can't be allowed; it is empty if it may be.
func (a *attempt) request(ctx context.Context, act contract.Act, text, claim string, shown *contract.RequestShown) (w *waiting, why string, err error) {
	r := a.run
	digest, err := act.Digest()
	if err != nil {
		return nil, "", err
	}
	others, done := r.Approving() // the counts stay right until the question is in the log
	defer done()
	var last *story.Approval
	times, open, all, spent := 0, 0, 0, false
	r.Story(func(s *story.Run) {
		for _, k := range s.Approvals {
			if k.Digest == digest {
				times++
				if k.Meant(a.ref.Task, a.ref.Attempt) || defence.Off(defence.RequestBound) {
					last = k
				}
			}
		}
		spent = last != nil && s.Spent(last.Approval) && !defence.Off(defence.RequestBound)
		open, all = s.OpenApprovals(), len(s.Approvals)
	})
	if last != nil && !spent && (!last.Answered || last.StandsFor(a.ref.Task, a.ref.Attempt)) {
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
	deadline := a.host.Now().Add(a.host.Times.Approval).UTC().Truncate(time.Second).Add(time.Second)
	p := &contract.ApprovalRequested{Approval: contract.DeriveID(a.ref.Run, fmt.Sprintf("approval:%s:%d", digest, times)), Act: act, Digest: digest,
		Attempt: a.ref.Attempt, Claim: claim, Deadline: deadline.Format(time.RFC3339), Request: shown}
	_, err = r.Append(ctx, contract.Draft{ID: contract.DeriveID(p.Approval, "requested"), Actor: contract.AssociateOf(a.ref.Task), Type: "approval.requested",
		Subject: "approval/" + p.Approval, Task: a.ref.Task, Data: p})
	if err != nil {
		return nil, "", err
	}
	return &waiting{id: p.Approval, text: text, deadline: deadline}, "", nil
}

// awaitApprovals waits until each approval is answered. Meanwhile the task gives its slot to others.
func (a *attempt) awaitApprovals(ctx context.Context, list []*waiting) error {
	r := a.run
	r.Story(func(s *story.Run) {
		list = slices.DeleteFunc(slices.Clone(list), func(w *waiting) bool { return s.Approval(w.id).Answered })
	})
	if len(list) == 0 {
		return nil
	}
	defer r.Waits("something waits for you on the console")()
	if err := r.Settle(ctx); err != nil {
		return err
	}
	return r.Rest(a.ref.Task, func() error {
		for _, w := range list {
			if err := r.Answered(ctx, w.id, w.deadline); err != nil {
				return err
			}
		}
		return nil
	})
}
