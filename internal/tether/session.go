package tether

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"

	"choir.dev/choiros/internal/fault"
)

// window is Limits.Window where nothing else is asked for, and the least that the
// multiplexer takes.
const window = 256 << 10

// writeBuffer is the size of the buffer for requests, so that a header and a small body go
// out as one frame: each frame costs either end a switch of goroutines.
const writeBuffer = 16 << 10

// streams is Limits.Streams where nothing else is asked for.
const streams = 256

// requests is how many requests of this end are under way at a time, of any session: the
// next one waits until one of them ends. The other end closes streams over its own limit,
// which would fail a request, and it may not have noticed yet that the last ones are over.
const requests = streams * 3 / 4

// Limits bound what the peer can make this end hold in memory, which is at most Streams
// times Window on streams that the peer opened. Zero values mean the defaults.
type Limits struct {
	Handshake      time.Duration // default 5 s
	ReadHeader     time.Duration // how long a request's header may take to arrive; default 10 s
	Idle           time.Duration // how long a kept-alive stream without a request stays open; default 2 min
	Closing        time.Duration // after this a stream that the host has closed and the guest has not is reset; default 10 s
	HeaderBytes    int           // default 64 KiB
	BodyBytes      int64         // of one request; default 32 MiB, negative: no limit
	Streams        int           // how many of the peer's may be open at the same time; default 256
	Window         int           // bytes that the peer may send on a stream before they are read; default and least 256 KiB
	OpensPerSecond float64       // how many streams the peer may open each second on average; default 2000
}

func (l Limits) filled() Limits {
	set := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	set(&l.Handshake, 5*time.Second)
	set(&l.ReadHeader, 10*time.Second)
	set(&l.Idle, 2*time.Minute)
	set(&l.Closing, 10*time.Second)
	if l.HeaderBytes <= 0 {
		l.HeaderBytes = 64 << 10
	}
	if l.BodyBytes == 0 {
		l.BodyBytes = 32 << 20
	}
	if l.Streams <= 0 {
		l.Streams = streams
	}
	l.Window = max(l.Window, window)
	if l.OpensPerSecond <= 0 {
		l.OpensPerSecond = 2000
	}
	return l
}

// Options configure one end. Handler serves the requests of the other end; without one they
// are answered with 404.
type Options struct {
	Token   *Token
	Handler http.Handler
	Limits  Limits
	Logger  *slog.Logger
}

// Session is one end of a tether.
type Session struct {
	id        string
	conn      net.Conn
	mux       *yamux.Session
	server    *http.Server
	transport *http.Transport
	client    *http.Client
	open      atomic.Int64
	limits    Limits
	done      chan struct{}
	serving   sync.WaitGroup
	closing   sync.Once

	mu  sync.Mutex
	err error
}

// Accept runs the host's end on conn. From then on the session owns conn, also when Accept
// fails. Errors: fault.Denied (wrong or used token), fault.Timeout, fault.Unavailable (the
// connection broke).
func Accept(ctx context.Context, conn net.Conn, o Options) (*Session, error) {
	return start(ctx, "tether.Accept", conn, o, accept, yamux.Server)
}

// Dial runs the guest's end on conn; see Accept.
func Dial(ctx context.Context, conn net.Conn, o Options) (*Session, error) {
	return start(ctx, "tether.Dial", conn, o, dial, yamux.Client)
}

