package egress_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/egress"
)

// names resolves names from a table: each look-up of a name returns its next list of addresses, and
// the last one from then on.
type names struct {
	mu    sync.Mutex
	table map[string][][]netip.Addr
	asked []string
}

func (n *names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked = append(n.asked, host)
	lists := n.table[host]
	if len(lists) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	if len(lists) > 1 {
		n.table[host] = lists[1:]
	}
	return lists[0], nil
}

func (n *names) log() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]string(nil), n.asked...)
}

// decision is one call of Decide.
type decision struct {
	allowed bool
	contract.EgressDecided
}

// world is a proxy on loopback, a TLS server behind it, and the decisions that the proxy made.
type world struct {
	t        *testing.T
	proxy    *egress.Proxy
	front    *httptest.Server // the box's side
	back     *httptest.Server // a TLS server for allowed.example
	backAddr netip.AddrPort
	roots    *x509.CertPool
	names    *names
	conns    atomic.Int64 // connections with TLS on the server
	dials    chan string
	closed   chan egress.Traffic

	mu        sync.Mutex
	decisions []decision
	failing   error
}

func (w *world) decided() []decision {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]decision(nil), w.decisions...)
}

func start(t *testing.T, change func(*world, *egress.Options, *egress.Policy, *egress.Scope)) *world {
	t.Helper()
	w := &world{t: t, dials: make(chan string, 100), closed: make(chan egress.Traffic, 100)}
	cert, roots := certificate(t, "allowed.example", "a.suffix.example", "evil.example")
	w.roots = roots
	w.back = httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(rw, "hello from %s", r.Host)
	}))
	w.back.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	w.back.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	w.back.Config.ConnState = func(c net.Conn, s http.ConnState) {
		if s == http.StateActive {
			w.conns.Add(1)
		}
	}
	w.back.StartTLS()
	t.Cleanup(w.back.Close)
	w.backAddr = netip.MustParseAddrPort(w.back.Listener.Addr().String())
	w.names = &names{table: map[string][][]netip.Addr{
		"allowed.example":  {{w.backAddr.Addr()}},
		"a.suffix.example": {{w.backAddr.Addr()}},
		"evil.example":     {{w.backAddr.Addr()}},
	}}
	port := w.backAddr.Port()
	policy := egress.Policy{Profile: contract.EgressCustom, Rules: rules(t, fmt.Sprintf("allowed.example:%d", port), fmt.Sprintf("*.suffix.example:%d", port))}
	scope := egress.Scope{CID: contract.NewCID(), Box: "task-1", Kind: contract.BoxTask}
	opt := egress.Options{
		Resolver: w.names, AllowPrivate: []netip.AddrPort{w.backAddr}, Logger: slog.New(slog.DiscardHandler),
		Decide: func(_ context.Context, s egress.Scope, allowed bool, d contract.EgressDecided) error {
			if err := d.Validate(); err != nil {
				t.Errorf("the decision does not make an event: %v", err)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.decisions = append(w.decisions, decision{allowed, d})
			return w.failing
		},
		Meter: func(_ context.Context, _ egress.Scope, tr egress.Traffic) error { w.closed <- tr; return nil },
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			w.dials <- address
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	}
	if change != nil {
		change(w, &opt, &policy, &scope)
	}
	proxy, err := egress.NewProxy(opt)
	if err != nil {
		t.Fatal(err)
	}
	w.proxy = proxy
	t.Cleanup(func() { proxy.Close() })
	w.front = httptest.NewServer(proxy.Handler(scope, policy))
	t.Cleanup(w.front.Close)
	return w
}

func certificate(t *testing.T, hosts ...string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(24 * time.Hour),
		DNSNames: hosts, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, tpl, tpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, pool
}

// get fetches a URL as a program does that uses the usual proxy variables.
func (w *world) get(u string) (string, error) {
	proxy, err := url.Parse(w.front.URL)
	if err != nil {
		return "", err
	}
	tr := &http.Transport{Proxy: http.ProxyURL(proxy), TLSClientConfig: &tls.Config{RootCAs: w.roots}}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr, Timeout: 20 * time.Second}).Get(u)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		return string(b), fmt.Errorf("%s: %s", resp.Status, b)
	}
	return string(b), err
}

// connect sends a CONNECT with this authority unchanged and returns the connection and the status
// line.
func (w *world) connect(authority string) (net.Conn, *bufio.Reader, string) {
	w.t.Helper()
	c, err := net.Dial("tcp", w.front.Listener.Addr().String())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		w.t.Fatal(err)
	}
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", authority, authority)
	r := bufio.NewReader(c)
	line, err := r.ReadString('\n')
	if err != nil {
		line = err.Error()
	}
	return c, r, strings.TrimSpace(line)
}

