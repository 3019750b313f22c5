package loops

import (
	"context"
	"net/http"
	"sync"
)

// Gate admits a loop's requests until it is shut. When Shut returns, no request is under
// way: what the loop asked for is in the story or was refused, so the story is complete for
// those who read it next.
type Gate struct {
	mu   sync.Mutex
	down bool
	in   sync.WaitGroup
	ctx  context.Context // ends the requests under way
	End  context.CancelFunc
}

// NewGate makes an open gate, for requests that end with ctx.
func NewGate(ctx context.Context) *Gate {
	g := &Gate{}
	g.ctx, g.End = context.WithCancel(ctx)
	return g
}

// Guard lets requests to h through as long as the gate is open.
func (g *Gate) Guard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		g.mu.Lock()
		if g.down {
			g.mu.Unlock()
			Refuse(w, http.StatusGone, ErrGone)
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

// Close admits no further requests, calls kill to end the box that sends them, and waits for
// those under way. It may be called more than once.
func (g *Gate) Close(kill func()) {
	g.mu.Lock()
	g.down = true
	g.mu.Unlock()
	kill()
	g.End()
	g.in.Wait()
}
