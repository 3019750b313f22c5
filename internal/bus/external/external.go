// Package external is a NATS server with JetStream that somebody else runs. It
// keeps the logs; it is not asked for what only an embedded one can do:
//
//   - it makes no credentials for desktops and ends none: it has an operator of
//     its own, and no client of a computer is let near it;
//   - its files are not read: whoever runs it has to look after them, and how it
//     recovers is its own;
//   - reads of it that fail for want of a file are not heard of.
//
// What it acknowledges is on its disk only if it syncs always (jetstream
// {sync_interval: always}), which a client can't find out.
package external

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"

	"choir.dev/choiros/internal/fault"
)

// Options say where the server is.
type Options struct {
	URL         string // nats://… on this machine, or tls://…; several with commas
	Credentials string // file with a user's JWT and seed; empty: those in the URL
	Largest     int64  // bytes of the largest message that it has to take
}

// Server is a connection to the server, once it was dialled.
type Server struct {
	options Options
	mu      sync.Mutex
	conn    *nats.Conn // the newest
}

// Open checks the options; Dial connects. An unencrypted connection leads to this
// machine only: what is in a log is nobody else's to read.
func Open(opts Options) (*Server, error) {
	for one := range strings.SplitSeq(opts.URL, ",") {
		if err := check(one); err != nil {
			return nil, err
		}
	}
	return &Server{options: opts}, nil
}

// check says what is wrong with a URL, and never all of it: it may hold a password.
func check(text string) error {
	const hint = "Give a server such as nats://127.0.0.1:4222 or tls://nats.example:4222; several of one cluster with commas between."
	u, err := url.Parse(strings.TrimSpace(text))
	switch {
	case err != nil:
		return fault.New("url", fault.Invalid, hint, errors.New("the URL can't be read"))
	case u.Hostname() == "" || (u.Path != "" && u.Path != "/"):
		return fault.New("url", fault.Invalid, hint, errors.New("the URL names no server"))
	case u.Scheme != "nats" && u.Scheme != "tls":
		return fault.New("url", fault.Invalid, hint, fmt.Errorf("%.20q is no scheme of a server", u.Scheme))
	case u.Scheme == "nats" && !local(u.Hostname()):
		return fault.New("url", fault.Denied, "Use tls:// for a server on another machine.", fmt.Errorf("the connection to %s would not be encrypted", u.Hostname()))
	}
	return nil
}

func local(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Heard does not know, and says that somebody does.
func (s *Server) Heard(string) bool { return true }

// Dial connects the control plane. Servers that a server names are not
// tried: only those of the URL were checked.
func (s *Server) Dial(opts ...nats.Option) (*nats.Conn, error) {
	opts = append(opts, nats.IgnoreDiscoveredServers())
	if s.options.Credentials != "" {
		opts = append(opts, nats.UserCredentials(s.options.Credentials))
	}
	nc, err := nats.Connect(s.options.URL, opts...)
	if err != nil {
		code := fault.Unavailable
		if errors.Is(err, nats.ErrAuthorization) {
			code = fault.Denied
		}
		return nil, fault.New("connect", code, "Look whether the server runs, and whether its URL and credentials are right.", err)
	}
	if nc.MaxPayload() < s.options.Largest {
		err := fmt.Errorf("the server takes messages of %d bytes; an event may have %d", nc.MaxPayload(), s.options.Largest)
		nc.Close()
		return nil, fault.New("connect", fault.Missing, "Raise the server's max_payload.", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn = nc
	return nc, nil
}

// lacks says that something needs a server of choir's own.
func lacks(op, what string) error {
	return fault.New(op, fault.Missing, "Leave the URL out: choir then runs a server of its own, which can.", fmt.Errorf("the server at a URL %s", what))
}

// Client refuses.
func (s *Server) Client() (net.Conn, error) {
	return nil, lacks("connect", "is not reached by the clients of a computer")
}

// Sign refuses.
func (s *Server) Sign(*jwt.UserClaims) (string, error) {
	return "", lacks("sign", "does not make credentials here")
}

// Revoke refuses.
func (s *Server) Revoke(time.Time, []string) error {
	return lacks("revoke", "does not end credentials here")
}

// Files refuses.
func (s *Server) Files() error { return lacks("read", "keeps its files where they can't be read") }

// Health says whether the server is connected. Why its store takes nothing it
// says to who publishes.
func (s *Server) Health() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil || !s.conn.IsConnected() {
		return fault.New("store", fault.Unavailable, "Look whether the server runs.", errors.New("the log's server is not connected"))
	}
	return nil
}

// Opening calls open: what is stored is that server's to keep.
func (s *Server) Opening(_ string, open func() error) error { return open() }

// Shut leaves the stream open, for it is not this process that it costs anything.
func (s *Server) Shut(string) error { return nil }

// Remove calls remove, which has that server delete the stream.
func (s *Server) Remove(_ string, remove func() error) error { return remove() }

// Looking calls look, which finds no files here.
func (s *Server) Looking(look func() error) error { return look() }

// Unread knows of none.
func (s *Server) Unread() (uint64, error) { return 0, nil }

// Close has nothing to end: who dialled closes the connection.
func (s *Server) Close() error { return nil }
