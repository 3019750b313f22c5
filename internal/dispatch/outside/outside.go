package outside

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/crash"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/dispatch/catalogue"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/dispatch/summary"
	"choir.dev/choiros/internal/effect"
	"choir.dev/choiros/internal/fault"
	story "choir.dev/choiros/internal/run"
	"choir.dev/choiros/internal/tool"
)

// Bounds of what the log keeps of an effect, in bytes, and of how many a result and a loop are told.
const (
	maxWhat    = 1000
	maxDetail  = 1000
	maxKey     = 256
	maxEffects = 50
)

// Run is what is needed of the run that an effect belongs to.
type Run interface {
	// Story calls look with what the log says of the run, which nothing changes meanwhile.
	Story(look func(*story.Run))
	// Append stores events of the run. When it returns, the story contains them.
	Append(ctx context.Context, drafts ...contract.Draft) ([]contract.Event, error)
}

// Lock is held from deciding whether a call may be made until its intention is in the log, so that of two that are the same
// the second knows of the first. All attempts of a computer share one.
type Lock struct{ mu sync.Mutex }

// Maker makes the calls of one attempt.
type Maker struct {
	Run   Run
	Ref   ports.TaskRef
	CID   contract.CID
	Blobs ports.Blobs
	Lock  *Lock
	// CleanUp is the context for what must be recorded even if the run was cancelled.
	CleanUp func() (context.Context, context.CancelFunc)
}

// Make makes a call. That it is meant to is on disk before anything leaves, and what it came to is on disk before anybody is
// told. send carries it out with the arguments that leave.
func (m Maker) Make(ctx context.Context, call string, o catalogue.Outside, args json.RawMessage, send func(context.Context, json.RawMessage) (tool.Result, error)) (tool.Result, error) {
	p, leaves, refused, err := m.intend(ctx, call, o, args)
	if err != nil || refused != "" {
		return tool.Failed("%s", refused), err
	}
	crash.At("dispatch.effect.intended")
	res, err := send(ctx, leaves)
	crash.At("dispatch.effect.answered")
	ended := &contract.EffectEnded{Effect: p.Effect, Outcome: contract.EffectUnknown}
	cleaning, cancel := m.CleanUp()
	defer cancel()
	if err != nil {
		ended.Detail = Printable("nothing was heard of it: "+fault.Text(err), maxDetail)
	} else {
		m.answered(cleaning, ended, res)
	}
	if failed := end(cleaning, m.Run, ended); failed != nil {
		return tool.Result{}, failed
	}
	if err != nil {
		return tool.Result{}, err
	}
	crash.At("dispatch.effect.ended")
	if ended.Outcome == contract.EffectUnknown {
		res.OK, res.Output = false, summary.MayHaveHappened(*p)+"\n"+res.Output
	}
	return res, nil
}

// answered fills in what a call came to. A tool that does not say so is believed when it says that it worked, and no further.
// An answer that can't be kept whole, as on a full disk, is no reason to forget that there was one.
func (m Maker) answered(ctx context.Context, ended *contract.EffectEnded, res tool.Result) {
	if res.Ended != nil {
		ended.Outcome, ended.Status = res.Ended.Outcome, res.Ended.Status
	} else if res.OK {
		ended.Outcome = contract.EffectDone
	}
	said := res.Output
	if res.Ended != nil && res.Ended.Answer != "" {
		said = res.Ended.Answer
	}
	if ended.Detail = Printable(said, maxDetail); len(said) > maxDetail {
		ref, _, err := m.Blobs.Put(ctx, m.CID, strings.NewReader(said))
		if ended.Answer = ref; err != nil {
			ended.Answer, ended.Detail = "", Printable("(the rest could not be kept: "+summary.OneLine(fault.Text(err), 200)+") "+ended.Detail, maxDetail)
		}
	}
}

// call is a call with what is to leave of its arguments.
type call struct {
	effect.Call
	id     string
	fields map[string]json.RawMessage
}

