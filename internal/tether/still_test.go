package tether_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"choir.dev/choiros/internal/tether"
)

// TestWhatWasAnsweredWhileTheHostStoodStillIsRead: the guest answers and closes the stream while
// the host reads nothing for longer than the wait for a closed stream. When the host continues, it
// gets the whole answer.
func TestWhatWasAnsweredWhileTheHostStoodStillIsRead(t *testing.T) {
	limits := tether.Limits{Closing: 20 * time.Millisecond}
	var host *standing
	h, _ := sessionsOver(t, func(c net.Conn) net.Conn {
		host = &standing{Conn: c, on: make(chan struct{})}
		return host
	}, tether.Options{Limits: limits}, tether.Options{Limits: limits, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host.still.Store(true)
		w.Header().Set("Connection", "close")
		_, _ = io.WriteString(w, "how it ended")
		time.AfterFunc(20*limits.Closing, func() { close(host.on) })
	})})
	if got := get(t, h, "/exec"); got != "how it ended" {
		t.Errorf("read %q", got)
	}
}

// standing is the host's end of a connection, which can stop reading: what arrives meanwhile waits
// in the kernel.
type standing struct {
	net.Conn
	still atomic.Bool
	on    chan struct{}
}

func (s *standing) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if s.still.Load() {
		<-s.on
	}
	return n, err
}

// TestWhoStopsReadingHoldsNothing: an answer that its reader leaves ends at once, at the sender's
// end, too. As many as there may be streams would otherwise keep everybody from asking anything.
func TestWhoStopsReadingHoldsNothing(t *testing.T) {
	const streams = 16
	limits := tether.Limits{Streams: streams, Closing: time.Hour} // nothing is reset in this test
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			_, _ = io.Copy(w, endless{}) // until its reader has gone
		}
	})
	host, _ := sessions(t, tether.Options{Limits: limits}, tether.Options{Handler: handler, Limits: limits})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for i := range 4 * streams {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://box/large", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := host.Client().Do(r)
		if err != nil {
			t.Fatalf("after %d answers that were left: %v", i, err)
		}
		if _, err := res.Body.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if err := res.Body.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
