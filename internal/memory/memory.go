package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/state"
)

// Append appends to the computer's log.
type Append func(ctx context.Context, drafts ...contract.Draft) ([]contract.Event, error)

// Log is the computer's log.
type Log interface {
	Append(ctx context.Context, drafts ...contract.Draft) ([]contract.Event, error)
	Last() uint64
}

// Memory keeps the facts of one computer. It is safe for concurrent use.
type Memory struct {
	log   Log
	state *state.Store

	mu     sync.Mutex // held from looking at what is kept until the change of it is in the log
	newest uint64     // sequence of the newest event about facts
	known  bool       // whether newest is known
}

// New makes a Memory. The state must follow the log.
func New(log Log, state *state.Store) *Memory { return &Memory{log: log, state: state} }

// Kept lists the facts that are kept, oldest first.
func (m *Memory) Kept(ctx context.Context) ([]state.Fact, error) {
	return m.list(ctx, state.FactFilter{Kept: true, Limit: state.MaxPage})
}

// Since lists the facts that were remembered, forgotten or restored behind a sequence, oldest first. It costs
// nothing when there are none.
func (m *Memory) Since(ctx context.Context, after uint64) ([]state.Fact, error) {
	newest, err := m.changes(ctx)
	if err != nil || newest <= after {
		return nil, err
	}
	return m.list(ctx, state.FactFilter{Since: after, Limit: state.MaxPage})
}

// changes is the sequence of the newest event about facts. It is read once: nobody else appends any.
func (m *Memory) changes(ctx context.Context) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known {
		return m.newest, nil
	}
	if err := m.state.CaughtUp(ctx, m.log); err != nil {
		return 0, err
	}
	newest, err := m.state.FactsChanged(ctx)
	if err != nil {
		return 0, err
	}
	m.newest, m.known = max(m.newest, newest), true
	return m.newest, nil
}

func (m *Memory) list(ctx context.Context, f state.FactFilter) ([]state.Fact, error) {
	if err := m.state.CaughtUp(ctx, m.log); err != nil {
		return nil, err
	}
	facts, err := m.state.Facts(ctx, f)
	slices.Reverse(facts)
	return facts, err
}

