package httpio

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

func init() { bodyIdle = 50 * time.Millisecond }

// TestWhoIsSilentIsLetGo shows that a client that announces a body and does not send it is
// answered, and loses its connection, whether the request is refused unread, read, or read in
// part, and that one that sends it keeps the connection for its next request.
func TestWhoIsSilentIsLetGo(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/unread", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	mux.HandleFunc("/read", func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(NewBody(r.Body, w)); err != nil {
			w.WriteHeader(http.StatusRequestTimeout)
		}
	})
	mux.HandleFunc("/part", func(w http.ResponseWriter, r *http.Request) {
		b := NewBody(r.Body, w)
		if _, err := io.ReadFull(b, make([]byte, 2)); err != nil {
			t.Error(err)
		}
	})
	ctx, end := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, ln, mux, slog.New(slog.DiscardHandler), nil) }()
	defer func() {
		end()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	for path, want := range map[string]string{"/unread": "HTTP/1.1 403", "/read": "HTTP/1.1 408", "/part": "HTTP/1.1 200"} {
		t.Run(path, func(t *testing.T) {
			got, err := asked(t, ln.Addr().String(), path, "silent")
			if !strings.HasPrefix(got, want) || err != nil {
				t.Errorf("answered %.40q, and then %v; want %s, and the end", got, err, want)
			}
		})
	}
	got, err := asked(t, ln.Addr().String(), "/read", "0123456789POST /read HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 1\r\n\r\n0")
	if n := strings.Count(got, "HTTP/1.1 200"); n != 2 || err != nil {
		t.Errorf("two requests on one connection were answered %d times (%v): %.200q", n, err, got)
	}
}

// asked sends a request with a body of 10 bytes, of which sent is what comes, and returns what is
// answered until the server closes the connection.
func asked(t *testing.T, to, path, sent string) (string, error) {
	t.Helper()
	c, err := net.Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil { // so that a failure is told
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n%s", path, sent); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(c)
	return string(b), err
}
