package dispatch

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
)

// gate lets a loop's requests in until it is shut. When shut returns, none is
// under way: what the loop asked for is in the story or was refused, so whoever
// reads the story next reads all of it.
type gate struct {
	mu   sync.Mutex
	down bool
	in   sync.WaitGroup
	ctx  context.Context // of what is under way
	end  context.CancelFunc
}

func newGate(ctx context.Context) *gate {
	g := &gate{}
	g.ctx, g.end = context.WithCancel(ctx)
	return g
}

func (g *gate) guard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		g.mu.Lock()
		if g.down {
			g.mu.Unlock()
			refuse(w, http.StatusGone, errGone)
			return
		}
		g.in.Add(1)
		g.mu.Unlock()
		defer g.in.Done()
		ctx, cancel := context.WithCancel(req.Context())
		defer cancel()
		stop := context.AfterFunc(g.ctx, cancel)
		defer stop()
		h.ServeHTTP(w, req.WithContext(ctx))
	})
}

// shut lets nobody in any more, calls kill to end the box that asks, and waits.
// It may be called again.
func (g *gate) shut(kill func()) {
	g.mu.Lock()
	g.down = true
	g.mu.Unlock()
	kill()
	g.end()
	g.in.Wait()
}

// untilBoth returns a context that ends when both have, with a's values.
func untilBoth(a, b context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(a))
	var left atomic.Int32
	left.Store(2)
	one := func() {
		if left.Add(-1) == 0 {
			cancel()
		}
	}
	stopA, stopB := context.AfterFunc(a, one), context.AfterFunc(b, one)
	return ctx, func() { stopA(); stopB(); cancel() }
}
