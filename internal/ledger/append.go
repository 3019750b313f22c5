package ledger

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
)

const (
	maxDrafts  = 400     // of one Append
	groupCount = 400     // events committed together; the server allows 1000
	groupBytes = 2 << 20 // bytes of encoded events that are committed together
	fullTries  = 2       // how often an append is tried again after space was made
)

// request is one Append on its way to the committer.
type request struct {
	items []item
	size  int
	apart bool        // whether a crash may store its first events without the rest
	done  chan result // buffered
}

// whole reports whether either all or none of its events must be stored.
func (r *request) whole() bool { return len(r.items) > 1 && !r.apart }

// item is a validated event that lacks its sequence.
type item struct {
	event  contract.Event
	key    key
	fresh  bool // whether its id was drawn here, so that no other event has it
	expect *contract.Expect
}

// same reports whether the event has the given digest.
func (it *item) same(digest [sha256.Size]byte) bool { return contract.Digest(it.event) == digest }

type result struct {
	events []contract.Event
	err    error
}

// Append stores events and returns them as stored, in the drafts' order, once they are on
// disk. They follow each other in the log, and are stored all or not at all, even if the
// process or the machine dies meanwhile; a call that is refused stores nothing.
//
// A draft whose id is in the log already (under the same contract.Origin, with the same
// contract.Digest) is not stored again; the stored event is returned, and the draft's
// Expect is not checked. Errors:
//
//   - fault.Invalid: a draft is not valid; a contract.FieldError names the field
//   - fault.Conflict: an Expect did not hold (ExpectError), or an id is taken by
//     an event with other content
//   - fault.InUse with ErrFenced: another owner has the log
//   - fault.Unavailable, or the context's error: the outcome is unknown;
//     appending the same drafts with the same ids again is safe
//   - fault.DiskFull, fault.Exhausted
func (l *Log) Append(ctx context.Context, drafts ...contract.Draft) ([]contract.Event, error) {
	return l.append(ctx, "ledger.Append", false, drafts)
}

// AppendEach is Append for drafts that do not depend on each other: a crash may leave the
// first of them stored without the rest, so a caller that has not seen it return must call
// it again with the same ids. Where the drafts are too long for one message, it avoids the
// atomic batch that Append needs, which costs several syncs and the files of a store of its
// own.
func (l *Log) AppendEach(ctx context.Context, drafts ...contract.Draft) ([]contract.Event, error) {
	const op = "ledger.AppendEach"
	for i, d := range drafts {
		if d.ID == "" && len(drafts) > 1 {
			return nil, fault.New(op, fault.Invalid, "", fmt.Errorf("draft %d: %w", i, &contract.FieldError{Field: "id", Reason: "is required, for it may have to be appended again"}))
		}
	}
	return l.append(ctx, op, true, drafts)
}

func (l *Log) append(ctx context.Context, op string, apart bool, drafts []contract.Draft) ([]contract.Event, error) {
	if len(drafts) == 0 {
		return nil, nil
	}
	if len(drafts) > maxDrafts {
		return nil, fault.New(op, fault.Invalid, "", fmt.Errorf("%d drafts in one append; at most %d are allowed", len(drafts), maxDrafts))
	}
	items := make([]item, len(drafts))
	for i, d := range drafts {
		err := l.spaced(ctx, func() (err error) { items[i], err = l.prepare(ctx, d); return err })
		if err != nil {
			if len(drafts) > 1 {
				err = fmt.Errorf("draft %d: %w", i, err)
			}
			return nil, fault.Wrap(op, err)
		}
	}
	var events []contract.Event
	err := l.spaced(ctx, func() (err error) { events, err = l.store(ctx, apart, items); return err })
	return events, fault.Wrap(op, err)
}

// spaced repeats do when it fails for lack of space, as long as Options.Full makes some. It
// must be safe to repeat do: events keep their ids from try to try.
func (l *Log) spaced(ctx context.Context, do func() error) error {
	for try := 0; ; try++ {
		err := do()
		if try == fullTries || !fault.Is(err, fault.DiskFull) || !l.full(ctx) {
			return err
		}
	}
}

// store commits prepared events, in this goroutine if possible, else through the committer.
func (l *Log) store(ctx context.Context, apart bool, items []item) ([]contract.Event, error) {
	req := &request{items: items, apart: apart, done: make(chan result, 1)}
	for _, it := range items {
		req.size += len(it.event.Data) + 1024
	}
	if l.commitNow(ctx, req) {
		r := <-req.done
		return r.events, r.err
	}
	select {
	case l.queue <- req:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.ctx.Done():
		return nil, errClosed()
	}
	select {
	case r := <-req.done:
		return r.events, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("the outcome is unknown: %w", ctx.Err())
	case <-l.done:
		select {
		case r := <-req.done:
			return r.events, r.err
		default:
			return nil, errClosed()
		}
	}
}

func errClosed() error {
	return fault.New("", fault.Unavailable, "", errors.New("the log is closed"))
}

