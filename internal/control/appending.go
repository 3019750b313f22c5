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

// appending is how much a request adds to the log. It is counted against the caller's quota once, however
// many steps handle the request.
type appending struct {
	bytes int64
	once  sync.Once
}

// appends estimates how much a request adds to the log; it is nil for a read. The bytes of uploaded files
// are not counted: they are not stored in the log and have limits of their own.
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

// unsaid is what is counted for a request that does not tell its body's length.
const unsaid = 64 << 10
