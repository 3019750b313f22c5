package mcp

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/control/httpio"
	"choir.dev/choiros/internal/control/problem"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/mcpserver"
	"choir.dev/choiros/internal/rpc"
)

// Limits of sessions.
const (
	maxSessions = 200 // in all
	maxCallers  = 16  // of one caller
	maxRequests = 16  // requests under way of one session
	maxRequest  = 4 << 20
	idle        = 30 * time.Minute // after which a session that is not asked anything ends
)

// sessionHeader is the protocol's.
const sessionHeader = "Mcp-Session-Id"

// Caller is who asks, of which computer, after both were checked.
type Caller struct {
	ID       string // of the session or the token that the request came with
	Computer contract.CID
	Actor    contract.Actor
}

// Sessions are the sessions of one control plane. They are safe for many goroutines.
type Sessions struct {
	version string
	api     http.Handler
	handler *sdk.StreamableHTTPHandler
	log     *slog.Logger
	// calls ends with Close, and with it every request to the API that is under way.
	calls context.Context
	end   context.CancelFunc

	mu   sync.Mutex
	open map[string]*session
}

type session struct {
	Caller
	server *sdk.Server
	asked  int           // requests under way
	begun  bool          // whether its first request is over
	calls  chan struct{} // holds a value for each request to the API that is under way
}

type sessionKey struct{}

// New makes the sessions, which ask api.
func New(version string, api http.Handler, log *slog.Logger) *Sessions {
	s := &Sessions{version: version, api: api, log: log, open: map[string]*session{}}
	s.calls, s.end = context.WithCancel(context.Background())
	s.handler = sdk.NewStreamableHTTPHandler(func(r *http.Request) *sdk.Server {
		of, _ := r.Context().Value(sessionKey{}).(*session)
		if of == nil {
			return nil
		}
		return of.server
	}, &sdk.StreamableHTTPOptions{
		SessionTimeout: idle, MaxRequestBodyBytes: maxRequest,
		DisableLocalhostProtection: true, // the control plane answers to its own names only
		Logger:                     slog.New(errorsOnly{log.Handler()}),
	})
	return s
}

// Serve answers a request of a caller who may use the computer.
func (s *Sessions) Serve(w http.ResponseWriter, r *http.Request, who Caller) error {
	id := r.Header.Get(sessionHeader)
	of, release, err := s.take(id, who, r.Method == http.MethodPost)
	if err != nil {
		return err
	}
	defer release()
	r.Body = io.NopCloser(httpio.Limit(r.Body, maxRequest))
	s.handler.ServeHTTP(httpio.Deadlined(w), r.WithContext(context.WithValue(r.Context(), sessionKey{}, of)))
	return nil
}

// take returns the session of a request, which is a new one if it names none, and counts the
// request to it.
func (s *Sessions) take(id string, who Caller, begins bool) (*session, func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prune()
	of := s.open[id]
	switch {
	case id == "" && begins:
		mine := 0
		for _, other := range s.open {
			if other.ID == who.ID {
				mine++
			}
		}
		if (len(s.open) >= maxSessions || mine >= maxCallers) && !defence.Off(defence.MCPSessions) {
			return nil, nil, problem.Refuse(http.StatusTooManyRequests, fault.Exhausted, "too many sessions are open", "End some; each ends by itself after half an hour without a request.")
		}
		var err error
		if of, _, err = s.begin(who); err != nil {
			return nil, nil, err
		}
	case of == nil, (of.ID != who.ID || of.Computer != who.Computer) && !defence.Off(defence.MCPSession):
		return nil, nil, problem.Refuse(http.StatusNotFound, fault.NotFound, "there is no such session", "Begin one.")
	}
	if of.asked >= maxRequests {
		return nil, nil, problem.Refuse(http.StatusTooManyRequests, fault.Exhausted, "too many requests of this session are under way", "Wait for some of them.")
	}
	of.asked++
	return of, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		of.asked--
		of.begun = true
	}, nil
}

// begin makes a session. Its id is drawn here and not by the client, so that nobody guesses it.
func (s *Sessions) begin(who Caller) (*session, string, error) {
	of, id := &session{Caller: who, calls: make(chan struct{}, maxRequests)}, rand.Text()+rand.Text()
	var err error
	of.server, err = mcpserver.New(mcpserver.Options{
		Computer: string(who.Computer), Version: s.version, Can: who.Actor.Can, Send: s.bounded(of), SessionID: func() string { return id },
	})
	if err == nil {
		s.open[id] = of
	}
	return of, id, err
}

// bounded is send for one session. Calls are counted here, too: one request may bring many, and they go on when its
// client has left.
func (s *Sessions) bounded(of *session) mcpserver.Send {
	return func(ctx context.Context, header http.Header, call rpc.Request, body io.Reader, content string) (*http.Response, error) {
		select {
		case of.calls <- struct{}{}:
		default:
			return nil, fault.New("mcp", fault.Exhausted, "Wait for some of them.", errors.New("too many calls of this session are under way"))
		}
		done := sync.OnceFunc(func() { <-of.calls })
		res, err := s.send(ctx, header, call, body, content)
		if err != nil {
			done()
			return nil, err
		}
		res.Body = &ending{res.Body, func(end func() error) func() error {
			return func() error { defer done(); return end() }
		}(res.Body.Close)}
		return res, nil
	}
}

// prune forgets the sessions that have ended.
func (s *Sessions) prune() {
	for id, of := range s.open {
		if of.begun && of.asked == 0 && len(slices.Collect(of.server.Sessions())) == 0 {
			delete(s.open, id)
		}
	}
}

// Close ends all sessions.
func (s *Sessions) Close() error {
	s.end() // a session's end waits for its calls
	s.mu.Lock()
	open := s.open
	s.open = map[string]*session{}
	s.mu.Unlock()
	var all error
	for _, of := range open {
		for one := range of.server.Sessions() {
			all = errors.Join(all, one.Close())
		}
	}
	return all
}

// errorsOnly leaves out what clients cause.
type errorsOnly struct{ slog.Handler }

// Enabled implements slog.Handler.
func (errorsOnly) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }
