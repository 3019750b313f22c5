package tether_test

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"

	"choir.dev/choiros/internal/tether"
)

// TestRequestsOverTheLimitWait shows that requests of which more are made at once than the
// other end has streams for are all answered: those over its limit would be closed by it,
// which their caller could not tell from a peer that is gone.
func TestRequestsOverTheLimitWait(t *testing.T) {
	const asked, together = 400, 180
	var mu sync.Mutex
	served, enough := 0, make(chan struct{})
	guest := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		if served++; served == together {
			close(enough)
		}
		mu.Unlock()
		// Nobody is answered until many are under way, so that the rest come meanwhile.
		select {
		case <-enough:
		case <-r.Context().Done():
		}
		_, _ = io.WriteString(w, "ok")
	})
	h, _ := sessions(t, tether.Options{}, tether.Options{Handler: guest})
	start := make(chan struct{})
	failed := make(chan error, asked)
	var all sync.WaitGroup
	for range asked {
		all.Go(func() {
			<-start
			res, err := h.Client().Post("http://box/", "text/plain", http.NoBody)
			if err != nil {
				failed <- err
				return
			}
			defer func() { _ = res.Body.Close() }()
			if body, err := io.ReadAll(res.Body); err != nil || string(body) != "ok" {
				failed <- fmt.Errorf("answered %q, %w", body, err)
			}
		})
	}
	close(start)
	all.Wait()
	close(failed)
	for err := range failed {
		t.Error(err)
	}
}
