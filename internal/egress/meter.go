package egress

import (
	"context"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
)

// metered records what passes the tunnel from now on. The returned function waits for the tunnel to
// end and records the rest.
func (h *handler) metered(tn *tunnel, t Target) (ended func()) {
	if h.proxy.opt.Meter == nil || defence.Off(defence.EgressMeter) {
		return func() {}
	}
	start, id := time.Now(), contract.NewID()
	record := func(ended bool) error {
		ctx, cancel := context.WithTimeout(context.Background(), h.proxy.limits.Decided)
		defer cancel()
		return h.proxy.opt.Meter(ctx, h.scope, Traffic{Tunnel: id, Target: t, Ended: ended,
			Sent: tn.sent.Load(), Received: tn.received.Load(), Duration: time.Since(start)})
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(h.proxy.limits.Meter)
		defer tick.Stop()
		last := int64(0)
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			now := tn.sent.Load() + tn.received.Load()
			if now == last {
				continue
			}
			if err := record(false); err != nil {
				h.proxy.opt.Logger.Error("a tunnel was ended because what passes it could not be recorded", "box", h.scope.Box, "host", t.Host, "err", err)
				tn.close()
				return
			}
			last = now
		}
	})
	return func() {
		close(stop)
		wg.Wait()
		if err := record(true); err != nil {
			h.proxy.opt.Logger.Error("what passed a tunnel could not be recorded", "box", h.scope.Box, "host", t.Host,
				"sent", tn.sent.Load(), "received", tn.received.Load(), "err", err)
		}
	}
}