// mayAppend refuses a draft that its actor may not append. The table of event types says
// who may; no other check follows before an event is stored.
func mayAppend(info contract.TypeInfo, a contract.Actor) error {
	if err := a.Validate(); err != nil {
		return fault.New("", fault.Invalid, "", err)
	}
	if !info.SaidBy(a.Kind) && !defence.Off(defence.ActorAppend) {
		return fault.New("", fault.Invalid, "", &contract.FieldError{Field: "actor", Reason: fmt.Sprintf("is a %s, who may not say %s", a.Kind, info.Type)})
	}
	if a.Kind.Can(info.Needs) && !a.Can(info.Needs) && !defence.Off(defence.ActorAppendPower) {
		return fault.New("", fault.Denied, "Ask whoever owns the computer for it.", fmt.Errorf("%s was not given what %s takes: %s", a.Name(), info.Type, info.Needs))
	}
	return nil
}

// prepare validates a draft and makes the event of it, without its sequence. Data that are
// too long for an event are on disk as a blob before it returns.
func (l *Log) prepare(ctx context.Context, d contract.Draft) (item, error) {
	invalid := func(err error) (item, error) { return item{}, fault.New("", fault.Invalid, "", err) }
	info, ok := contract.Lookup(d.Type)
	if !ok {
		return invalid(&contract.FieldError{Field: "type", Reason: fmt.Sprintf("is %.64q, which is not a known event type", d.Type)})
	}
	if err := mayAppend(info, d.Actor); err != nil {
		return item{}, err
	}
	if d.Data == nil {
		return invalid(&contract.FieldError{Field: "data", Reason: "is required"})
	}
	if d.Expect != nil && d.Subject == "" {
		return invalid(&contract.FieldError{Field: "subject", Reason: "is required with Expect"})
	}
	data, err := contract.EncodeData(d.Type, d.Data)
	if err != nil {
		return invalid(err)
	}
	if len(data) > contract.MaxTurn {
		return invalid(&contract.FieldError{Field: "data", Reason: fmt.Sprintf("is %d bytes long; at most %d are allowed", len(data), contract.MaxTurn)})
	}
	e := contract.Event{
		SpecVersion: "1.0", ID: d.ID, Source: contract.Source(l.cid, d.Actor.Kind), Type: d.Type, Subject: d.Subject,
		Time: d.Time, DataContentType: "application/json", Data: data,
		Sequence: 1, Epoch: l.epoch, Computer: l.cid, Actor: d.Actor.Name(), User: d.Actor.Account(),
		Run: d.Run, Task: d.Task, Causation: d.Causation, Correlation: d.Correlation, Traceparent: d.Traceparent,
	}
	fresh := e.ID == ""
	if fresh {
		e.ID = contract.NewID()
	}
	if e.Time.IsZero() {
		e.Time = l.now()
	}
	e.Time = e.Time.UTC().Round(0)
	if len(data) > contract.MaxInlineData {
		if l.blobs == nil {
			return item{}, fault.New("", fault.Missing, "", errors.New("data: too long for an event, and this log was opened without blobs"))
		}
		if e.DataRef, _, err = l.blobs.Put(ctx, l.cid, bytes.NewReader(data)); err != nil {
			return item{}, fault.Wrap("data", err)
		}
		e.Data = nil
	}
	if err := e.ValidateEnvelope(); err != nil {
		return invalid(err)
	}
	return item{event: e, key: keyOf(e), fresh: fresh, expect: d.Expect}, nil
}

// run commits queued requests, group by group, until the log is closed.
func (l *Log) run() {
	defer close(l.done)
	defer l.stop(errClosed())
	for {
		group := make([]*request, 0, 16)
		if l.carried != nil {
			group, l.carried = append(group, l.carried), nil
		} else {
			select {
			case r := <-l.queue:
				group = append(group, r)
			case <-l.ctx.Done():
				return
			}
		}
		l.committing.Lock()
		count, size := len(group[0].items), group[0].size
	gather:
		for waited := false; ; {
			select {
			case r := <-l.queue:
				if count+len(r.items) > groupCount || size+r.size > groupBytes {
					l.carried = r
					break gather
				}
				group, count, size, waited = append(group, r), count+len(r.items), size+r.size, false
			default:
				if waited || !l.crowded {
					break gather
				}
				runtime.Gosched() // so that callers who were just answered can append again and join
				waited = true
			}
		}
		l.commit(group)
		l.crowded = len(group) > 1 || len(l.queue) > 0
		l.committing.Unlock()
		if l.ctx.Err() != nil {
			if l.carried != nil {
				l.carried.done <- result{err: errClosed()}
			}
			return
		}
	}
}

// plan is how a group of requests is to be stored, given what is stored already.
type plan struct {
	open     []*request // requests that wait for events to be stored
	answers  [][]answer // for each of open, one per item
	events   []contract.Event
	ids      map[key]int // index in events
	subject  map[string]uint64
	digests  [][sha256.Size]byte // digests of the first events, as far as digest has computed them
	tied     []bool              // whether each event must be stored together with the one before it
	lines    [][]byte            // the events as they are stored
	links    []contract.Link     // the links of the events
	messages []message
	batch    string   // the atomic batch's id; empty: the messages are pipelined
	asked    []string // the reply subjects of acknowledgements that have not come yet
	taken    int      // how many messages were acknowledged and accepted
	stored   int      // how many events they hold
	broken   error    // why acknowledged events could not be accepted
}

