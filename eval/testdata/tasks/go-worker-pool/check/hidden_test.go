package pool

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

func within(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("it hangs")
	}
}

func TestHiddenRun(t *testing.T) {
	boom := errors.New("boom")
	within(t, func() {
		var now, most, began atomic.Int64
		var jobs []func(context.Context) error
		for i := range 40 {
			jobs = append(jobs, func(context.Context) error {
				began.Add(1)
				if n := now.Add(1); n > most.Load() {
					most.Store(n)
				}
				defer now.Add(-1)
				if i == 5 {
					return boom
				}
				return nil
			})
		}
		if err := Run(context.Background(), 3, jobs); err != boom {
			t.Errorf("got %v", err)
		}
		if most.Load() > 3 || now.Load() != 0 || began.Load() == 40 && false {
			t.Errorf("%d at a time, %d left", most.Load(), now.Load())
		}
	})
	within(t, func() {
		ctx, cancel := context.WithCancel(context.Background())
		var began atomic.Int64
		jobs := []func(context.Context) error{
			func(context.Context) error { cancel(); return nil },
			func(context.Context) error { began.Add(1); return nil },
		}
		if err := Run(ctx, 1, jobs); !errors.Is(err, context.Canceled) || began.Load() != 0 {
			t.Errorf("got %v, %d began after the end", err, began.Load())
		}
	})
	within(t, func() {
		if err := Run(context.Background(), 2, nil); err != nil {
			t.Error(err)
		}
	})
}
