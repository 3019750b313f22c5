package dispatch

import (
	"context"
	"sync/atomic"
)

// untilBoth returns a context that ends when both a and b have ended; it has the values of a.
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
