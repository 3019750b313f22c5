package breaker

import (
	"maps"
	"math/rand/v2"
	"sync"
	"time"
)

// Options configure a Set. All are required.
type Options struct {
	Now   func() time.Duration // the time since some moment
	After int                  // so many failures in a row open a breaker
	First time.Duration        // how long it is open at first; each failed probe doubles that
	Most  time.Duration        // and how long at most
}

// Set holds a breaker for each service by its name. It is safe for concurrent use.
type Set struct {
	options Options

	mu      sync.Mutex
	by      map[string]*Breaker
	changed chan struct{} // closed and replaced when a breaker of the set opens or closes
}

// Breaker is the breaker of one service.
type Breaker struct {
	set *Set

	failures int // in a row
	since    time.Duration
	code     string // of the newest failure
	open     bool
	until    time.Duration // when it may be probed
	opened   int           // how often it opened without having closed
	probing  bool
}

// Permit allows one call, whose holder has to say how it ended, at least with Left.
type Permit struct {
	breaker *Breaker
	probe   bool
	said    bool
}

// maxKept is how many breakers are kept before those without failures are dropped.
const maxKept = 500

// New makes a set without breakers.
func New(o Options) *Set {
	return &Set{options: o, by: map[string]*Breaker{}, changed: make(chan struct{})}
}

// Of returns the breaker of a service.
func (s *Set) Of(name string) *Breaker {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.by[name]
	if b == nil {
		if len(s.by) >= maxKept { // names may be made up
			maps.DeleteFunc(s.by, func(_ string, b *Breaker) bool { return b.failures == 0 })
		}
		b = &Breaker{set: s}
		s.by[name] = b
	}
	return b
}

// Changed returns a channel that is closed when any breaker of the set opens or closes.
func (s *Set) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// tell wakes those who wait for a change. The caller holds mu.
func (s *Set) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Take returns a permit for one call, or when to ask again at the latest, which a change of the set
// can bring forward.
func (b *Breaker) Take() (p *Permit, again time.Duration) {
	b.set.mu.Lock()
	defer b.set.mu.Unlock()
	now := b.set.options.Now()
	switch {
	case !b.open:
		return &Permit{breaker: b}, 0
	case b.probing:
		return nil, now + b.set.options.Most
	case now < b.until:
		return nil, b.until
	}
	b.probing = true
	return &Permit{breaker: b, probe: true}, 0
}

// Failing says since when the service has failed, and with which code the last time.
func (b *Breaker) Failing() (since time.Duration, code string, ok bool) {
	b.set.mu.Lock()
	defer b.set.mu.Unlock()
	return b.since, b.code, b.failures > 0
}

// Answered says that the service answers. It may be said before the call has ended, and again.
func (p *Permit) Answered() {
	b := p.breaker
	b.set.mu.Lock()
	defer b.set.mu.Unlock()
	p.said = true
	was := b.open
	b.failures, b.open, b.opened = 0, false, 0
	if p.probe {
		b.probing = false
	}
	if was {
		b.set.tell()
	}
}

// Failed says that the service failed, with which code, and for how long it is not to be asked; 0 if
// it did not say.
func (p *Permit) Failed(code string, keep time.Duration) {
	b, o := p.breaker, p.breaker.set.options
	b.set.mu.Lock()
	defer b.set.mu.Unlock()
	p.said = true
	now := o.Now()
	if b.failures == 0 {
		b.since = now
	}
	b.failures++
	b.code = code
	if p.probe {
		b.probing = false
	}
	switch {
	case keep > 0:
		b.until = max(b.until, now+keep)
	case p.probe, !b.open && b.failures >= o.After:
		d := min(o.First<<min(b.opened, 20), o.Most)
		b.until = now + d - time.Duration(rand.Int64N(int64(d)/4+1)) // several machines do not ask at the same moment
	default:
		return
	}
	b.open = true
	b.opened++
	b.set.tell()
}

// Left says that the call ended without saying anything of the service, unless something was said.
func (p *Permit) Left() {
	b := p.breaker
	b.set.mu.Lock()
	defer b.set.mu.Unlock()
	if p.said {
		return
	}
	p.said = true
	if p.probe {
		b.probing = false
		b.set.tell() // another may probe now
	}
}
