package gateway

import (
	"context"
	"errors"
	"sync"
	"time"

	"choir.dev/choiros/contract"
)

// errChosen ends a request to a model in whose place the user has chosen another.
var errChosen = errors.New("the user has chosen another model")

// growth is when an answer grew last.
type growth struct {
	mu    sync.Mutex
	begun bool
	last  time.Duration
}

func (g *growth) note(now time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.begun, g.last = true, now
}

func (g *growth) newest() (begun bool, last time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.begun, g.last
}

// heed ends a request once the user has chosen another model: at once while nothing of its answer has come, otherwise
// when the answer has not grown for Limits.Tell. One that arrives is not thrown away. It returns when ctx ends.
func (c *call) heed(ctx context.Context, end context.CancelCauseFunc, g *growth) {
	select {
	case <-ctx.Done():
		return
	case <-c.another: // never, where no user can choose
	}
	for {
		begun, last := g.newest()
		if begun && c.reader.delta != nil && c.reader.again == nil {
			return // what was read can't be taken back
		}
		left := last + c.gateway.limits.Tell - c.gateway.clock.Now()
		if !begun || left <= 0 {
			end(errChosen)
			return
		}
		over, stop := c.gateway.clock.After(left)
		select {
		case <-ctx.Done():
			stop()
			return
		case <-over:
		}
	}
}

// turnTo has the call go on with the model that its user has chosen. broke is the error of the request that was ended
// for that, if one was.
func (c *call) turnTo(ctx context.Context, broke error) error {
	var made *tryError
	if errors.As(broke, &made) && made.shown {
		c.reader.again()
	}
	c.waitOver(ctx, contract.ModelResumed{Outcome: contract.WaitSwitched})
	return c.choose(ctx)
}
