package runspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/sandbox"
)

// standBox is a box without a process.
type standBox struct {
	sandbox.Box
	spec sandbox.BoxSpec
	done chan struct{}
	end  func()
}

func (b *standBox) ID() string            { return b.spec.ID }
func (b *standBox) Done() <-chan struct{} { return b.done }
func (b *standBox) Kill() error           { b.end(); return nil }

// asks makes a request of the box's and returns the answer's status.
func (b *standBox) asks() int {
	w := httptest.NewRecorder()
	b.spec.Handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/tasks", nil))
	return w.Code
}

// standPool is a Pool whose boxes have no processes, in the time of a synctest bubble.
type standPool struct {
	*Pool
	cancel context.CancelFunc // ends Keep
	t      *testing.T
	mu     sync.Mutex
	opened []*standBox
	fail   error
	asked  func()                // called when a box is opened
	early  func(b *standBox) int // called with a box before it is open
	limits sandbox.Limits
	lent   func() bool // ends the spares
}

// withPool runs f beside a pool's Keep.
func withPool(t *testing.T, f func(p *standPool)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &standPool{t: t}
		ctx, cancel := context.WithCancel(t.Context())
		p.cancel = cancel
		var work sync.WaitGroup
		p.Pool = NewPool(p, func(_ string, f func(context.Context) error) { work.Go(func() { _ = f(ctx) }) }, slog.New(slog.NewTextHandler(io.Discard, nil)))
		work.Go(func() { _ = p.Keep(ctx) })
		f(p)
		cancel()
		for _, b := range p.living() { // as a computer's end does
			_ = b.Kill()
		}
		work.Wait()
	})
}

func (p *standPool) Lend(end func() bool) (stop func()) {
	p.lent = end
	return func() {}
}

func (p *standPool) Open(ctx context.Context, spec sandbox.BoxSpec) (sandbox.Box, error) {
	return p.Ahead(ctx, spec)
}

func (p *standPool) Ahead(_ context.Context, spec sandbox.BoxSpec) (sandbox.Box, error) {
	b := &standBox{spec: spec, done: make(chan struct{})}
	b.end = sync.OnceFunc(func() { close(b.done) })
	p.mu.Lock()
	early, fail := p.early, p.fail
	if p.asked != nil {
		p.asked()
	}
	if fail != nil {
		p.mu.Unlock()
		return nil, fail
	}
	p.opened = append(p.opened, b)
	p.mu.Unlock()
	if early != nil {
		early(b)
	}
	return b, nil
}

// count is how many boxes have been opened.
func (p *standPool) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.opened)
}

// fails has boxes not open with an error, or open with nil.
func (p *standPool) fails(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail = err
}

// living are the boxes that have not ended.
func (p *standPool) living() []*standBox {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.opened), func(b *standBox) bool { return ended(b) })
}

// lease takes a box as a run does, whose handler answers with a status of its own.
func (p *standPool) lease(kind contract.BoxKind, status int) *standBox {
	p.t.Helper()
	b, err := p.Take(p.t.Context(), sandbox.BoxSpec{ID: fmt.Sprint("asked-", status), Kind: kind, Limits: p.limits,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })})
	if err != nil {
		p.t.Fatal(err)
	}
	return b.(*standBox)
}

// rested lets time pass until nothing more happens of itself.
func (p *standPool) rested(d time.Duration) {
	time.Sleep(d) // of the bubble's clock, which only moves when all wait
	synctest.Wait()
}

func TestASpareIsSomebodysOnce(t *testing.T) {
	withPool(t, func(p *standPool) {
		p.rested(time.Hour)
		if n := len(p.living()); n != 0 {
			t.Fatalf("%d boxes are open before a run used one", n)
		}
		first := p.lease(contract.BoxDirector, 201)
		p.rested(time.Hour)
		if n := len(p.living()); n != 1 {
			t.Fatalf("%d boxes are open beside a run, want its own", n)
		}
		first.end()
		p.rested(rest)
		spares := p.living()
		if len(spares) != 1 || spares[0].spec.Kind != contract.BoxDirector || !strings.HasPrefix(spares[0].ID(), "spare-d-") {
			t.Fatalf("after the run there are %v", spares)
		}
		second := p.lease(contract.BoxDirector, 202)
		if second != spares[0] {
			t.Errorf("the spare was not handed out")
		}
		third := p.lease(contract.BoxDirector, 203)
		if third == second || third == first {
			t.Errorf("a box was handed out twice")
		}
		if a, b := second.asks(), third.asks(); a != 202 || b != 203 {
			t.Errorf("the runs' boxes are answered %d and %d", a, b)
		}
		second.end()
		p.rested(time.Hour)
		if n := len(p.living()); n != 1 {
			t.Errorf("%d boxes are open while one run goes on", n)
		}
	})
}

