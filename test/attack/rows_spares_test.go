package attack_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer/runspace"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/sandboxtest"
)

// pool is a computer's pool of boxes that wait for runs, with a real driver.
type pool struct {
	*runspace.Pool
	t      *testing.T
	e      *sandboxtest.Env
	spec   sandbox.BoxSpec // of what is taken
	waits  chan struct{}   // gets a value when a box waits
	mu     sync.Mutex
	spare  sandbox.Box      // the last one that was opened for nobody
	answer map[string][]int // by box: the statuses of what it asked
}

// newPool makes a pool whose boxes have a guest, and has a run use the first one.
func newPool(t *testing.T, guestBinary string, spec sandbox.BoxSpec) *pool {
	t.Helper()
	p := &pool{t: t, e: newEnv(t, guestBinary), waits: make(chan struct{}, 100), answer: map[string][]int{}}
	spec.Kind, spec.Mounts = contract.BoxDirector, append(spec.Mounts, p.e.ProbeMount())
	p.spec = spec
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	p.Pool = runspace.NewPool(p, func(what string, f func(context.Context) error) {
		work.Go(func() { _ = f(ctx) }) // a box that can't be ended fails the computer's end
		if what == "the watch of a spare box" {
			p.waits <- struct{}{}
		}
	}, slog.New(slog.DiscardHandler))
	work.Go(func() { _ = p.Keep(ctx) })
	t.Cleanup(func() {
		cancel()
		if err := p.e.Computer.Close(); err != nil {
			t.Errorf("close the computer: %v", err)
		}
		work.Wait()
	})
	if err := p.take("first").Kill(); err != nil {
		t.Fatal(err)
	}
	return p
}

// Lend implements runspace.Opener: here nobody else needs a box.
func (p *pool) Lend(func() bool) (stop func()) { return func() {} }

// Open implements runspace.Opener.
func (p *pool) Open(ctx context.Context, spec sandbox.BoxSpec) (sandbox.Box, error) {
	return p.Ahead(ctx, spec)
}

// Ahead implements runspace.Opener.
func (p *pool) Ahead(ctx context.Context, spec sandbox.BoxSpec) (sandbox.Box, error) {
	id, handler := spec.ID, spec.Handler
	spec.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen := httptest.NewRecorder()
		handler.ServeHTTP(seen, r)
		p.mu.Lock()
		p.answer[id] = append(p.answer[id], seen.Code)
		p.mu.Unlock()
		w.WriteHeader(seen.Code)
	})
	b, err := p.e.Computer.Box(ctx, spec)
	if err == nil && strings.HasPrefix(id, "spare-") {
		p.mu.Lock()
		p.spare = b
		p.mu.Unlock()
	}
	return b, err
}

// take takes a box for a run, whose handler accepts whatever is asked.
func (p *pool) take(run string) sandbox.Box {
	p.t.Helper()
	spec := p.spec
	spec.ID, spec.Handler = run, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })
	b, err := p.Take(p.t.Context(), spec)
	if err != nil {
		p.t.Fatal(err)
	}
	return b
}

