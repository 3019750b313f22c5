package egress_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/egress"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/tether"
)

// TestOverARealTether connects as a box does, over one stream of its tether, sends much in both
// directions, and ends the tunnel by ending the tether.
func TestOverARealTether(t *testing.T) {
	w := start(t, nil)
	echo, err := tls.Listen("tcp", "127.0.0.1:0", w.back.TLS)
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c) // the client compares what came back
			}()
		}
	}()
	addr := echo.Addr().(*net.TCPAddr).AddrPort()
	rule := fmt.Sprintf("allowed.example:%d", addr.Port())
	closed := make(chan egress.Traffic, 1)
	proxy, err := egress.NewProxy(egress.Options{
		Meter:    func(_ context.Context, _ egress.Scope, tr egress.Traffic) error { closed <- tr; return nil },
		Resolver: w.names, AllowPrivate: []netip.AddrPort{addr}, Logger: slog.New(slog.DiscardHandler),
		Decide: func(context.Context, egress.Scope, bool, contract.EgressDecided) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	handler := proxy.Handler(egress.Scope{Box: "task-1", Kind: contract.BoxTask}, egress.Policy{Rules: rules(t, rule)})

	hostEnd, guestEnd := net.Pipe()
	token := tether.NewToken()
	copied, err := tether.ParseToken(token.Encode())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	type end struct {
		s   *tether.Session
		err error
	}
	accepted := make(chan end, 1)
	go func() {
		s, err := tether.Accept(ctx, hostEnd, tether.Options{Token: token, Handler: handler})
		accepted <- end{s, err}
	}()
	guest, err := tether.Dial(ctx, guestEnd, tether.Options{Token: copied})
	if err != nil {
		t.Fatal(err)
	}
	host := <-accepted
	if host.err != nil {
		t.Fatal(host.err)
	}

	if _, err := guest.Connect(ctx, "evil.example:443", nil); !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "allowlist") {
		t.Errorf("got %v", err)
	}
	conn, err := guest.Connect(ctx, rule, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := tls.Client(conn, &tls.Config{RootCAs: w.roots, ServerName: "allowed.example"})
	const size = 4 << 20
	sent := make(chan error, 1)
	go func() {
		_, err := io.Copy(client, io.LimitReader(zeros{}, size))
		sent <- err
	}()
	if n, err := io.Copy(io.Discard, io.LimitReader(client, size)); n != size || err != nil {
		t.Errorf("%d bytes came back, %v", n, err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	if err := guest.Close(); err != nil {
		t.Error(err)
	}
	if err := host.s.Close(); err != nil {
		t.Error(err)
	}
	select {
	case tr := <-closed:
		// The last piece may have been on its way when the tether was cut.
		if tr.Sent < size || tr.Received < size-64<<10 {
			t.Errorf("traffic %+v", tr)
		}
	case <-ctx.Done():
		t.Error("the tunnel outlived its tether")
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
