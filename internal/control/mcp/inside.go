package mcp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/rpc"
)

// credentials are the headers by which the API knows who asks, and from where.
var credentials = []string{"Authorization", "Cookie", "Origin", "Sec-Fetch-Site"}

// send asks the API as the caller whose request brought the call: with the same credentials,
// which the API checks again, so that a token that was revoked meanwhile does nothing more.
func (s *Sessions) send(ctx context.Context, header http.Header, call rpc.Request, body io.Reader, content string) (*http.Response, error) {
	if body == nil {
		body = http.NoBody
	}
	target := url.URL{Scheme: "http", Host: "localhost", RawQuery: call.Query.Encode()}
	if err := setPath(&target, call.Path); err != nil {
		return nil, fault.New("mcp", fault.Invalid, "", err)
	}
	// The context of the request that brought the call has values that are not this one's.
	inner, cancel := context.WithCancelCause(s.calls)
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	r, err := http.NewRequestWithContext(inner, call.Verb, target.String(), body)
	if err != nil {
		stop()
		return nil, fault.New("mcp", fault.Invalid, "", err)
	}
	r.RemoteAddr = "127.0.0.1:0"
	if call.Header != nil {
		r.Header = call.Header.Clone()
	}
	for _, name := range credentials {
		if values := header.Values(name); len(values) > 0 {
			r.Header[name] = values
		}
	}
	if content != "" {
		r.Header.Set("Content-Type", content)
	}
	from, to := io.Pipe()
	a := &answer{header: http.Header{}, to: to, began: make(chan struct{})}
	var handler sync.WaitGroup
	handler.Go(func() {
		defer func() {
			var err error
			if p := recover(); p != nil { // as net/http does: a request's panic is the request's
				if p != http.ErrAbortHandler {
					s.log.Error("a request panicked", "request", call.Path, "panic", p, "stack", string(debug.Stack()))
				}
				err = io.ErrUnexpectedEOF
				a.WriteHeader(http.StatusInternalServerError)
			}
			a.WriteHeader(http.StatusOK)
			to.CloseWithError(err)
		}()
		s.api.ServeHTTP(a, r)
	})
	end := func() error {
		stop()
		cancel(context.Canceled)
		err := from.Close()
		handler.Wait()
		return err
	}
	select {
	case <-a.began:
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), end())
	}
	res := &http.Response{StatusCode: a.status, Header: a.sent, Body: &ending{from, end}, ContentLength: -1, Request: r}
	if n := a.sent.Get("Content-Length"); n != "" {
		res.ContentLength = length(n)
	}
	return res, nil
}

func setPath(u *url.URL, escaped string) (err error) {
	u.RawPath = escaped
	u.Path, err = url.PathUnescape(escaped)
	return err
}

// answer is the writer that the API answers to.
type answer struct {
	header http.Header
	sent   http.Header // as it was when the status was
	status int
	once   sync.Once
	began  chan struct{}
	to     *io.PipeWriter
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if status < 200 {
		return
	}
	a.once.Do(func() {
		a.status, a.sent = status, a.header.Clone()
		close(a.began)
	})
}

// Write implements http.ResponseWriter.
func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.to.Write(p)
}

// The rest is what http.ResponseController asks for. A request's time is its context's.

// Flush implements http.Flusher.
func (a *answer) Flush() { a.WriteHeader(http.StatusOK) }

// EnableFullDuplex says that the request can be read while it is answered.
func (a *answer) EnableFullDuplex() error { return nil }

// SetReadDeadline is for connections.
func (a *answer) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline is for connections.
func (a *answer) SetWriteDeadline(time.Time) error { return nil }

// ending is a body whose closing ends its request.
type ending struct {
	io.Reader
	end func() error
}

// Close implements io.Closer.
func (e *ending) Close() error { return e.end() }

// length reads a Content-Length; -1: it is not known.
func length(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return -1
	}
	return n
}