// Remember keeps a fact, which draft holds as a contract.MemoryRemembered, with append. What is kept already in the
// same words is not kept twice. The error is fault.Exhausted when no more is kept.
func (m *Memory) Remember(ctx context.Context, draft contract.Draft, append Append) (state.Fact, error) {
	const op = "memory.Remember"
	p, ok := draft.Data.(*contract.MemoryRemembered)
	if !ok {
		return state.Fact{}, fault.New(op, fault.Internal, "", fmt.Errorf("the data are a %T", draft.Data))
	}
	if err := p.Validate(); err != nil {
		return state.Fact{}, fault.New(op, fault.Invalid, fmt.Sprintf("A fact is one line of at most %d bytes.", contract.MaxFact), err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	kept, err := m.Kept(ctx)
	if err != nil {
		return state.Fact{}, fault.Wrap(op, err)
	}
	for _, f := range kept {
		if f.Text == p.Text {
			return f, nil
		}
	}
	if err := room(kept, []string{p.Text}); err != nil {
		return state.Fact{}, fault.Wrap(op, err)
	}
	es, err := append(ctx, draft)
	if err != nil {
		return state.Fact{}, fault.Wrap(op, err)
	}
	return m.changed(ctx, op, es[0].Sequence, es[0].ID)
}

// changed notes an event about facts and returns one of them as it is then. The caller holds mu.
func (m *Memory) changed(ctx context.Context, op string, seq uint64, id string) (state.Fact, error) {
	m.newest = max(m.newest, seq)
	if err := m.state.Wait(ctx, seq); err != nil {
		return state.Fact{}, fault.Wrap(op, err)
	}
	f, err := m.state.Fact(ctx, id)
	return f, fault.Wrap(op, err)
}

// room reports whether texts may be kept beside what is.
func room(kept []state.Fact, texts []string) error {
	const hint = "Have one forgotten first: choir memory lists them, choir forget FACT."
	bytes := 0
	for _, f := range kept {
		bytes += len(f.Text)
	}
	have := bytes
	for _, t := range texts {
		bytes += len(t)
	}
	switch {
	case len(kept)+len(texts) > contract.MaxFacts:
		return fault.New("", fault.Exhausted, hint, fmt.Errorf("the computer keeps %d facts, and at most %d", len(kept), contract.MaxFacts))
	case bytes > contract.MaxFactsBytes:
		return fault.New("", fault.Exhausted, hint, fmt.Errorf("the computer keeps facts of %d bytes, and at most of %d; this needs %d more", have, contract.MaxFactsBytes, bytes-have))
	}
	return nil
}

// Forget forgets facts and all that follow from them, or all that came from an event, and returns them.
func (m *Memory) Forget(ctx context.Context, by contract.Actor, ids ...string) ([]state.Fact, error) {
	const op = "memory.Forget"
	m.mu.Lock()
	defer m.mu.Unlock()
	kept, err := m.Kept(ctx)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	gone := Following(kept, ids...)
	if len(gone) == 0 {
		return nil, fault.New(op, fault.NotFound, "choir memory lists what is kept.", errors.New("nothing is kept under that id or came from it"))
	}
	return gone, fault.Wrap(op, m.set(ctx, by, gone, false))
}

// Following lists which of facts go with ids: the facts of those ids, those that came from the events of those ids, and
// those that came from these.
func Following(facts []state.Fact, ids ...string) []state.Fact {
	in := map[string]bool{}
	for _, id := range ids {
		in[id] = true
	}
	var out []state.Fact
	for more := true; more; {
		more = false
		for _, f := range facts {
			follows := in[f.ID] || slices.ContainsFunc(f.From, func(from string) bool { return in[from] })
			if follows && !slices.ContainsFunc(out, func(o state.Fact) bool { return o.ID == f.ID }) {
				in[f.ID], more = true, true
				out = append(out, f)
			}
		}
	}
	return out
}

// Restore keeps facts again that were forgotten, and returns them.
func (m *Memory) Restore(ctx context.Context, by contract.Actor, ids []string) ([]state.Fact, error) {
	const op = "memory.Restore"
	m.mu.Lock()
	defer m.mu.Unlock()
	kept, err := m.Kept(ctx)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	var back []state.Fact
	var texts []string
	for _, id := range ids {
		f, err := m.state.Fact(ctx, id)
		if err != nil {
			return nil, fault.Wrap(op, err)
		}
		if !f.Kept {
			back, texts = append(back, f), append(texts, f.Text)
		}
	}
	if len(back) == 0 {
		return nil, fault.New(op, fault.Conflict, "choir memory lists what is kept.", errors.New("it is kept already"))
	}
	if err := room(kept, texts); err != nil {
		return nil, fault.Wrap(op, err)
	}
	return back, fault.Wrap(op, m.set(ctx, by, back, true))
}

// set appends that facts are kept again, or are not. The caller holds mu.
func (m *Memory) set(ctx context.Context, by contract.Actor, facts []state.Fact, kept bool) error {
	ids := make([]string, len(facts))
	for i := range facts {
		ids[i], facts[i].Kept = facts[i].ID, kept
	}
	draft := contract.Draft{Actor: by, Type: "memory.forgotten", Data: &contract.MemoryForgotten{Facts: ids}}
	if kept {
		draft.Type, draft.Data = "memory.restored", &contract.MemoryRestored{Facts: ids}
	}
	es, err := m.log.Append(ctx, draft)
	if err != nil {
		return err
	}
	m.newest = max(m.newest, es[0].Sequence)
	return m.state.Wait(ctx, es[0].Sequence)
}
