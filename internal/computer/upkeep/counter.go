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
	// countPause is how long the update of the sum of what was spent waits for more events.
	// Before a budget is checked against the sum, it is updated at once.
	countPause = 100 * time.Millisecond
	// countWait limits how long a computer that falls asleep counts; the rest is counted
	// when the sum is next needed.
	countWait = 5 * time.Second
)

// Counter adds what a computer spent to the machine's sum, up to the end of its log.
type Counter struct {
	Log    *ledger.Log
	Count  func() func(ctx context.Context, log *ledger.Log) error // returns the function that counts; nil if nothing is counted
	Once   func(what string, f func(context.Context) error)        // runs f in the background, once
	Logger *slog.Logger

	soon atomic.Bool // a count is scheduled
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
		c.soon.Store(false) // events that are appended from now on need another count
		return count(ctx, c.Log)
	})
}

// CountAsleep counts the rest of a log that is about to be closed, so that what its
// computer spent is known even if the log is damaged later.
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
