package egress_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/egress"
	"choir.dev/choiros/test/choirtest"
)

func testSources(t *testing.T, remotesErr error) *egress.Sources {
	t.Helper()
	return &egress.Sources{
		Remotes: func(context.Context) ([]string, error) {
			return []string{"https://git.example/x.git", "/local/path"}, remotesErr
		},
		Registries: func(context.Context) ([]egress.Rule, error) { return rules(t, "registry.example:443"), nil },
		Extra:      rules(t, "extra.example:443"),
		Logger:     slog.New(slog.DiscardHandler),
	}
}

func TestASourceThatFailsDeniesEverything(t *testing.T) {
	p := testSources(t, errors.New("unreadable")).Policy(t.Context(), contract.EgressSpec{Profile: contract.EgressDefault})
	if p.Err == nil || len(p.Rules) != 0 {
		t.Errorf("got %+v", p)
	}
	if _, ok := p.Allows(target(t, "registry.example:443")); ok {
		t.Error("it still allows something")
	}
	s := testSources(t, nil)
	s.Registries = func(context.Context) ([]egress.Rule, error) {
		return rules(t, "half.example:443"), errors.New("timeout")
	}
	if p := s.Policy(t.Context(), contract.EgressSpec{Profile: contract.EgressDefault}); p.Err == nil {
		t.Errorf("got %+v", p)
	}
}

// manager puts a program with the name of a package manager first in PATH.
func manager(t *testing.T, dir, name, script string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestRegistriesOfThisMachine(t *testing.T) {
	bin, home := t.TempDir(), t.TempDir()
	t.Setenv("PATH", bin+":/usr/bin:/bin")
	t.Setenv("CARGO_HOME", home)
	manager(t, bin, "npm", `pwd > "$(dirname "$0")/npm.cwd"; echo '{"registry":"https://npm.example/","@scope:registry":"https://u:secret@scoped.example:8443/npm/","fetch-retries":2}'`)
	manager(t, bin, "python3", `case "$*" in
*"config list"*) echo "global.index-url='https://pip.example/simple'"; echo "global.extra-index-url='https://more.example/simple'"; echo "global.timeout='5'";;
*) exit 1;; esac`)
	manager(t, bin, "go", `echo '{"GOPROXY":"https://goproxy.example,direct","GOSUMDB":"sum.example+key"}'`)
	if err := os.WriteFile(filepath.Join(home, "config.toml"), []byte("[source.mirror]\nregistry = \"sparse+https://cargo.example/index/\"\n[registries.own]\nindex = \"http://plain.example/\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := egress.HostRegistries(slog.New(slog.DiscardHandler))(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, r := range got {
		texts = append(texts, r.String())
	}
	sort.Strings(texts)
	want := "cargo.example:443 goproxy.example:443 more.example:443 npm.example:443 pip.example:443 scoped.example:8443 sum.example:443"
	if strings.Join(texts, " ") != want {
		t.Errorf("got %q, want %q", texts, want)
	}
	if cwd, err := os.ReadFile(filepath.Join(bin, "npm.cwd")); err != nil || strings.TrimSpace(string(cwd)) != "/" {
		t.Errorf("npm was asked in %q, %v: a project's own configuration must not count", cwd, err)
	}
}

func TestAManagerThatHangsOrIsMissing(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	t.Setenv("CARGO_HOME", bin)
	manager(t, bin, "npm", "exit 1")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if got, err := egress.HostRegistries(slog.New(slog.DiscardHandler))(ctx); err != nil || len(got) != 0 {
		t.Errorf("got %v, %v", got, err)
	}
	t.Setenv("PATH", bin+":/usr/bin:/bin")
	manager(t, bin, "npm", "sleep 60")
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := egress.HostRegistries(slog.New(slog.DiscardHandler))(short); err == nil {
		t.Error("a manager that hangs must not give a policy")
	}
}

func TestRegistriesAreAskedOnce(t *testing.T) {
	var asked atomic.Int64
	fail := atomic.Bool{}
	fail.Store(true)
	get := egress.Cached(func(context.Context) ([]egress.Rule, error) {
		asked.Add(1)
		if fail.Load() {
			return nil, errors.New("no")
		}
		return rules(t, "a.example:443"), nil
	}, time.Hour)
	if _, err := get(t.Context()); err == nil {
		t.Error("the error was swallowed")
	}
	fail.Store(false)
	done := make(chan error, 8)
	for range 8 {
		go func() {
			got, err := get(t.Context())
			if err == nil && len(got) != 1 {
				err = errors.New("no rules")
			}
			done <- err
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("asked %d times", n)
	}
}

// TestRealDNS uses a real DNS server over UDP, which answers first with a public address and then
// with loopback.
func TestRealDNS(t *testing.T) {
	choirtest.NotInBox(t, "resolver that asks a server")
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	var answers atomic.Int64
	go serveDNS(pc, func() [4]byte {
		if answers.Add(1) == 1 {
			return [4]byte{93, 184, 216, 34}
		}
		return [4]byte{127, 0, 0, 1}
	})
	w := start(t, func(w *world, o *egress.Options, p *egress.Policy, _ *egress.Scope) {
		o.Resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "udp", pc.LocalAddr().String())
		}}
		o.AllowPrivate = nil
		o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			w.dials <- address
			return (&net.Dialer{}).DialContext(ctx, network, w.backAddr.String())
		}
	})
	if _, err := w.get("https://" + w.allowed()); err != nil {
		t.Fatal(err)
	}
	if got := netip.MustParseAddrPort(<-w.dials); got.Addr() != netip.MustParseAddr("93.184.216.34") {
		t.Errorf("dialled %s", got)
	}
	if _, err := w.get("https://" + w.allowed()); err == nil || len(w.dials) != 0 {
		t.Errorf("the name that moved to loopback was followed: %v", err)
	}
}

// serveDNS answers every question for an IPv4 address until pc is closed.
func serveDNS(pc net.PacketConn, address func() [4]byte) {
	buf := make([]byte, 1500)
	for {
		n, from, err := pc.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
			continue
		}
		m.Response, m.Authoritative = true, true
		m.Additionals = nil
		if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
			m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}, Body: &dnsmessage.AResource{A: address()}}}
		}
		if out, err := m.Pack(); err == nil {
			_, _ = pc.WriteTo(out, from) // if the answer is lost, the client asks again
		}
	}
}
