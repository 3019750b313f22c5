package runspace

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/sandbox"
)

const (
	// rest is for how long a computer's runs must have had no box open before a spare one is opened,
	// so that no run pays for it.
	rest = 100 * time.Millisecond
	// again and longest bound the pause before a spare is opened after one ended unused or could not be
	// opened. The pause doubles until one is used.
	again, longest = time.Second, time.Minute
)

// Pool keeps a box open that nobody uses yet for each kind of which nothing is said of a run before the
// box is used: those of our own loops, which have no tree, no network and no secrets. A box is handed out
// once. It is opened when runs have rested, and only for kinds that a run has used since the computer woke.
type Pool struct {
	boxes  Opener
	once   func(what string, f func(context.Context) error)
	logger *slog.Logger

	mu      sync.Mutex
	held    int // boxes that runs have open or are opening
	used    map[contract.BoxKind]sandbox.BoxSpec
	spares  map[contract.BoxKind]*spare
	pause   time.Duration // from when runs begin to rest, or from a failure, until spares are opened
	changed chan struct{} // holds a value when a box began, ended or was taken since Keep looked
}

// Opener opens the boxes of one computer, which end with the computer at the latest.
type Opener interface {
	// Open opens a box for a run.
	Open(ctx context.Context, spec sandbox.BoxSpec) (sandbox.Box, error)
	// Ahead opens a box that nobody needs yet.
	Ahead(ctx context.Context, spec sandbox.BoxSpec) (sandbox.Box, error)
	// Lend has end called if somebody's box can't be opened. end ends what was opened ahead and nobody has, and
	// says whether there was any.
	Lend(end func() bool) (stop func())
}

// spare is a box that is open for whoever needs one next. It is also the handler of what the box asks of the
// host, all of which is refused until a run has it.
type spare struct {
	pool *Pool
	box  sandbox.Box // set before the pool hands it out
	spec sandbox.BoxSpec
	// run answers the box for the run that has it; nil while nobody has it. It is set once, with the pool's
	// mutex held.
	run atomic.Pointer[http.Handler]
	// spoilt says that the box asked for something while it was nobody's; guarded by the pool's mutex.
	spoilt bool
}

func (s *spare) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.run.Load() == nil && s.pool.spoil(s) {
		http.Error(w, "this box is nobody's yet", http.StatusForbidden)
		return
	}
	(*s.run.Load()).ServeHTTP(w, r)
}

// NewPool makes a Pool that has no box yet. once runs a function in the background that ends by itself.
func NewPool(boxes Opener, once func(string, func(context.Context) error), logger *slog.Logger) *Pool {
	return &Pool{boxes: boxes, once: once, logger: logger, used: map[contract.BoxKind]sandbox.BoxSpec{}, spares: map[contract.BoxKind]*spare{},
		pause: rest, changed: make(chan struct{}, 1)}
}

// Take hands a spare box out, or opens one if there is none that is just what is asked for.
func (p *Pool) Take(ctx context.Context, spec sandbox.BoxSpec) (sandbox.Box, error) {
	if s := p.take(spec); s != nil {
		return s.box, nil
	}
	return p.Run(func() (sandbox.Box, error) { return p.boxes.Open(ctx, spec) })
}

// take removes the spare of a kind from the pool and has it answered by the run. If it was opened for other
// limits or another view than are wanted now it is ended, and if it has ended by itself there is none.
func (p *Pool) take(spec sandbox.BoxSpec) *spare {
	wanted := made(spec)
	p.mu.Lock()
	p.used[spec.Kind] = wanted
	s := p.spares[spec.Kind]
	if !defence.Off(defence.SpareOnce) {
		delete(p.spares, spec.Kind)
	}
	if s == nil || ended(s.box) {
		p.mu.Unlock()
		return nil
	}
	if !reflect.DeepEqual(s.spec, wanted) && !defence.Off(defence.SpareSame) {
		p.mu.Unlock()
		p.discard(s)
		return nil
	}
	p.held++ // until closed finds that it has ended
	p.pause = rest
	s.run.Store(&spec.Handler)
	p.mu.Unlock()
	return s
}

// spoil ends a spare that asked for something of the host, which nothing in it does before its run's message
// comes. It returns false if a run has it meanwhile.
func (p *Pool) spoil(s *spare) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.run.Load() != nil {
		return false
	}
	if s.spoilt || defence.Off(defence.SpareSilent) {
		return true
	}
	s.spoilt = true
	if p.spares[s.spec.Kind] == s { // otherwise it is being opened
		delete(p.spares, s.spec.Kind)
		p.logger.Warn("a box that waits for a run asked for something before it has one, and is ended", "box", s.box.ID())
		p.discard(s)
	}
	return true
}