func (w *world) allowed() string { return fmt.Sprintf("allowed.example:%d", w.backAddr.Port()) }

func only(t *testing.T, got []decision, allowed bool, reason string) {
	t.Helper()
	if len(got) != 1 || got[0].allowed != allowed || !strings.Contains(got[0].Reason, reason) {
		t.Errorf("decisions %+v; want one, allowed %v, reason %q", got, allowed, reason)
	}
}

func TestAllowedHostIsReached(t *testing.T) {
	w := start(t, nil)
	for _, host := range []string{"allowed.example", "A.Suffix.example"} {
		got, err := w.get(fmt.Sprintf("https://%s:%d/", host, w.backAddr.Port()))
		if err != nil || !strings.HasPrefix(strings.ToLower(got), "hello from "+strings.ToLower(host)) {
			t.Errorf("%s: %q, %v", host, got, err)
		}
	}
	got := w.decided()
	if len(got) != 2 || !got[0].allowed || got[0].Host != "allowed.example" || got[0].Rule != w.allowed() || got[0].Address != "127.0.0.1" || got[0].Box != "task-1" || !got[1].allowed {
		t.Errorf("decisions %+v", got)
	}
	select {
	case tr := <-w.closed:
		if tr.Sent < 200 || tr.Received < 200 || tr.Target.Host == "" || !tr.Ended || tr.Tunnel == "" {
			t.Errorf("traffic %+v", tr)
		}
	case <-time.After(20 * time.Second):
		t.Error("the tunnel's traffic was not reported")
	}
}

func TestRefusedHosts(t *testing.T) {
	w := start(t, nil)
	port := w.backAddr.Port()
	for _, authority := range []string{
		fmt.Sprintf("evil.example:%d", port), "allowed.example:1", fmt.Sprintf("evilsuffix.example:%d", port), fmt.Sprintf("suffix.example:%d", port),
		fmt.Sprintf("127.0.0.1:%d", port), fmt.Sprintf("[::ffff:127.0.0.1]:%d", port), fmt.Sprintf("2130706433:%d", port), fmt.Sprintf("0x7f.1:%d", port),
		"169.254.169.254:80", "[fd00:ec2::254]:80", "allowed.example",
	} {
		before := len(w.decided())
		_, _, status := w.connect(authority)
		if !strings.Contains(status, "403") {
			t.Errorf("%s: %s", authority, status)
		}
		if got := w.decided(); len(got) != before+1 || got[before].allowed {
			t.Errorf("%s: decisions %+v", authority, got[before:])
		}
	}
	// What the HTTP server refuses by itself opens no connection either.
	for _, authority := range []string{"evil\x00.allowed.example:443", "allowed.example:443\x00", "allowed.example :443", fmt.Sprintf("allowed.example%%00.evil.example:%d", port), fmt.Sprintf("user@allowed.example:%d", port)} {
		if _, _, status := w.connect(authority); !strings.Contains(status, " 4") {
			t.Errorf("%q: %s", authority, status)
		}
	}
	if len(w.dials) != 0 || len(w.names.log()) != 0 {
		t.Errorf("%d connections, look-ups of %q: nothing may leave before the name is allowed", len(w.dials), w.names.log())
	}
}

func TestServerNameMustBeTheHost(t *testing.T) {
	for _, c := range []struct{ name, serverName, reason string }{
		{"another host", "evil.example", "is not the host"},
		{"no name", "", "names no server"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := start(t, nil)
			conn, _, status := w.connect(w.allowed())
			if !strings.Contains(status, "200") {
				t.Fatal(status)
			}
			if err := tls.Client(conn, &tls.Config{ServerName: c.serverName, InsecureSkipVerify: true}).Handshake(); err == nil {
				t.Error("the handshake went through")
			}
			until(t, func() bool { return len(w.decided()) == 1 })
			only(t, w.decided(), false, c.reason)
			if n := w.conns.Load(); n != 0 {
				t.Errorf("%d connections got bytes through", n)
			}
		})
	}
	t.Run("not TLS", func(t *testing.T) {
		w := start(t, nil)
		conn, r, _ := w.connect(w.allowed())
		fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n")
		if b, _ := io.ReadAll(r); strings.Contains(string(b), "HTTP/1.1 4") || strings.Contains(string(b), "hello") {
			t.Errorf("the server answered: %s", b)
		}
		until(t, func() bool { return len(w.decided()) == 1 })
		only(t, w.decided(), false, "not a TLS ClientHello")
	})
}

