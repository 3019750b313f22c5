package attack_test

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/sandboxtest"
)

// TestRow02NULInHost sends a NUL byte in the host of a CONNECT or SOCKS request.
func TestRow02NULInHost(t *testing.T) {
	naive := naiveProxy(t, "allowed.example")
	targets := []string{`evil.example\x00.allowed.example:443`, `evil.example\x01allowed.example:443`}
	for _, target := range targets {
		mustWork(t, "connect", naive, target, "hello")
	}
	onEveryDriver(t, func(t *testing.T, e *sandboxtest.Env) {
		x := newExit(t, "tcp://*.allowed.example:443", "tcp://allowed.example:443")
		g := x.box(t, e)
		mustPass(t, g, "connect", guest.ProxyAddr, "allowed.example:443", "hello") // the way out works
		for _, target := range targets {
			mustFail(t, g, "connect", guest.ProxyAddr, target, "hello")
			host := strings.TrimSuffix(target, ":443")
			mustFail(t, g, "socks", guest.ProxyAddr, host, "443", "hello")
		}
		for _, host := range []string{"", "a b", `\r\nX: y`, "[::1", strings.Repeat("a", 254)} {
			mustFail(t, g, "socks", guest.ProxyAddr, host, "443", "hello")
		}
		if resolved, _ := x.seen(); len(resolved) != 1 {
			t.Errorf("the host resolved %q", resolved)
		}
	})
}

// TestRow05DNS shows that a guest has no resolver, and that names are resolved after the check of
// the rules.
func TestRow05DNS(t *testing.T) {
	server, asked := nameServer(t)
	mustWork(t, "resolve", "secret-data.evil.example", server)
	if asked() == 0 {
		t.Fatal("the control's name server was not asked")
	}
	onEveryDriver(t, func(t *testing.T, e *sandboxtest.Env) {
		x := newExit(t, "tcp://allowed.example:443")
		g := x.box(t, e)
		before := asked()
		mustFail(t, g, "resolve", "secret-data.evil.example")
		mustFail(t, g, "resolve", "secret-data.evil.example", server)
		mustFail(t, g, "resolve", "secret-data.evil.example", "8.8.8.8:53")
		mustFail(t, g, "dial", "udp", server)
		mustFail(t, g, "connect", guest.ProxyAddr, "secret-data.evil.example:443")
		mustFail(t, g, "connect", guest.ProxyAddr, "secret-data.allowed.example:443")
		if n := asked(); n != before {
			t.Errorf("%d questions left the box", n-before)
		}
		if resolved, _ := x.seen(); len(resolved) != 0 {
			t.Errorf("the host resolved %q for a box that was refused", resolved)
		}
	})
}

// nameServer answers every question with 127.0.0.1.
func nameServer(t *testing.T) (addr string, asked func() int) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	count := make(chan int, 1)
	count <- 0
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			c := <-count
			count <- c + 1
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			m.Response, m.Additionals = true, nil
			if m.Questions[0].Type == dnsmessage.TypeA {
				m.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: m.Questions[0].Name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET, TTL: 1},
					Body:   &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}},
				}}
			}
			if out, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(out, from)
			}
		}
	}()
	return conn.LocalAddr().String(), func() int { c := <-count; count <- c; return c }
}

