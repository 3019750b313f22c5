package quota

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
)

// Limits bounds what clients may append to the log: what a browser, or a program with a
// token, stores in its user's name. Zero means no limit.
type Limits struct {
	SessionEvents  int   // of one session in a minute, which it may also use at once
	SessionBytes   int64 //
	ComputerEvents int   // of all sessions of one computer in a minute
	ComputerBytes  int64 //
	DayEvents      int   // of one computer in a UTC day
	DayBytes       int64 //
}

// Quota counts what clients append against the limits.
type Quota struct {
	limits   Limits
	log      *slog.Logger
	now      func() time.Time
	appended func(ctx context.Context, cid contract.CID, since time.Time) (events int, bytes int64, err error)

	mu        sync.Mutex
	sessions  map[string]*rates
	computers map[contract.CID]*rates
	days      map[contract.CID]*dayCount
	refused   map[contract.CID]refusedAt
	swept     time.Time
}

// rates limits how many events and bytes are taken per second.
type rates struct {
	events, bytes *rate.Limiter
	last          time.Time
}

// dayCount is what was appended to a computer's log in its users' names on one day.
type dayCount struct {
	day    time.Time
	events int
	bytes  int64
}

// refusedAt is the newest refusal of a computer's clients, which its console shows.
type refusedAt struct {
	at  time.Time
	why string
}

const (
	paceIdle     = 10 * time.Minute // after this, a session's rates are forgotten; their buckets are full by then
	soon         = "Wait a minute."
	refusedShown = 2 * time.Minute // how long the console says that something was refused
)

func New(limits Limits, log *slog.Logger, now func() time.Time, appended func(context.Context, contract.CID, time.Time) (int, int64, error)) *Quota {
	return &Quota{limits: limits, log: log, now: now, appended: appended, sessions: map[string]*rates{}, computers: map[contract.CID]*rates{},
		days: map[contract.CID]*dayCount{}, refused: map[contract.CID]refusedAt{}}
}

func newPace(events int, bytes int64) *rates {
	p := &rates{events: rate.NewLimiter(rate.Inf, 0), bytes: rate.NewLimiter(rate.Inf, 0)}
	if events > 0 {
		p.events = rate.NewLimiter(rate.Limit(float64(events)/60), events)
	}
	if bytes > 0 {
		p.bytes = rate.NewLimiter(rate.Limit(float64(bytes)/60), int(bytes))
	}
	return p
}

// Take counts one append of the given size, or refuses it with fault.Exhausted.
func (f *Quota) Take(ctx context.Context, session string, cid contract.CID, bytes int64) error {
	if defence.Off(defence.ClientFlood) {
		return nil
	}
	now := f.now()
	if err := f.open(ctx, cid, now); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sweep(now)
	l, d := f.limits, f.days[cid]
	mine, all := f.session(session), f.computers[cid]
	if all == nil {
		all = newPace(l.ComputerEvents, l.ComputerBytes)
		f.computers[cid] = all
	}
	mine.last, all.last = now, now
	const tomorrow = "It goes on at midnight UTC; the limit is budget.day_events and budget.day_mb in the configuration."
	switch {
	case l.DayEvents > 0 && d.events >= l.DayEvents:
		return f.refuse(cid, now, tomorrow, fmt.Sprintf("clients have stored %d events in this computer today, which is its limit", d.events))
	case l.DayBytes > 0 && d.bytes+bytes > l.DayBytes:
		return f.refuse(cid, now, tomorrow, fmt.Sprintf("clients have stored %d MB in this computer today, which is its limit", d.bytes>>20))
	case !mine.allow(now, bytes):
		return f.refuse(cid, now, soon, f.tooFast())
	case !all.allow(now, bytes):
		return f.refuse(cid, now, soon, fmt.Sprintf("this computer's sessions store more than %d events or %d MB a minute", l.ComputerEvents, l.ComputerBytes>>20))
	}
	d.events++
	d.bytes += bytes
	return nil
}

// Govern counts one action by which a user stops, decides or takes back something. Such
// actions count only against a rate of their own for each session.
func (f *Quota) Govern(_ context.Context, session string, cid contract.CID, bytes int64) error {
	now := f.now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sweep(now)
	mine := f.session("governs/" + session)
	if mine.last = now; !mine.allow(now, bytes) {
		return f.refuse(cid, now, soon, f.tooFast())
	}
	return nil
}

// session returns a session's rates. The caller holds f.mu.
func (f *Quota) session(id string) *rates {
	if f.sessions[id] == nil {
		f.sessions[id] = newPace(f.limits.SessionEvents, f.limits.SessionBytes)
	}
	return f.sessions[id]
}

func (f *Quota) tooFast() string {
	return fmt.Sprintf("this session stores more than %d events or %d MB a minute", f.limits.SessionEvents, f.limits.SessionBytes>>20)
}

func (p *rates) allow(now time.Time, bytes int64) bool {
	return p.bytes.AllowN(now, int(bytes)) && p.events.AllowN(now, 1)
}

// refuse remembers a refusal for the console, and logs the first of several like it.
func (f *Quota) refuse(cid contract.CID, now time.Time, hint, why string) error {
	if last := f.refused[cid]; now.Sub(last.at) > refusedShown || last.why != why {
		f.log.Warn("a client's appends were refused", "computer", cid, "reason", why)
	}
	f.refused[cid] = refusedAt{now, why}
	return fault.New("", fault.Exhausted, hint, fmt.Errorf("too much at once: %s", why))
}

// Refused returns what was refused lately, for the computer's console.
func (f *Quota) Refused(cid contract.CID) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r, ok := f.refused[cid]; ok && f.now().Sub(r.at) < refusedShown {
		return r.why
	}
	return ""
}

// open begins a day's count with what the log already holds of that day, so that a restart
// does not reset it.
func (f *Quota) open(ctx context.Context, cid contract.CID, now time.Time) error {
	day := now.UTC().Truncate(24 * time.Hour)
	f.mu.Lock()
	known := f.days[cid] != nil && f.days[cid].day.Equal(day)
	f.mu.Unlock()
	if known {
		return nil
	}
	events, bytes, err := f.appended(ctx, cid, day)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if d := f.days[cid]; d == nil || !d.day.Equal(day) {
		f.days[cid] = &dayCount{day: day, events: events, bytes: bytes}
	}
	return nil
}

// sweep forgets the rates of sessions that have been idle for long.
func (f *Quota) sweep(now time.Time) {
	if now.Sub(f.swept) < paceIdle {
		return
	}
	f.swept = now
	for id, p := range f.sessions {
		if now.Sub(p.last) > paceIdle {
			delete(f.sessions, id)
		}
	}
}
