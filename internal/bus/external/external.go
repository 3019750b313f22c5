// Package external connects to a NATS server with JetStream that somebody else runs. It
// stores the logs. What only an embedded server can do is not available:
//
//   - it makes and revokes no credentials for desktops, because the server has
//     an operator of its own, and clients of a computer are not connected to it;
//   - its files are not read: whoever runs it must check and restore them;
//   - reads that fail because a file can't be read are not noticed.
//
// What it acknowledges is on its disk only if it always syncs (jetstream {sync_interval:
// always}), which a client can't find out.
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
	Largest     int64  // bytes of the largest message that it must accept
}

// Server is a connection to the server, after Dial.
type Server struct {
	options Options
	mu      sync.Mutex
	conn    *nats.Conn // the connection that was made last
}

// Open checks the options; Dial connects. An unencrypted connection is allowed only to this
// machine, because nobody else may read a log.
func Open(opts Options) (*Server, error) {
	for one := range strings.SplitSeq(opts.URL, ",") {
		if err := check(one); err != nil {
			return nil, err
		}
	}
	return &Server{options: opts}, nil
}

// check says what is wrong with a URL. It never shows the whole URL, which may contain a
// password.
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

// Subscribed returns true, because it is not known whether anybody is subscribed.
func (s *Server) Subscribed(string) bool { return true }

// Dial connects the control plane. Further servers that a server announces are not used,
// because only those in the URL were checked.
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

// lacks is the error of what only an embedded server can do.
func lacks(op, what string) error {
	return fault.New(op, fault.Missing, "Leave the URL out: choir then runs a server of its own, which can.", fmt.Errorf("the server at a URL %s", what))
}

// Client returns an error: clients are not connected to an external server.
func (s *Server) Client() (net.Conn, error) {
	return nil, lacks("connect", "is not reached by the clients of a computer")
}

// Sign returns an error: credentials are made by whoever runs the server.
func (s *Server) Sign(*jwt.UserClaims) (string, error) {
	return "", lacks("sign", "does not make credentials here")
}

// Revoke returns an error: credentials are revoked by whoever runs the server.
func (s *Server) Revoke(time.Time, []string) error {
	return lacks("revoke", "does not end credentials here")
}

// Files returns an error: the server's files can't be read here.
func (s *Server) Files() error { return lacks("read", "keeps its files where they can't be read") }

// Health reports whether the server is connected. If its store accepts nothing, its answers
// to publishers say why.
func (s *Server) Health() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil || !s.conn.IsConnected() {
		return fault.New("store", fault.Unavailable, "Look whether the server runs.", errors.New("the log's server is not connected"))
	}
	return nil
}

// OpenStream calls open; the server itself must preserve the stream's files.
func (s *Server) OpenStream(_ string, open func() error) error { return open() }

// CloseStream leaves the stream open, which costs this process nothing.
func (s *Server) CloseStream(string) error { return nil }

// Remove calls remove, which makes the server delete the stream.
func (s *Server) Remove(_ string, remove func() error) error { return remove() }

// WithFiles calls use, which finds no files here.
func (s *Server) WithFiles(use func() error) error { return use() }

// FailedReads returns 0, because failed reads are not noticed.
func (s *Server) FailedReads() (uint64, error) { return 0, nil }

// Close does nothing: the connection is closed by the caller of Dial.
func (s *Server) Close() error { return nil }