// waiting returns a box that waits.
func (p *pool) waiting() sandbox.Box {
	p.t.Helper()
	select {
	case <-p.waits:
	case <-time.After(30 * time.Second):
		p.t.Fatal("no box waits")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.spare
}

// asked returns how boxes that were opened for nobody were answered.
func (p *pool) asked() (statuses []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, s := range p.answer {
		if strings.HasPrefix(id, "spare-") {
			statuses = append(statuses, s...)
		}
	}
	return statuses
}

// inWaiting runs the probe in a box like the one of our own loops that waits for a run.
func inWaiting(argv ...string) func(*testing.T) Verdict {
	return func(t *testing.T) Verdict {
		p := newPool(t, sandboxtest.BareGuest(t), sandbox.BoxSpec{Mounts: []sandbox.Mount{{Source: sandbox.Live(""), Target: "/computer", Mode: sandbox.ReadWrite}}})
		return probed(t, guest.NewClient(p.waiting().Tether().Transport()), argv...)
	}
}

// waitingWith runs the probe in a box with limits that waits for a run.
func waitingWith(limits sandbox.Limits, argv ...string) func(*testing.T) Verdict {
	return func(t *testing.T) Verdict {
		p := newPool(t, sandboxtest.BareGuest(t), sandbox.BoxSpec{Limits: limits})
		return probed(t, guest.NewClient(p.waiting().Tether().Transport()), argv...)
	}
}

// tamperingWaiting has the guest of a box that waits attack the host. The attack works if the box still lives
// after 3 s.
func tamperingWaiting(way string) func(*testing.T) Verdict {
	return func(t *testing.T) Verdict {
		b := newPool(t, sandboxtest.BadGuest(t), sandbox.BoxSpec{Env: map[string]string{"WAY": way}}).waiting()
		select {
		case <-b.Done():
			return Verdict{false, fmt.Sprint(b.Err())}
		case <-time.After(3 * time.Second):
			return Verdict{true, "after 3 s the box goes on"}
		}
	}
}

// asking makes a pool whose boxes ask the host as soon as they are there, and returns once one has that is
// nobody's.
func asking(t *testing.T) *pool {
	p := newPool(t, sandboxtest.BadGuest(t), sandbox.BoxSpec{Env: map[string]string{"WAY": "ask"}})
	sandboxtest.Eventually(t, 30*time.Second, "a box that is nobody's asked for something", func() bool { return len(p.asked()) > 0 })
	return p
}

var spareRows = []Row{
	{Number: 9, Attack: "a box that was opened for other limits is used after these changed", Defences: []defence.Name{defence.SpareSame}, Run: func(t *testing.T) Verdict {
		p := newPool(t, sandboxtest.BareGuest(t), sandbox.BoxSpec{Limits: sandbox.Limits{Pids: 200}})
		old := p.waiting()
		p.spec.Limits.Pids = 100
		now := p.take("second")
		return Verdict{now == old, fmt.Sprintf("%s waited, and %s is used", old.ID(), now.ID())}
	}},
	{Number: 13, Attack: "a box that waits for a run takes more memory than it may have", Defences: []defence.Name{defence.BoxMemory}, NotAs: map[string]string{"user": groupNote}, Lacks: lacksGroups("cgroup-memory"),
		Run: waitingWith(sandbox.Limits{MemoryBytes: 128 << 20}, "eat", "200")},
	{Number: 13, Attack: "a box that waits for a run starts more processes than it may have", Defences: []defence.Name{defence.BoxProcesses}, Lacks: lacksGroups("cgroup-pids"),
		Run: waitingWith(sandbox.Limits{Pids: 100}, "forks", "150")},
	{Number: 14, Attack: "a box is given to a second run, and what the first left in it is there", Defences: []defence.Name{defence.SpareOnce}, Run: func(t *testing.T) Verdict {
		p := newPool(t, sandboxtest.BareGuest(t), sandbox.BoxSpec{})
		p.waiting()
		first, second := p.take("second"), p.take("third")
		return Verdict{first == second, fmt.Sprintf("%s and %s are used", first.ID(), second.ID())}
	}},
	{Number: 15, Attack: "a box that waits for a run is answered as the run before it was", Defences: []defence.Name{defence.SpareNobodys}, Run: func(t *testing.T) Verdict {
		said := asking(t).asked()
		return Verdict{said[0] != http.StatusForbidden, fmt.Sprintf("it was answered %v", said)}
	}},
	{Number: 15, Attack: "a box that waits for a run asks the host until it has one, and goes on in the run's name", Defences: []defence.Name{defence.SpareSilent}, Run: func(t *testing.T) Verdict {
		p := asking(t)
		select { // as long as the guest asks while its box is opened, nothing waits that can be taken
		case <-p.waits:
		case <-time.After(3 * time.Second):
		}
		mine := p.take("second")
		return Verdict{strings.HasPrefix(mine.ID(), "spare-"), mine.ID() + " is used"}
	}},
	{Number: 15, Attack: "a box that waits for a run floods the host with pings", Defences: []defence.Name{defence.TetherPings}, Run: tamperingWaiting("ping-flood")},
	{Number: 15, Attack: "a box that waits for a run opens streams as fast as it can", Defences: []defence.Name{defence.TetherOpens}, Run: tamperingWaiting("stream-flood")},
}
