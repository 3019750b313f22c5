package gateway

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"choir.dev/choiros/test/choirtest"
)

// listing is a service that counts how often it is asked for its models, and answers once it may.
func listing(t *testing.T, may <-chan struct{}) (base string, asked *atomic.Int64) {
	t.Helper()
	asked = &atomic.Int64{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/models" {
			http.NotFound(w, r)
			return
		}
		n := asked.Add(1)
		select {
		case <-may: // never, if it is nil
			fmt.Fprintf(w, `{"data":[{"id":"m-%d"}]}`, n)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(s.Close)
	return s.URL + "/v1", asked
}

func with(t *testing.T, o Options) *Gateway {
	t.Helper()
	o.Logger, o.LocalBaseURL = slog.New(slog.DiscardHandler), "none"
	g, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return g
}

// TestAServiceIsAskedOnceForItsModels: by all that want to know at the same moment, and by nobody again for some minutes; of
// another key at once.
func TestAServiceIsAskedOnceForItsModels(t *testing.T) {
	may := make(chan struct{})
	base, asked := listing(t, may)
	keys := map[string]string{"ACME_API_KEY": "key-1234"}
	g := with(t, Options{Default: "acme/*", Providers: map[string]Service{"acme": {BaseURL: base, Key: "ACME_API_KEY"}}, Keys: Env(func(name string) string { return keys[name] })})
	if _, model, err := g.Resolve(Known(t.Context()), Scope{}); err != nil || model != "*" {
		t.Errorf("before it is known: %q, %v", model, err)
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, model, err := g.Resolve(t.Context(), Scope{}); err != nil || model != "m-1" {
				t.Errorf("got %q, %v", model, err)
			}
		})
	}
	close(may)
	all.Wait()
	for range 20 {
		g.Models(t.Context())
		g.Choosable(t.Context(), Scope{})
	}
	if _, model, err := g.Resolve(Known(t.Context()), Scope{}); err != nil || model != "m-1" {
		t.Errorf("once it is known: %q, %v", model, err)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("it was asked %d times", n)
	}
	keys["ACME_API_KEY"] = "key-5678"
	if _, model, err := g.Resolve(t.Context(), Scope{}); err != nil || model != "m-2" {
		t.Errorf("with another key: %q, %v", model, err)
	}
}

// TestAListThatIsOldIsAskedForAside: who waits for no service has the old one meanwhile, and the new one then.
func TestAListThatIsOldIsAskedForAside(t *testing.T) {
	may := make(chan struct{})
	close(may)
	base, asked := listing(t, may)
	g := with(t, Options{Default: "acme/*", Providers: map[string]Service{"acme": {BaseURL: base}}})
	if _, model, err := g.Resolve(t.Context(), Scope{}); err != nil || model != "m-1" {
		t.Fatalf("got %q, %v", model, err)
	}
	g.lists.mu.Lock()
	g.lists.of["acme"].until = time.Now().Add(-time.Second)
	g.lists.mu.Unlock()
	model := func() string {
		_, model, err := g.Resolve(Known(t.Context()), Scope{})
		if err != nil {
			t.Fatal(err)
		}
		return model
	}
	if got := model(); got != "m-1" {
		t.Errorf("got %q meanwhile", got)
	}
	choirtest.Eventually(t, 10*time.Second, "it is asked", func() bool { return model() == "m-2" })
	if n := asked.Load(); n != 2 {
		t.Errorf("it was asked %d times", n)
	}
}

// TestCloseEndsWhatIsAskedAside: a service that never answers outlives no gateway.
func TestCloseEndsWhatIsAskedAside(t *testing.T) {
	base, asked := listing(t, nil)
	g := with(t, Options{Default: "acme/*", Providers: map[string]Service{"acme": {BaseURL: base}}})
	g.Look(t.Context(), Scope{})
	choirtest.Eventually(t, 10*time.Second, "it is asked", func() bool { return asked.Load() == 1 })
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := g.Resolve(t.Context(), Scope{}); err == nil {
		t.Error("it is asked after the end")
	}
}
