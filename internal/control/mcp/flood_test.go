package mcp_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/control/mcp"
)

// TestCallsOfASessionAreBounded: those that are under way, also in one batch, and of requests whose client has left.
func TestCallsOfASessionAreBounded(t *testing.T) {
	var open, most atomic.Int64
	over := make(chan struct{})
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := open.Add(1)
		defer open.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		select {
		case <-r.Context().Done():
		case <-over:
		}
	})
	s := mcp.New("v", api, slog.New(slog.DiscardHandler))
	who := mcp.Caller{ID: "a", Computer: contract.NewCID(), Actor: contract.Person("u")}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.Serve(w, r, who); err != nil {
			http.Error(w, err.Error(), http.StatusTooManyRequests)
		}
	}))
	defer server.Close()
	defer func() { close(over); _ = s.Close() }()
	post := poster(t, server.URL)
	id := begin(t, post)
	call := func(n int) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"files_read","arguments":{"path":"a"}}}`, n)
	}
	leave := func(body string) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		post(ctx, id, body)
	}
	for n := range 40 {
		leave(call(100 + n))
	}
	if n := most.Load(); n > 16 {
		t.Errorf("%d calls are under way of clients that have left", n)
	}
	var batch []string
	for n := range 100 {
		batch = append(batch, call(1000+n))
	}
	leave("[" + strings.Join(batch, ",") + "]")
	time.Sleep(200 * time.Millisecond)
	if n := most.Load(); n > 16 {
		t.Errorf("%d calls are under way behind a batch", n)
	}
}

// poster sends messages of the protocol, without a session or in one.
func poster(t *testing.T, url string) func(ctx context.Context, session, body string) *http.Response {
	return func(ctx context.Context, session, body string) *http.Response {
		r, err := http.NewRequestWithContext(ctx, "POST", url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		if session != "" {
			r.Header.Set("Mcp-Session-Id", session)
			r.Header.Set("Mcp-Protocol-Version", "2025-03-26")
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			return nil
		}
		_ = res.Body.Close()
		return res
	}
}

// begin begins a session and returns its id.
func begin(t *testing.T, post func(ctx context.Context, session, body string) *http.Response) string {
	t.Helper()
	res := post(t.Context(), "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
	if res == nil || res.Header.Get("Mcp-Session-Id") == "" {
		t.Fatalf("%+v", res)
	}
	id := res.Header.Get("Mcp-Session-Id")
	post(t.Context(), id, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return id
}

// TestClosingEndsCallsThatAreUnderWay: a call that waits for a run, or a command, does not keep the control plane from ending.
func TestClosingEndsCallsThatAreUnderWay(t *testing.T) {
	reached := make(chan struct{}, 1)
	api := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		reached <- struct{}{}
		<-r.Context().Done()
	})
	s := mcp.New("v", api, slog.New(slog.DiscardHandler))
	who := mcp.Caller{ID: "a", Computer: contract.NewCID(), Actor: contract.Person("u")}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _ = s.Serve(w, r, who) }))
	defer server.Close()
	post := poster(t, server.URL)
	id := begin(t, post)
	go post(t.Context(), id, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"files_read","arguments":{"path":"a"}}}`)
	<-reached
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	select {
	case <-closed:
	case <-time.After(20 * time.Second):
		t.Fatal("it waits for a call that does not end by itself")
	}
}