func TestAddressesAreCheckedAndDialledAsChecked(t *testing.T) {
	public, private := netip.MustParseAddr("93.184.216.34"), netip.MustParseAddr("10.0.0.1")
	at := func(w *world, lists ...[]netip.Addr) { w.names.table["allowed.example"] = lists }
	t.Run("rebinding", func(t *testing.T) {
		w := start(t, func(ww *world, o *egress.Options, _ *egress.Policy, _ *egress.Scope) {
			at(ww, []netip.Addr{public}, []netip.Addr{netip.MustParseAddr("127.0.0.1")})
			o.AllowPrivate = nil
			dial := o.Dial
			o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				ww.dials <- address
				return dial(ctx, network, ww.backAddr.String())
			}
		})
		if _, err := w.get("https://" + w.allowed()); err != nil {
			t.Error(err)
		}
		if got, want := <-w.dials, fmt.Sprintf("93.184.216.34:%d", w.backAddr.Port()); got != want {
			t.Errorf("dialled %s, want %s", got, want)
		}
		if asked := w.names.log(); len(asked) != 1 {
			t.Errorf("asked %q: a second look-up could give another address", asked)
		}
		if _, err := w.get("https://" + w.allowed()); err == nil {
			t.Error("the second answer leads to loopback and was followed")
		}
	})
	for name, list := range map[string][]netip.Addr{
		"private":             {private},
		"public and private":  {public, private},
		"metadata":            {netip.MustParseAddr("169.254.169.254")},
		"metadata, IPv6":      {netip.MustParseAddr("fd00:ec2::254")},
		"loopback":            {netip.MustParseAddr("::1")},
		"mapped":              {netip.MustParseAddr("::ffff:127.0.0.1")},
		"carrier-grade NAT":   {netip.MustParseAddr("100.64.1.1")},
		"this network":        {netip.MustParseAddr("0.0.0.0")},
		"multicast":           {netip.MustParseAddr("224.0.0.1")},
		"broadcast":           {netip.MustParseAddr("255.255.255.255")},
		"unique local":        {netip.MustParseAddr("fd12::1")},
		"link-local":          {netip.MustParseAddr("fe80::1")},
		"6to4 of loopback":    {netip.MustParseAddr("2002:7f00:1::")},
		"NAT64 of loopback":   {netip.MustParseAddr("64:ff9b::7f00:1")},
		"Teredo":              {netip.MustParseAddr("2001:0:1::1")},
		"IPv4-compatible":     {netip.MustParseAddr("::7f00:1")},
		"documentation":       {netip.MustParseAddr("2001:db8::1")},
		"benchmark":           {netip.MustParseAddr("198.18.0.1")},
		"this machine itself": {netip.MustParseAddr("93.184.216.35")},
		"none":                {},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, func(w *world, o *egress.Options, _ *egress.Policy, _ *egress.Scope) {
				at(w, list)
				o.AllowPrivate = nil
				o.Own = func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("93.184.216.35")}, nil }
			})
			if _, _, status := w.connect(w.allowed()); strings.Contains(status, "200") {
				t.Error(status)
			}
			only(t, w.decided(), false, "address")
			if len(w.dials) != 0 {
				t.Errorf("dialled %s", <-w.dials)
			}
		})
	}
	t.Run("a private exception holds for its port only", func(t *testing.T) {
		w := start(t, func(w *world, o *egress.Options, p *egress.Policy, _ *egress.Scope) {
			p.Rules = rules(t, "allowed.example:1")
		})
		w.connect("allowed.example:1")
		only(t, w.decided(), false, "may not reach")
	})
	t.Run("a name that does not resolve", func(t *testing.T) {
		w := start(t, func(w *world, _ *egress.Options, _ *egress.Policy, _ *egress.Scope) {
			delete(w.names.table, "allowed.example")
		})
		if _, _, status := w.connect(w.allowed()); !strings.Contains(status, "502") {
			t.Error(status)
		}
	})
}

func TestPlainHTTPIsRefused(t *testing.T) {
	w := start(t, nil)
	if got, err := w.get("http://" + w.allowed() + "/"); err == nil || !strings.Contains(got, "plain HTTP is not let out") {
		t.Errorf("%q, %v", got, err)
	}
	only(t, w.decided(), false, "plain HTTP")
}