func start(ctx context.Context, op string, conn net.Conn, o Options, half func(net.Conn, []byte) ([]byte, error), muxer func(io.ReadWriteCloser, *yamux.Config) (*yamux.Session, error)) (*Session, error) {
	limits := o.Limits.filled()
	if o.Token == nil {
		_ = conn.Close()
		return nil, fault.New(op, fault.Invalid, "", errors.New("no token"))
	}
	key, err := bounded(ctx, op, conn, o.Token, limits.Handshake, half)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	openTimeout, closeTimeout := 30*time.Second, limits.Closing
	if op == "tether.Dial" {
		// A host that stands still has not gone: its end of the pipe closes when it does.
		// A stream that is closed meanwhile must not be reset, because a reset discards
		// what was sent on it and not read yet, such as a command's exit code.
		openTimeout, closeTimeout = 0, 0
	}
	if pipe, ok := conn.(*net.UnixConn); ok {
		// The kernel gives as much of this as it allows, so that a sender of a file need
		// not wait after each frame.
		_ = pipe.SetWriteBuffer(4 * window)
	}
	s := &Session{id: fmt.Sprintf("%x", key[:8]), conn: conn, limits: limits, done: make(chan struct{})}
	config := yamux.DefaultConfig()
	config.AcceptBacklog = limits.Streams
	config.EnableKeepAlive = false // a dead pipe reports itself; a busy box is not dead
	config.ConnectionWriteTimeout = 30 * time.Second
	config.MaxStreamWindowSize = uint32(limits.Window)
	config.StreamOpenTimeout = openTimeout
	config.StreamCloseTimeout = closeTimeout
	config.LogOutput = io.Discard
	mux, err := muxer(newGuard(&joined{Conn: conn}, limits, s.fail), config)
	if err != nil {
		_ = conn.Close()
		return nil, fault.New(op, fault.Internal, "", err)
	}
	s.mux = mux
	s.transport = &http.Transport{
		DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return s.Stream(ctx) },
		DisableCompression:     true,
		MaxIdleConns:           16,
		MaxIdleConnsPerHost:    16,
		MaxConnsPerHost:        requests,
		IdleConnTimeout:        limits.Idle / 2,
		WriteBufferSize:        writeBuffer,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: int64(limits.HeaderBytes),
	}
	s.client = &http.Client{Transport: rebase{s.transport}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	handler := o.Handler
	if handler == nil {
		handler = http.NotFoundHandler()
	}
	if limits.BodyBytes > 0 {
		handler = boundBody(handler, limits.BodyBytes)
	}
	handler = leaving(handler)
	errorLog := slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	if o.Logger != nil {
		errorLog = slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug)
	}
	s.server = &http.Server{
		Handler: handler, ReadHeaderTimeout: limits.ReadHeader, IdleTimeout: limits.Idle,
		MaxHeaderBytes: limits.HeaderBytes, ErrorLog: errorLog,
	}
	s.serving.Go(func() {
		_ = s.server.Serve(listener{s}) // ends with the multiplexer, whose error is kept by fail
		s.shut()
	})
	return s, nil
}

// leaving ends an answer that the other end has stopped reading. Its stream would otherwise
// stay open until it is reset (Limits.Closing): a write waits for room that nobody makes. Who
// reads a byte of a large file 128 times in a row would have used up all streams.
func leaving(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stop := context.AfterFunc(r.Context(), func() { _ = http.NewResponseController(w).SetWriteDeadline(time.Now()) }) // whoever took the connection over ends it
		defer stop()
		next.ServeHTTP(w, r)
	})
}

// boundBody limits request bodies. It does not apply to upgraded and tunnelled streams,
// which are no bodies.
func boundBody(next http.Handler, n int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > n {
			w.Header().Set("Connection", "close")
			http.Error(w, "the request's body is too large", http.StatusRequestEntityTooLarge)
			return
		}
		if r.Body != nil && r.Body != http.NoBody {
			r.Body = http.MaxBytesReader(w, r.Body, n)
		}
		next.ServeHTTP(w, r)
	})
}

// ID returns the session's id, which is the same at both ends. It is no secret.
func (s *Session) ID() string { return s.id }

// Transport returns a transport that sends requests to the other end, whatever host their
// URL names.
func (s *Session) Transport() http.RoundTripper { return rebase{s.transport} }

// Client returns an http.Client over Transport that does not follow redirects. URLs may be
// written "http://box/path".
func (s *Session) Client() *http.Client { return s.client }

// rebase sends every request over the same connection pool, whatever scheme and host its
// URL has, because there is only one other end.
type rebase struct{ transport *http.Transport }

func (r rebase) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme == "http" && req.URL.Host == "box" {
		return r.transport.RoundTrip(req)
	}
	out := req.Clone(req.Context())
	if out.Host == "" {
		out.Host = req.URL.Host
	}
	out.URL.Scheme, out.URL.Host = "http", "box"
	return r.transport.RoundTrip(out)
}

