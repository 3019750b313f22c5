package attack_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/egress"
	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/local"
	"choir.dev/choiros/internal/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	// Files that a box holds open and has removed are counted only on a disk (docs/plan.md), so
	// scripts/in-memory does not work for these tests.
	if strings.HasPrefix(os.Getenv("TMPDIR"), "/dev/shm/") {
		if err := os.Unsetenv("TMPDIR"); err != nil {
			panic(err)
		}
	}
	sandboxtest.Main(m)
}

// onEveryDriver runs a row against each driver that this machine can run.
func onEveryDriver(t *testing.T, row func(t *testing.T, e *sandboxtest.Env)) {
	t.Run("local", func(t *testing.T) {
		d, err := local.New(t.Context(), local.Options{Guest: sandboxtest.BareGuest(t), Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := d.Close(); err != nil {
				t.Errorf("close the driver: %v", err)
			}
		})
		row(t, sandboxtest.NewEnv(t, d))
	})
}

// unprotected runs the probe as a plain process, which is the control.
func unprotected(t *testing.T, argv ...string) (string, bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, sandboxtest.Probe(t), argv...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

// mustWork fails the test if a control does not work, because then the test shows nothing.
func mustWork(t *testing.T, argv ...string) {
	t.Helper()
	if out, ok := unprotected(t, argv...); !ok {
		t.Fatalf("the control %q does not work here: %s", argv, out)
	}
}

// mustFail fails the test if the probe works in the box.
func mustFail(t *testing.T, g *guest.Client, argv ...string) string {
	t.Helper()
	r := sandboxtest.Run(t, g, append([]string{sandboxtest.ProbeInside}, argv...)...)
	if r.Code == 0 {
		t.Errorf("%q works in the box: %s", argv, r.Out)
	}
	if r.Code == 2 {
		t.Fatalf("%q was called wrongly: %s", argv, r.Err)
	}
	return r.Out
}

func mustPass(t *testing.T, g *guest.Client, argv ...string) string {
	t.Helper()
	r := sandboxtest.Run(t, g, append([]string{sandboxtest.ProbeInside}, argv...)...)
	if r.Code != 0 {
		t.Errorf("%q does not work in the box: %s%s", argv, r.Out, r.Err)
	}
	return r.Out
}

// echoServer sends each line back, on loopback.
func echoServer(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				buf := make([]byte, 4096)
				for {
					n, err := conn.Read(buf)
					if err != nil {
						return
					}
					if _, err := conn.Write(buf[:n]); err != nil {
						return
					}
				}
			}()
		}
	}()
	return ln.Addr().String()
}

// naiveProxy does what many proxies do: it matches the suffix of whatever the client sent, and
// dials. It is the control of the rows about egress.
func naiveProxy(t *testing.T, suffix string) string {
	t.Helper()
	far := echoServer(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				buf := make([]byte, 8192)
				n, err := conn.Read(buf)
				if err != nil {
					return
				}
				line, _, _ := strings.Cut(string(buf[:n]), "\r\n")
				target := strings.TrimSuffix(strings.TrimPrefix(line, "CONNECT "), " HTTP/1.1")
				host := target[:max(0, strings.LastIndexByte(target, ':'))]
				if !strings.HasSuffix(strings.Trim(strings.ToLower(host), "[]."), suffix) {
					fmt.Fprint(conn, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
					return
				}
				up, err := net.Dial("tcp", far)
				if err != nil {
					return
				}
				defer up.Close()
				fmt.Fprint(conn, "HTTP/1.1 200 OK\r\n\r\n")
				if n, err = conn.Read(buf); err == nil {
					_, _ = up.Write(buf[:n])
					if n, err = up.Read(buf); err == nil {
						_, _ = conn.Write(buf[:n])
					}
				}
			}()
		}
	}()
	return ln.Addr().String()
}

// exit is the real egress proxy in front of an echo server, with a resolver that the test plays.
type exit struct {
	mu       sync.Mutex
	resolved []string
	dialled  []string
	decided  []contract.EgressDecided
	traffic  []egress.Traffic
	// unmeterable is the error of recording traffic, if it is to fail.
	unmeterable error
	// then continues in a tunnel that is open.
	then    func(conn net.Conn, r *bufio.Reader) Verdict
	answers func(host string, n int) []netip.Addr
	proxy   *egress.Proxy
	handler http.Handler
}

func (x *exit) LookupNetIP(_ context.Context, _ string, host string) ([]netip.Addr, error) {
	x.mu.Lock()
	x.resolved = append(x.resolved, host)
	n := len(x.resolved)
	x.mu.Unlock()
	return x.answers(host, n), nil
}

func (x *exit) seen() (resolved, dialled []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return append([]string{}, x.resolved...), append([]string{}, x.dialled...)
}

var public = netip.MustParseAddr("93.184.215.14")

func newExit(t *testing.T, rules ...string) *exit {
	t.Helper()
	far := echoServer(t)
	x := &exit{answers: func(string, int) []netip.Addr { return []netip.Addr{public} }}
	parsed, err := egress.ParseRules(rules)
	if err != nil {
		t.Fatal(err)
	}
	p, err := egress.NewProxy(egress.Options{
		Resolver: x, Logger: slog.New(slog.DiscardHandler),
		Decide: func(_ context.Context, _ egress.Scope, _ bool, d contract.EgressDecided) error {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.decided = append(x.decided, d)
			return nil
		},
		Limits: egress.Limits{Meter: 5 * time.Millisecond},
		Meter: func(_ context.Context, _ egress.Scope, tr egress.Traffic) error {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.traffic = append(x.traffic, tr)
			return x.unmeterable
		},
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			x.mu.Lock()
			x.dialled = append(x.dialled, address)
			x.mu.Unlock()
			var d net.Dialer
			return d.DialContext(ctx, network, far)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close the egress proxy: %v", err)
		}
	})
	x.proxy = p
	x.serve(t, contract.BoxTask, egress.Policy{Profile: contract.EgressCustom, Rules: parsed})
	return x
}

// serve makes x the way out of one box under a policy.
func (x *exit) serve(t *testing.T, kind contract.BoxKind, policy egress.Policy) {
	t.Helper()
	x.handler = x.proxy.Handler(egress.Scope{CID: contract.NewCID(), Box: "attack", Kind: kind}, policy)
}

func (x *exit) box(t *testing.T, e *sandboxtest.Env) *guest.Client {
	t.Helper()
	_, g := e.Box(t, sandbox.BoxSpec{Proxy: true, Handler: x.handler})
	return g
}