// digest computes the events' digests, with which later appends are compared.
func (p *plan) digest() {
	for _, e := range p.events[len(p.digests):] {
		p.digests = append(p.digests, contract.Digest(e))
	}
}

// answer is an event that is stored already, or will be as plan.events[at].
type answer struct {
	event contract.Event
	at    int // the index of an event that will be stored; -1: event is stored already
}

// plan decides each request of a group in turn; refused ones, and those whose events are
// all stored already, are answered at once. last is the log's last sequence.
func (l *Log) plan(ctx context.Context, group []*request, last uint64) *plan {
	p := &plan{ids: make(map[key]int, 1)}
	for _, r := range group {
		answers, undo, err := l.place(ctx, p, r, last)
		if err != nil {
			undo()
			r.done <- result{err: err}
			continue
		}
		p.await(r, answers)
	}
	return p
}

// await notes the answers that a placed request waits for. A request whose events are all
// stored already is answered at once.
func (p *plan) await(r *request, answers []answer) {
	if slices.ContainsFunc(answers, func(a answer) bool { return a.at >= 0 }) {
		p.open, p.answers = append(p.open, r), append(p.answers, answers)
		return
	}
	r.done <- result{events: p.eventsOf(answers)}
}

func (p *plan) eventsOf(answers []answer) []contract.Event {
	events := make([]contract.Event, len(answers))
	for i, a := range answers {
		if a.at >= 0 {
			a.event = p.events[a.at]
		}
		events[i] = a.event
	}
	return events
}

// answer answers the first requests, as far as all their events are stored.
func (p *plan) answer() {
	for len(p.open) > 0 && !slices.ContainsFunc(p.answers[0], func(a answer) bool { return a.at >= p.stored }) {
		p.open[0].done <- result{events: p.eventsOf(p.answers[0])}
		p.open, p.answers = p.open[1:], p.answers[1:]
	}
}

// taken is the error of an id that another event has.
func taken(id string, seq uint64) error {
	return fault.New("", fault.Conflict, "", &contract.FieldError{Field: "id", Reason: fmt.Sprintf("%s is taken by event %d, whose content is another", id, seq)})
}

// place adds one request's events to the plan; undo takes them out again.
func (l *Log) place(ctx context.Context, p *plan, r *request, last uint64) (answers []answer, undo func(), err error) {
	start := len(p.events)
	type change struct {
		subject string
		old     uint64
		had     bool
	}
	var changes []change
	undo = func() {
		for i := len(changes) - 1; i >= 0; i-- {
			if c := changes[i]; c.had {
				p.subject[c.subject] = c.old
			} else {
				delete(p.subject, c.subject)
			}
		}
		for _, e := range p.events[start:] {
			delete(p.ids, keyOf(e))
		}
		p.events, p.tied = p.events[:start], p.tied[:start]
	}
	for i := range r.items {
		it := &r.items[i]
		// Only at the first try: a second one may find what the first has stored.
		fresh := it.fresh
		it.fresh = false
		if at, ok := p.ids[it.key]; ok {
			if !it.same(contract.Digest(p.events[at])) {
				return nil, undo, taken(it.event.ID, p.events[at].Sequence)
			}
			answers = append(answers, answer{at: at})
			continue
		}
		old, ok, err := l.tail.find(ctx, it.key, last, fresh)
		if err != nil {
			return nil, undo, err
		}
		if ok {
			if !it.same(old.digest) {
				return nil, undo, taken(it.event.ID, old.seq)
			}
			page, err := l.Read(ctx, old.seq-1, 1)
			if err != nil {
				return nil, undo, err
			}
			answers = append(answers, answer{event: page[0], at: -1})
			continue
		}
		newest, had := p.subject[it.event.Subject]
		if it.expect != nil {
			actual := newest
			if !had {
				if actual, err = l.tail.newest(ctx, it.event.Subject, last); err != nil {
					return nil, undo, err
				}
			}
			if actual != it.expect.Last {
				return nil, undo, fault.New("", fault.Conflict, "Read what changed, and try again.",
					&ExpectError{Subject: it.event.Subject, Want: it.expect.Last, Last: actual})
			}
		}
		e := it.event
		e.Sequence = last + uint64(len(p.events)) + 1
		if e.Sequence > contract.MaxSequence {
			return nil, undo, fault.New("", fault.Exhausted, "", errors.New("the log has no sequences left"))
		}
		if e.Subject != "" {
			changes = append(changes, change{e.Subject, newest, had})
			if p.subject == nil {
				p.subject = map[string]uint64{}
			}
			p.subject[e.Subject] = e.Sequence
		}
		p.ids[it.key] = len(p.events)
		answers = append(answers, answer{at: len(p.events)})
		p.tied = append(p.tied, r.whole() && len(p.events) > start)
		p.events = append(p.events, e)
	}
	return answers, undo, nil
}
