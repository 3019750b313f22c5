package egress_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/internal/egress"
)

// TestWhatPassesATunnelIsOnRecord shows that traffic is recorded while a tunnel lives and when it
// ends, and that a tunnel ends if its traffic can't be recorded.
func TestWhatPassesATunnelIsOnRecord(t *testing.T) {
	var mu sync.Mutex
	var got []egress.Traffic
	var failing error
	w := start(t, func(w *world, o *egress.Options, p *egress.Policy, _ *egress.Scope) {
		o.Limits = egress.Limits{Meter: 5 * time.Millisecond}
		o.Meter = func(_ context.Context, _ egress.Scope, tr egress.Traffic) error {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, tr)
			return failing
		}
		p.Rules = rules(t, "tcp://allowed.example:"+fmt.Sprint(w.backAddr.Port()))
	})
	records := func() []egress.Traffic {
		mu.Lock()
		defer mu.Unlock()
		return append([]egress.Traffic(nil), got...)
	}
	conn, _, status := w.connect(w.allowed())
	if !strings.Contains(status, "200") {
		t.Fatal(status)
	}
	say := func(n int) {
		t.Helper()
		// This is the head of a TLS record that is never completed, so that the server waits.
		if _, err := conn.Write(append([]byte{22, 3, 1, 0x3f, 0xff}, make([]byte, n-5)...)); err != nil {
			t.Fatal(err)
		}
	}
	say(1000)
	until(t, func() bool { all := records(); return len(all) > 0 && all[len(all)-1].Sent == 1000 && !all[0].Ended })
	say(500)
	until(t, func() bool { all := records(); return all[len(all)-1].Sent == 1500 })
	conn.Close()
	until(t, func() bool { all := records(); return all[len(all)-1].Ended })
	all := records()
	for _, tr := range all {
		if tr.Tunnel != all[0].Tunnel || tr.Target.Host != "allowed.example" {
			t.Errorf("%+v", tr)
		}
	}

	mu.Lock()
	failing = errors.New("the log is full")
	mu.Unlock()
	again, r, status := w.connect(w.allowed())
	conn = again
	if !strings.Contains(status, "200") {
		t.Fatal(status)
	}
	say(10)
	if _, err := io.ReadAll(r); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("the tunnel did not end: %v", err)
	}
}
