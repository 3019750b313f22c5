package gateway_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/gateway"
	"choir.dev/choiros/test/choirtest"
	"choir.dev/choiros/test/modelserver"
)

// TestWhatACallCostIsItsLoopsToStore: what records a call's cost may leave the storing to the loop, but not that of a call that was cut off:
// its loop may have ended before it stores anything.
func TestWhatACallCostIsItsLoopsToStore(t *testing.T) {
	var mu sync.Mutex
	var left []bool
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	g, server, _ := play(t, modelserver.OpenAI, func(o *gateway.Options) {
		o.Meter = func(_ context.Context, s gateway.Scope, _ contract.UsageMetered) error {
			mu.Lock()
			defer mu.Unlock()
			left = append(left, s.Hold != nil)
			return nil
		}
	}, modelserver.Turn{Text: "All that there is to say."}, modelserver.Turn{Text: "All that there is to say, and then some.", Hold: "never"})
	sc := scope()
	sc.Hold = func(contract.Draft) error { return nil }
	if _, err := g.Turn(ctx, sc, say("hi"), nil); err != nil {
		t.Fatal(err)
	}
	cut := make(chan error, 1)
	go func() { _, err := g.Turn(ctx, sc, say("hi again"), nil); cut <- err }()
	choirtest.Eventually(t, 20*time.Second, "the model is asked again", func() bool { return server.Held("never") })
	cancel()
	if <-cut == nil {
		t.Fatal("a call that was cut off has an answer")
	}
	mu.Lock()
	defer mu.Unlock()
	if len(left) != 2 || !left[0] || left[1] {
		t.Errorf("left to the loop: %v", left)
	}
}

// TestWhatAFailedCallCostIsStoredAtOnce: its loop has nothing to say of it, and may wait for another model for hours.
func TestWhatAFailedCallCostIsStoredAtOnce(t *testing.T) {
	var mu sync.Mutex
	left := map[string]bool{}
	g, _, _ := play(t, modelserver.OpenAI, func(o *gateway.Options) {
		o.Meter = func(_ context.Context, s gateway.Scope, m contract.UsageMetered) error {
			mu.Lock()
			defer mu.Unlock()
			left[m.Outcome] = s.Hold != nil
			return nil
		}
	}, modelserver.Turn{Text: "Half of what there is to say.", Fault: &modelserver.Fault{Kind: "cut"}, Repeat: true})
	sc := scope()
	sc.Hold = func(contract.Draft) error { return nil }
	if _, err := g.Turn(t.Context(), sc, say("hi"), nil); err == nil {
		t.Fatal("what broke off is an answer")
	}
	mu.Lock()
	defer mu.Unlock()
	if held, ok := left["unavailable"]; !ok || held {
		t.Errorf("left to the loop: %v", left)
	}
}