// Stream opens a raw stream to the other end's HTTP server.
func (s *Session) Stream(ctx context.Context) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	stream, err := s.mux.OpenStream()
	if err != nil {
		return nil, fault.New("tether.Stream", fault.Unavailable, "", err)
	}
	return stream, nil
}

// Connect asks the other end for a tunnel to target ("host:port") with HTTP CONNECT. If it
// is refused, the error is fault.Denied for status 403 and fault.Unavailable otherwise, and
// contains the first line of the response's body.
func (s *Session) Connect(ctx context.Context, target string, header http.Header) (net.Conn, error) {
	const op = "tether.Connect"
	if strings.ContainsAny(target, "\x00\r\n \t/") || len(target) > 300 {
		return nil, fault.New(op, fault.Invalid, "", fmt.Errorf("%q is no host and port", target[:min(len(target), 64)]))
	}
	stream, err := s.Stream(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = stream.SetDeadline(time.Unix(1, 0)) })
	conn, err := connect(stream, target, header)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = stream.Close()
		if ctx.Err() != nil {
			return nil, fault.Wrap(op, ctx.Err())
		}
		return nil, err
	}
	return conn, nil
}

func connect(stream net.Conn, target string, header http.Header) (net.Conn, error) {
	const op = "tether.Connect"
	var b strings.Builder
	fmt.Fprintf(&b, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n", target, target)
	if err := header.Write(&b); err != nil {
		return nil, fault.New(op, fault.Internal, "", err)
	}
	b.WriteString("\r\n")
	if _, err := io.WriteString(stream, b.String()); err != nil {
		return nil, fault.New(op, fault.Unavailable, "", err)
	}
	// The reader reads the response first. What it has buffered behind the response
	// belongs to the tunnel, and is read from the returned connection.
	br := bufio.NewReaderSize(io.MultiReader(stream), 4096)
	res, err := http.ReadResponse(br, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return nil, fault.New(op, fault.Unavailable, "", err)
	}
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 512)) // as much of the reason as has arrived is enough
		_ = res.Body.Close()
		code := fault.Unavailable
		if res.StatusCode == http.StatusForbidden {
			code = fault.Denied
		}
		reason, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
		return nil, fault.New(op, code, "", fmt.Errorf("%s refused: %s %s", target, res.Status, reason))
	}
	return &bufferedConn{Conn: stream, r: br}, nil
}

type bufferedConn struct {
	net.Conn
	r *bufio.Reader
}

func (c *bufferedConn) Read(p []byte) (int, error) { return c.r.Read(p) }

// Done is closed when the session has ended, for whatever reason.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err returns why a session ended; nil while it lasts and after Close.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close ends the session and waits until its server has stopped accepting.
// Handlers that still run see their request's context cancelled.
func (s *Session) Close() error {
	s.shut()
	s.serving.Wait()
	return nil
}

func (s *Session) fail(err error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = fault.New("tether", fault.Denied, "", err)
	}
	s.mu.Unlock()
}

func (s *Session) shut() {
	s.closing.Do(func() {
		_ = s.mux.Close() // closes conn and every stream
		_ = s.conn.Close()
		_ = s.server.Close()
		s.transport.CloseIdleConnections()
		close(s.done)
	})
}

// listener accepts the peer's streams for the HTTP server, at most Limits.Streams at a
// time.
type listener struct{ session *Session }

func (l listener) Accept() (net.Conn, error) {
	for {
		stream, err := l.session.mux.AcceptStream()
		if err != nil {
			return nil, err
		}
		if l.session.open.Add(1) > int64(l.session.limits.Streams) {
			l.session.open.Add(-1)
			_ = stream.Close()
			continue
		}
		return &counted{Stream: stream, open: &l.session.open}, nil
	}
}

func (l listener) Close() error   { return nil }
func (l listener) Addr() net.Addr { return l.session.conn.LocalAddr() }

type counted struct {
	*yamux.Stream
	open *atomic.Int64
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Stream.Close()
}
