package awake

import (
	"context"
	"time"
)

// Pause waits for d by the machine's clock, for example between two tries; it returns false
// if ctx ended.
func Pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