// intend decides whether a call may be made, has a person asked if its tool wants that, and records that it is about to be.
// leaves are the arguments as they are sent; refused says why it may not be.
func (m Maker) intend(ctx context.Context, id string, o catalogue.Outside, args json.RawMessage) (p *contract.EffectIntended, leaves json.RawMessage, refused string, err error) {
	c, err := m.read(id, o, args)
	if err != nil {
		return nil, nil, fmt.Sprintf("Nothing was sent: %v.", err), nil
	}
	approval, sends := "", contract.BlobRef("")
	if o.Each != nil {
		m.Lock.mu.Lock()
		p, leaves, refused, err = m.draft(ctx, c, o)
		m.Lock.mu.Unlock()
		if err != nil || refused != "" {
			return nil, nil, refused, err
		}
		sends = p.Args
		approval, refused, err = o.Each.Ask(ctx, catalogue.Question{Args: args, Leaves: leaves, Sends: sends, Again: c.Again, Before: m.before(c.Again)})
		if err != nil || refused != "" {
			return nil, nil, refused, err
		}
		crash.At("dispatch.effect.allowed")
	}
	m.Lock.mu.Lock()
	defer m.Lock.mu.Unlock()
	if p, leaves, refused, err = m.draft(ctx, c, o); err != nil || refused != "" {
		return nil, nil, refused, err
	}
	if o.Each != nil {
		if refused = m.allowed(approval, sends, p); refused != "" {
			return nil, nil, refused, nil
		}
		p.Approval = approval
	}
	_, err = m.Run.Append(ctx, contract.Draft{ID: contract.DeriveID(p.Effect, "intended"), Actor: contract.AssociateOf(m.Ref.Task), Type: "effect.intended",
		Subject: contract.EffectSubject(p.Effect), Task: m.Ref.Task, Data: p, Expect: &contract.Expect{}})
	return p, leaves, "", err
}

// read understands the arguments of a call. The error says what is wrong with them.
func (m Maker) read(id string, o catalogue.Outside, args json.RawMessage) (c call, err error) {
	c = call{id: id, Call: effect.Call{Run: m.Ref.Run, Target: o.Target, Takes: o.Key != "", Harmless: o.Harmless, Once: o.Kind == contract.EffectRequest}}
	if err := json.Unmarshal(args, &c.fields); err != nil {
		return c, fmt.Errorf("the arguments are no object: %w", err)
	}
	var without []string
	if o.TakesAgain() {
		c.Again, without = text(c.fields[effect.Again]), append(without, effect.Again)
	}
	if o.Each != nil {
		if c.Target, args, err = o.Each.Read(args); err != nil {
			return c, err
		}
		c.fields = nil
		if err := json.Unmarshal(args, &c.fields); err != nil {
			return c, err
		}
	}
	delete(c.fields, effect.Again)
	if o.Key != "" {
		c.Given, without = text(c.fields[o.Key]), append(without, o.Key)
		if c.Given != Printable(c.Given, maxKey) {
			return c, fmt.Errorf("%s is one line of at most %d bytes, or is left out: then one is made", o.Key, maxKey)
		}
	}
	if c.Digest, err = effect.Digest(args, without...); err != nil {
		return c, fmt.Errorf("the arguments can't be read: %w", err)
	}
	return c, nil
}

// draft decides whether a call may be made now, and keeps what would leave. The lock is held.
func (m Maker) draft(ctx context.Context, c call, o catalogue.Outside) (p *contract.EffectIntended, leaves json.RawMessage, refused string, err error) {
	key, refused := effect.Decide(c.Call, m.earlier(c.Call))
	if refused != "" {
		return nil, nil, refused, nil
	}
	p = &contract.EffectIntended{Effect: contract.DeriveID(m.Ref.Task, fmt.Sprintf("effect:%d:%s", m.Ref.Attempt, c.id)), Kind: o.Kind, Target: c.Target,
		Digest: c.Digest, Call: c.id, Attempt: m.Ref.Attempt, Again: c.Again}
	fields := maps.Clone(c.fields)
	if o.Key != "" {
		p.Key = key
		if fields[o.Key], err = json.Marshal(key); err != nil {
			return nil, nil, "", fault.Wrap("dispatch.effect", err)
		}
	}
	if leaves, err = json.Marshal(fields); err != nil {
		return nil, nil, "", fault.Wrap("dispatch.effect", err)
	}
	p.What = Printable(string(leaves), maxWhat)
	if p.Args, _, err = m.Blobs.Put(ctx, m.CID, bytes.NewReader(leaves)); err != nil {
		return nil, nil, "", fault.Wrap("dispatch.effect", err)
	}
	return p, leaves, "", nil
}

