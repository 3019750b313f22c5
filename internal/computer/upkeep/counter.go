package upkeep

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/ledger"
)

const (
	// countPause is how long the sum of what was spent waits for more to count. Before a
	// budget is checked against the sum, it is updated at once.
	countPause = 100 * time.Millisecond
	// countWait bounds how long a computer that falls asleep counts; the rest is counted
	// when somebody asks.
	countWait = 5 * time.Second
)

// Counter has what a computer spent counted for the whole machine, up to the end of its log.
type Counter struct {
	Log    *ledger.Log
	Count  func() func(ctx context.Context, log *ledger.Log) error // who counts; it returns nil for nobody
	Once   func(what string, f func(context.Context) error)        // runs f in the background, once
	Logger *slog.Logger

	soon atomic.Bool // a count is about to begin
}

// CountSoon counts in the background. If the computer closes before that, CountAsleep does it.
func (c *Counter) CountSoon() {
	count := c.Count()
	if count == nil || c.soon.Swap(true) {
		return
	}
	c.Once("counting what was spent", func(ctx context.Context) error {
		if !awake.Pause(ctx, countPause) {
			return nil
		}
		c.soon.Store(false) // what is appended from now on needs another count
		return count(ctx, c.Log)
	})
}

// CountAsleep counts what is left of a log that is about to be closed, so that what its computer
// spent is known even if it is damaged later.
func (c *Counter) CountAsleep() {
	count := c.Count()
	if count == nil || c.Log.Last() == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), countWait)
	defer cancel()
	if err := count(ctx, c.Log); err != nil {
		c.Logger.Warn("what was spent is not counted to the log's end; it is when somebody asks", "error", err)
	}
}