// TestASpareThatAsksIsEnded: nothing in a box asks the host for anything before its run's message comes, so one
// that does is not ours any more. It gets no answer and no run, and the other kind's spare is as it was.
func TestASpareThatAsksIsEnded(t *testing.T) {
	withPool(t, func(p *standPool) {
		p.lease(contract.BoxDirector, 201).end()
		p.lease(contract.BoxAssociate, 201).end()
		p.rested(rest)
		spares := p.living()
		if len(spares) != 2 {
			t.Fatalf("there are %v", spares)
		}
		bad, other := spares[0], spares[1]
		for range 3 {
			if got := bad.asks(); got != http.StatusForbidden {
				t.Errorf("a box that is nobody's is answered %d", got)
			}
		}
		if b := p.lease(bad.spec.Kind, 202); b == bad {
			t.Error("a box that asked while it was nobody's was handed out")
		}
		synctest.Wait()
		if !ended(bad) || ended(other) {
			t.Errorf("the box that asked has ended: %v; the other one: %v", ended(bad), ended(other))
		}
		if b := p.lease(other.spec.Kind, 203); b != other || b.asks() != 203 || bad.asks() != http.StatusForbidden {
			t.Error("what one box did is another one's matter")
		}
	})
}

// TestASpareThatAsksWhileItIsOpenedIsEnded: a box's guest can ask as soon as it has its connection, which is
// before the box is open.
func TestASpareThatAsksWhileItIsOpenedIsEnded(t *testing.T) {
	withPool(t, func(p *standPool) {
		p.lease(contract.BoxDirector, 201).end()
		p.lease(contract.BoxAssociate, 201).end()
		p.mu.Lock()
		p.early = (*standBox).asks
		p.mu.Unlock()
		before := p.count()
		p.rested(time.Hour)
		if n := p.count() - before; len(p.living()) != 0 || n < 30 || n > 70 {
			t.Errorf("%d boxes wait, and %d were opened in an hour", len(p.living()), n)
		}
	})
}

// TestSparesThatEndAtOnce: each kind's spare ends while the other one's is opened.
func TestSparesThatEndAtOnce(t *testing.T) {
	withPool(t, func(p *standPool) {
		p.lease(contract.BoxDirector, 201).end()
		p.lease(contract.BoxAssociate, 201).end()
		p.mu.Lock()
		p.early = func(b *standBox) int { time.Sleep(time.Millisecond); b.end(); return 0 }
		p.mu.Unlock()
		before := p.count()
		p.rested(time.Hour)
		if n := p.count() - before; n < 60 || n > 140 {
			t.Errorf("%d boxes were opened in an hour", n)
		}
	})
}

// TestWhatIsGivenReachesItsBoxOnly: of two computers' boxes, and of two of one, only the one that a run took
// has what the run gave it.
func TestWhatIsGivenReachesItsBoxOnly(t *testing.T) {
	withPool(t, func(p *standPool) {
		other := &standPool{t: p.t}
		other.Pool = NewPool(other, p.once, p.logger)
		for _, pool := range []*standPool{p, other} {
			pool.lease(contract.BoxDirector, 201).end()
			pool.lease(contract.BoxAssociate, 201).end()
		}
		ctx, cancel := context.WithCancel(p.t.Context())
		kept := make(chan error, 1)
		go func() { kept <- other.Keep(ctx) }()
		p.rested(rest)
		mine, theirs := p.living(), other.living()
		if len(mine) != 2 || len(theirs) != 2 {
			t.Fatalf("%v and %v wait", mine, theirs)
		}
		leased := p.lease(contract.BoxDirector, 202)
		if !slices.Contains(mine, leased) || leased.asks() != 202 {
			t.Errorf("the box %s, which is not of this computer, or has not got its run's answers", leased.ID())
		}
		for _, b := range append(mine, theirs...) {
			if b != leased && b.asks() != http.StatusForbidden {
				t.Errorf("the box %s has answers of another box's run", b.ID())
			}
		}
		cancel()
		if err := <-kept; err != nil {
			t.Error(err)
		}
		for _, b := range other.living() {
			b.end()
		}
	})
}