func TestPoliciesThatAllowNothing(t *testing.T) {
	for name, change := range map[string]func(*egress.Policy, *egress.Scope){
		"zero":       func(p *egress.Policy, _ *egress.Scope) { *p = egress.Policy{} },
		"not loaded": func(p *egress.Policy, _ *egress.Scope) { p.Err = errors.New("disk on fire") },
		"director":   func(_ *egress.Policy, s *egress.Scope) { s.Kind = contract.BoxDirector },
		"associate":  func(_ *egress.Policy, s *egress.Scope) { s.Kind = contract.BoxAssociate },
		"keeper":     func(_ *egress.Policy, s *egress.Scope) { s.Kind = contract.BoxKeeper },
		"desktop":    func(_ *egress.Policy, s *egress.Scope) { s.Kind = contract.BoxDesktop },
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, func(_ *world, _ *egress.Options, p *egress.Policy, s *egress.Scope) { change(p, s) })
			if _, _, status := w.connect(w.allowed()); !strings.Contains(status, "403") {
				t.Error(status)
			}
			only(t, w.decided(), false, "")
		})
	}
}

func TestDecisionThatCannotBeRecordedRefuses(t *testing.T) {
	w := start(t, func(w *world, _ *egress.Options, _ *egress.Policy, _ *egress.Scope) {
		w.failing = errors.New("log is full")
	})
	if got, err := w.get("https://" + w.allowed()); err == nil {
		t.Errorf("got %q", got)
	}
	if n := w.conns.Load(); n != 0 {
		t.Errorf("%d connections got bytes through", n)
	}
}

func TestTunnelsAreBoundedAndEnd(t *testing.T) {
	w := start(t, func(w *world, o *egress.Options, p *egress.Policy, _ *egress.Scope) {
		o.Limits = egress.Limits{PerBox: 2, Idle: time.Hour}
		p.Rules = rules(t, "tcp://allowed.example:"+fmt.Sprint(w.backAddr.Port()))
	})
	one, oneR, status := w.connect(w.allowed())
	if !strings.Contains(status, "200") {
		t.Fatal(status)
	}
	two, twoR, _ := w.connect(w.allowed())
	if _, _, status := w.connect(w.allowed()); !strings.Contains(status, "503") {
		t.Errorf("a third tunnel: %s", status)
	}
	two.Close()
	until(t, func() bool { _, _, status := w.connect(w.allowed()); return strings.Contains(status, "200") })
	w.proxy.CloseBox("another")
	w.proxy.CloseBox("task-1")
	for _, r := range []*bufio.Reader{oneR, twoR} {
		if _, err := io.ReadAll(r); err != nil && !errors.Is(err, net.ErrClosed) && !strings.Contains(err.Error(), "reset") {
			t.Errorf("the tunnel did not end: %v", err)
		}
	}
	one.Close()
	if err := w.proxy.Close(); err != nil {
		t.Error(err)
	}
	if _, _, status := w.connect(w.allowed()); strings.Contains(status, "200") {
		t.Error("a closed proxy opened a tunnel")
	}
}

func TestSilentTunnelsEnd(t *testing.T) {
	t.Run("that never say hello", func(t *testing.T) {
		w := start(t, func(_ *world, o *egress.Options, _ *egress.Policy, _ *egress.Scope) {
			o.Limits = egress.Limits{Hello: 50 * time.Millisecond}
		})
		_, r, _ := w.connect(w.allowed())
		if _, err := io.ReadAll(r); err != nil {
			t.Errorf("the tunnel did not end: %v", err)
		}
		until(t, func() bool { return len(w.decided()) == 1 })
		only(t, w.decided(), false, "not a TLS ClientHello")
	})
	t.Run("that fall silent", func(t *testing.T) {
		w := start(t, func(w *world, o *egress.Options, p *egress.Policy, _ *egress.Scope) {
			o.Limits = egress.Limits{Idle: 50 * time.Millisecond}
			p.Rules = rules(t, "tcp://"+w.allowed())
		})
		_, r, _ := w.connect(w.allowed())
		if _, err := io.ReadAll(r); err != nil {
			t.Errorf("the tunnel did not end: %v", err)
		}
		until(t, func() bool { return len(w.closed) == 1 })
	})
}

func TestAFloodOfAttemptsIsSlowed(t *testing.T) {
	w := start(t, func(_ *world, o *egress.Options, _ *egress.Policy, _ *egress.Scope) {
		o.Limits = egress.Limits{PerSec: 0.001, Burst: 3}
	})
	for range 10 {
		w.connect("evil.example:443")
	}
	if n := len(w.decided()); n != 3 {
		t.Errorf("%d decisions went to the log", n)
	}
}

func until(t *testing.T, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatal("the condition did not come true in time")
		}
		time.Sleep(time.Millisecond)
	}
}