// allowed says why a call may not be made under an approval, "" if it may: a person allowed exactly it, once, to this attempt, and
// that was not used. The lock is held, so that of two calls under one approval the second is refused.
func (m Maker) allowed(approval string, sends contract.BlobRef, p *contract.EffectIntended) (refused string) {
	if defence.Off(defence.RequestBound) {
		return ""
	}
	if p.Args != sends {
		return "While the user was asked, it became known what came of the same call before, so that this one would not be what they allowed. Nothing was sent. Look how it ended, and call once more only if it is still wanted."
	}
	m.Run.Story(func(s *story.Run) {
		k := s.Approval(approval)
		switch {
		case defence.Off(defence.RequestAsked):
		case k == nil || k.Answer != contract.ApprovalOnce || k.Act.Sends != p.Args || k.Act.Again != p.Again:
			refused = "The user allowed another request than this one. Nothing was sent."
		case !k.AskedBy(m.Ref.Task, m.Ref.Attempt):
			refused = "The user allowed this to another task or attempt. Nothing was sent."
		case s.Spent(approval):
			refused = "The user allowed this one time, and that was used. Nothing was sent."
		}
	})
	return refused
}

// before is what is known of an earlier effect, "" if there is none or nobody knows yet.
func (m Maker) before(id string) (out contract.EffectOutcome) {
	m.Run.Story(func(s *story.Run) {
		if e := s.Effect(id); e != nil {
			out = e.Outcome()
		}
	})
	return out
}

// earlier lists the effects of the run that are the same as a call, oldest first.
func (m Maker) earlier(c effect.Call) (out []effect.Earlier) {
	m.Run.Story(func(s *story.Run) {
		for _, e := range s.Effects {
			if e.Target != c.Target || e.Digest != c.Digest {
				continue
			}
			same := effect.Earlier{ID: e.Effect, Key: e.Key, Here: e.Task == m.Ref.Task && e.Attempt == m.Ref.Attempt}
			if e.Ended != nil {
				same.Outcome = e.Ended.Outcome
			}
			if e.Resolved != nil {
				same.Found = e.Resolved.Found
			}
			out = append(out, same)
		}
	})
	return out
}

// end records what an effect came to. The first word counts: who comes second changes nothing.
func end(ctx context.Context, r Run, p *contract.EffectEnded) error {
	var at *story.Effect
	r.Story(func(s *story.Run) {
		if e := s.Effect(p.Effect); e != nil {
			known := *e
			at = &known
		}
	})
	if at == nil || at.Ended != nil {
		return nil
	}
	_, err := r.Append(ctx, contract.Draft{ID: contract.DeriveID(p.Effect, "ended"), Actor: contract.System(), Type: "effect.ended",
		Subject: contract.EffectSubject(p.Effect), Task: at.Task, Data: p, Expect: &contract.Expect{Last: at.Sequence}})
	if fault.Is(err, fault.Conflict) {
		return nil
	}
	return fault.Wrap("dispatch.effect", err)
}

// End ends the effects of a task, or of a whole run, that are under way, as unknown. No call that makes one may be under way.
func End(ctx context.Context, r Run, task, why string) error {
	var open []string
	r.Story(func(s *story.Run) {
		for _, e := range s.Effects {
			if e.Ended == nil && (task == "" || e.Task == task) {
				open = append(open, e.Effect)
			}
		}
	})
	for _, id := range open {
		if err := end(ctx, r, &contract.EffectEnded{Effect: id, Outcome: contract.EffectUnknown, Detail: why}); err != nil {
			return err
		}
	}
	return nil
}

// Of is what the result of an attempt names.
func Of(r Run, ref ports.TaskRef) (out []contract.EffectOutside) {
	r.Story(func(s *story.Run) { out = s.EffectsOf(ref.Task, ref.Attempt, maxEffects) })
	return out
}

// Before is what the loop of an attempt is told of what others of its run changed outside, newest first; "" if nothing.
func Before(r Run, ref ports.TaskRef) string {
	var lines []string
	r.Story(func(s *story.Run) {
		for _, e := range slices.Backward(s.Effects) {
			if (e.Task != ref.Task || e.Attempt != ref.Attempt) && len(lines) < maxEffects {
				lines = append(lines, "- "+summary.Outside(e.Outside()))
			}
		}
	})
	return strings.Join(lines, "\n")
}

// text is a string of JSON, "" if it is none.
func text(raw json.RawMessage) (s string) {
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// Printable is a text on one line, in at most so many bytes, without characters that could hide or reorder what stands around
// it.
func Printable(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	return contract.Shorten(s, most)
}