// TestASpareThatIsLateIsEnded: a run that begins while a spare is opened has a box of its own.
func TestASpareThatIsLateIsEnded(t *testing.T) {
	withPool(t, func(p *standPool) {
		p.lease(contract.BoxDirector, 201).end()
		var runs *standBox
		p.mu.Lock()
		p.early = func(spare *standBox) int {
			p.mu.Lock()
			p.early = nil
			p.mu.Unlock()
			runs = p.lease(contract.BoxDirector, 202)
			return 0
		}
		p.mu.Unlock()
		p.rested(time.Hour)
		if left := p.living(); len(left) != 1 || left[0] != runs || p.count() != 3 {
			t.Errorf("beside the run's %v there are %v; %d were opened", runs, left, p.count())
		}
		runs.end()
		p.rested(rest)
		if left := p.living(); len(left) != 1 {
			t.Errorf("after the run there are %v", left)
		}
	})
}

// TestSparesAreGivenUp: when the machine can open no other box, those that wait are ended at once, and not opened
// again at once.
func TestSparesAreGivenUp(t *testing.T) {
	withPool(t, func(p *standPool) {
		p.lease(contract.BoxDirector, 201).end()
		p.lease(contract.BoxAssociate, 201).end()
		synctest.Wait()
		if p.lent() {
			t.Error("there was something to give up")
		}
		p.rested(rest)
		mine := p.lease(contract.BoxDirector, 202)
		if !p.lent() || p.lent() {
			t.Error("the box that waits was not given up, or twice")
		}
		if left := p.living(); len(left) != 1 || left[0] != mine {
			t.Errorf("beside the run's %v there are %v", mine, left)
		}
		mine.end()
		p.rested(rest)
		if n := len(p.living()); n != 0 {
			t.Errorf("%d boxes wait again", n)
		}
		p.rested(longest)
		if n := len(p.living()); n != 2 {
			t.Errorf("%d boxes wait after a while", n)
		}
	})
}

func TestASpareOfOtherLimitsIsNeverUsed(t *testing.T) {
	withPool(t, func(p *standPool) {
		p.lease(contract.BoxAssociate, 201).end()
		p.rested(rest)
		old := p.living()[0]
		p.limits.Pids = 7
		b := p.lease(contract.BoxAssociate, 202)
		synctest.Wait()
		if b == old || !ended(old) {
			t.Errorf("the spare made for other limits was handed out (%v) or is still there (%v)", b == old, !ended(old))
		}
		b.end()
		p.rested(time.Minute)
		if next := p.living(); len(next) != 1 || next[0].spec.Limits.Pids != 7 {
			t.Errorf("then there are %v", next)
		}
	})
}

func TestASpareThatEndedIsReplaced(t *testing.T) {
	withPool(t, func(p *standPool) {
		p.lease(contract.BoxDirector, 201).end()
		p.rested(rest)
		old := p.living()[0]
		old.end()
		if b := p.lease(contract.BoxDirector, 202); b == old {
			t.Error("a box that had ended was handed out")
		} else {
			b.end()
		}
		p.rested(time.Minute)
		if n := len(p.living()); n != 1 {
			t.Fatalf("%d spares", n)
		}
		// One that always ends at once costs less and less.
		before := p.count()
		for began := time.Now(); time.Since(began) < time.Hour; p.rested(time.Second) {
			for _, b := range p.living() {
				b.end()
			}
		}
		if n := p.count() - before; n < 30 || n > 70 {
			t.Errorf("in an hour %d spares were opened", n)
		}
		p.fails(errors.New("no space"))
		for _, b := range p.living() {
			b.end()
		}
		p.rested(time.Hour)
		p.fails(nil)
		p.rested(2 * longest)
		if n := len(p.living()); n != 1 {
			t.Errorf("%d spares when boxes can be opened again", n)
		}
	})
}

// TestNoSpareIsTriedAgainInTheEnd: a computer that falls asleep while a spare is opened ends that, and then
// nobody may try once more.
func TestNoSpareIsTriedAgainInTheEnd(t *testing.T) {
	withPool(t, func(p *standPool) {
		p.lease(contract.BoxDirector, 201).end()
		asked := 0
		p.mu.Lock()
		p.fail, p.asked = context.Canceled, func() {
			if asked++; asked > 1 {
				panic("it is tried again")
			}
			p.cancel()
		}
		p.mu.Unlock()
		p.rested(time.Hour)
	})
}
