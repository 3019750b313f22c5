package engine_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"choir.dev/choiros/internal/workspace/keeper/httpapi"
	"choir.dev/choiros/internal/workspace/keeper/scan"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// slowRoad leads to a server. A request that names a gate waits until that gate is open.
type slowRoad struct {
	to   string
	came chan struct{}
}

type gateKey struct{}

func (s slowRoad) RoundTrip(r *http.Request) (*http.Response, error) {
	if gate, ok := r.Context().Value(gateKey{}).(chan struct{}); ok {
		s.came <- struct{}{}
		<-gate
	}
	r.URL.Host = s.to
	return http.DefaultTransport.RoundTrip(r)
}

// TestAStillnessIsAsOldAsItsName shows that a request that was under way while somebody began to
// write says nothing about anybody else, however late it arrives.
func TestAStillnessIsAsOldAsItsName(t *testing.T) {
	c := watched(t)
	srv := httptest.NewServer(httpapi.Handler(c.Engine))
	t.Cleanup(srv.Close)
	still := "first"
	road := slowRoad{srv.Listener.Addr().String(), make(chan struct{})}
	k := wire.NewClient(road, func() string { return still })
	ask := func(ctx context.Context) error {
		return k.Call(ctx, "checkpoint", wire.CheckpointRequest{Note: wire.Note{Kind: "before"}}, nil)
	}
	must(t, ask(t.Context()))
	must(t, ask(t.Context()))
	var gates [2]chan struct{}
	var ends [2]chan error
	for i := range gates { // both requests state that nobody can write, which is true
		gates[i], ends[i] = make(chan struct{}), make(chan error, 1)
		go func() { ends[i] <- ask(context.WithValue(t.Context(), gateKey{}, gates[i])) }()
		<-road.came
	}
	still = wire.WritersWatched
	o := openFor(t, c.path("workspace/w/d2/f2")).mapIt(t)
	for i := range gates { // they arrive one after the other
		close(gates[i])
		must(t, <-ends[i])
	}
	o.store(t, 'X')
	must(t, ask(t.Context()))
	c.holds("opened while it was asked", "workspace/w/d2/f2")
	c.beside(false)
	o.end(t)
	if _, err := c.Checkpoint(scan.WithStill(t.Context(), "later"), wire.CheckpointRequest{Note: wire.Note{Kind: "before"}}); err != nil {
		t.Error(err)
	}
}