// discard ends a spare that no run gets any more.
func (p *Pool) discard(s *spare) {
	p.once("ending a spare box", func(context.Context) error { return s.box.Kill() })
}

// made is what a box is made of: all of its spec that is not its identity.
func made(spec sandbox.BoxSpec) sandbox.BoxSpec {
	spec.ID = ""
	if !defence.Off(defence.SpareNobodys) {
		spec.Handler = nil
	}
	return spec
}

func ended(b sandbox.Box) bool {
	select {
	case <-b.Done():
		return true
	default:
		return false
	}
}

// Run opens a box for a run. No spare is opened until it has ended.
func (p *Pool) Run(open func() (sandbox.Box, error)) (sandbox.Box, error) {
	p.mu.Lock()
	p.held++
	p.mu.Unlock()
	release := func() {
		p.mu.Lock()
		p.held--
		p.mu.Unlock()
		p.wake()
	}
	box, err := open()
	if err != nil {
		release()
		return nil, err
	}
	p.once("the watch of a run's box", func(context.Context) error { <-box.Done(); release(); return nil })
	return box, nil
}

func (p *Pool) wake() {
	select {
	case p.changed <- struct{}{}:
	default: // Keep has not looked since the last one
	}
}

// Keep opens spare boxes whenever the computer's runs have rested, until ctx ends.
func (p *Pool) Keep(ctx context.Context) error {
	defer p.boxes.Lend(p.giveUp)()
	timer := time.NewTimer(rest)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.changed:
			p.mu.Lock()
			timer.Reset(p.pause)
			p.mu.Unlock()
		case <-timer.C:
			p.fill(ctx)
		}
	}
}

// giveUp ends the spares, because the machine can open no box that somebody needs, and returns when they have
// ended.
func (p *Pool) giveUp() bool {
	p.mu.Lock()
	spares := slices.Collect(maps.Values(p.spares))
	clear(p.spares)
	p.mu.Unlock()
	for _, s := range spares {
		if err := s.box.Kill(); err != nil {
			p.logger.Warn("a box that waits for a run could not be ended", "box", s.box.ID(), "error", err)
		}
	}
	return len(spares) > 0
}

// fill opens a spare of each kind that has none, one after the other, until a run needs a box. One that ends
// meanwhile is not opened again before the pause.
func (p *Pool) fill(ctx context.Context) {
	for _, kind := range []contract.BoxKind{contract.BoxDirector, contract.BoxAssociate} {
		p.mu.Lock()
		spec, used := p.used[kind]
		lacks := used && p.held == 0 && p.spares[kind] == nil
		p.mu.Unlock()
		if !lacks {
			continue
		}
		err := p.add(ctx, spec)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			p.logger.Warn("a box could not be opened ahead; runs open their own", "kind", kind, "error", err)
			p.failed()
			return
		}
	}
}

// add opens a spare.
func (p *Pool) add(ctx context.Context, spec sandbox.BoxSpec) error {
	s := &spare{pool: p, spec: spec}
	spec.ID = "spare-" + string(spec.Kind[:1]) + "-" + contract.NewID()
	if spec.Handler == nil { // as made leaves it
		spec.Handler = s
	}
	box, err := p.boxes.Ahead(ctx, spec)
	if err != nil {
		return err
	}
	p.mu.Lock()
	s.box = box
	spoilt, late := s.spoilt, p.held > 0
	if !spoilt && !late {
		p.spares[spec.Kind] = s
	}
	p.mu.Unlock()
	if spoilt {
		return errors.Join(errors.New("it asked for something as it began"), box.Kill())
	}
	if late { // a run has opened its own, and a box that waits has waited since the last run's ended
		return box.Kill()
	}
	p.once("the watch of a spare box", func(context.Context) error { <-box.Done(); p.closed(s); return nil })
	return nil
}

// closed takes note of the end of a box that was a spare, used or not.
func (p *Pool) closed(s *spare) {
	p.mu.Lock()
	if s.run.Load() != nil {
		p.held--
		p.mu.Unlock()
		p.wake()
		return
	}
	if p.spares[s.spec.Kind] == s {
		delete(p.spares, s.spec.Kind)
	}
	p.mu.Unlock()
	p.failed()
}

// failed has Keep wait longer before it opens a spare again.
func (p *Pool) failed() {
	p.mu.Lock()
	p.pause = min(max(2*p.pause, again), longest)
	p.mu.Unlock()
	p.wake()
}