// TestRow06PrivateAddresses tries the metadata service's, loopback and private addresses in every
// spelling, and names that resolve to them.
func TestRow06PrivateAddresses(t *testing.T) {
	literals := []string{
		"169.254.169.254:80", "[fd00:ec2::254]:80", "127.0.0.1:443", "[::1]:443", "10.0.0.1:443", "172.16.0.1:443", "192.168.1.1:443",
		"100.64.0.1:443", "[::ffff:127.0.0.1]:443", "[::ffff:a9fe:a9fe]:80", "2130706433:443", "0177.0.0.1:443", "0x7f.1:443", "127.1:443", "0.0.0.0:443", "[::]:443", "localhost:443",
	}
	naive := naiveProxy(t, "")
	for _, target := range literals {
		mustWork(t, "connect", naive, target, "hello")
	}
	onEveryDriver(t, func(t *testing.T, e *sandboxtest.Env) {
		private := []string{
			"169.254.169.254", "fd00:ec2::254", "127.0.0.1", "::1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1",
			"::ffff:127.0.0.1", "::ffff:169.254.169.254", "0.0.0.0", "::", "fe80::1", "224.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::",
		}
		x := newExit(t, "tcp://allowed.example:443", "tcp://allowed.example:80")
		g := x.box(t, e)
		for _, target := range literals {
			mustFail(t, g, "connect", guest.ProxyAddr, target, "hello")
		}
		for _, p := range private {
			addr := netip.MustParseAddr(p)
			x.answers = func(string, int) []netip.Addr { return []netip.Addr{addr} }
			mustFail(t, g, "connect", guest.ProxyAddr, "allowed.example:443", "hello")
			x.answers = func(string, int) []netip.Addr { return []netip.Addr{public, addr} }
			sandboxtest.Run(t, g, sandboxtest.ProbeInside, "connect", guest.ProxyAddr, "allowed.example:443", "hello")
		}
		// A name that resolves to a public address for the check and to a private one for the
		// connection fails, because there is only one look-up.
		x.answers = func(_ string, n int) []netip.Addr {
			if n%2 == 1 {
				return []netip.Addr{public}
			}
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}
		}
		for range 4 {
			sandboxtest.Run(t, g, sandboxtest.ProbeInside, "connect", guest.ProxyAddr, "allowed.example:443", "hello")
		}
		if _, dialled := x.seen(); len(dialled) == 0 {
			t.Error("nothing was ever dialled: the rest proves nothing")
		} else {
			for _, d := range dialled {
				if !strings.HasPrefix(d, public.String()+":") {
					t.Errorf("the host dialled %s", d)
				}
			}
		}
	})
}

// TestRow08PlainHTTP tries plain HTTP, and clients that ignore the proxy.
func TestRow08PlainHTTP(t *testing.T) {
	far := echoServer(t)
	mustWork(t, "dial", "tcp", far)
	onEveryDriver(t, func(t *testing.T, e *sandboxtest.Env) {
		x := newExit(t, "tcp://allowed.example:443", "tcp://allowed.example:80")
		g := x.box(t, e)
		mustFail(t, g, "dial", "tcp", far)
		mustFail(t, g, "dial", "tcp", "93.184.215.14:80")
		mustFail(t, g, "dial", "udp", "93.184.215.14:53")
		if out := mustFail(t, g, "get", guest.ProxyAddr, "http://allowed.example/"); !strings.Contains(out, "403") {
			t.Errorf("plain HTTP through the proxy gave %q", out)
		}
		if resolved, dialled := x.seen(); len(resolved)+len(dialled) != 0 {
			t.Errorf("the host resolved %q and dialled %q", resolved, dialled)
		}
		// A box without a proxy has nothing to send a request to.
		_, bare := e.Box(t, sandbox.BoxSpec{ID: "bare", Handler: x.handler})
		mustFail(t, bare, "connect", guest.ProxyAddr, "allowed.example:443", "hello")
	})
}

// TestRow10Suffix shows what *.suffix does not match.
func TestRow10Suffix(t *testing.T) {
	refused := []string{
		"evilsuffix.example:443", "suffix.example.evil.example:443", "suffix.example:443", "a.suffix.example:80", "a.suffix.example:22",
		"xn--a-.suffix.example.evil:443", "a.suffix.exampl:443", ".suffix.example:443", "a..suffix.example:443",
	}
	naive := naiveProxy(t, "suffix.example")
	mustWork(t, "connect", naive, "evilsuffix.example:443", "hello")
	mustWork(t, "connect", naive, "a.suffix.example:22", "hello")
	onEveryDriver(t, func(t *testing.T, e *sandboxtest.Env) {
		x := newExit(t, "tcp://*.suffix.example:443")
		g := x.box(t, e)
		mustPass(t, g, "connect", guest.ProxyAddr, "a.suffix.example:443", "hello")
		mustPass(t, g, "connect", guest.ProxyAddr, "A.Suffix.EXAMPLE:443", "hello")
		for _, target := range refused {
			mustFail(t, g, "connect", guest.ProxyAddr, target, "hello")
		}
	})
}
