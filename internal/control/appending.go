package control

import (
	"context"
	"net/http"
	"strings"
	"sync"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/control/origin"
	"choir.dev/choiros/internal/rpc"
)

// appending is what a request asks to be stored.
type appending struct {
	bytes int64
	once  sync.Once
}

// appends is what a request asks to be stored in the log; nil for a read. Files
// go elsewhere and have limits of their own.
func appends(r *http.Request) *appending {
	if !origin.Unsafe(r) {
		return nil
	}
	n := min(r.ContentLength, rpc.MaxBody)
	switch {
	case strings.HasSuffix(r.URL.Path, "/content") || strings.HasSuffix(r.URL.Path, "/add/tar") || strings.HasSuffix(r.URL.Path, "/git-receive-pack"):
		n = 1 << 10
	case n < 0:
		n = unsaid
	}
	return &appending{bytes: n}
}

// take counts what a request appends, once, when its computer is known.
func (s *Server) take(ctx context.Context, cid contract.CID, take func(ctx context.Context, session string, cid contract.CID, bytes int64) error) (err error) {
	c := callerOf(ctx)
	if c.appends == nil {
		return nil
	}
	session := "token/" + c.user
	if c.session != nil {
		session = c.session.ID
	}
	c.appends.once.Do(func() { err = take(ctx, session, cid, c.appends.bytes) })
	return err
}

// unsaid is what is counted for a body that does not say how long it is.
const unsaid = 64 << 10
