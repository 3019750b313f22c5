package control_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"strings"
	"testing"
	"time"
)

// rawServer is a dev server that answers every request with exactly this text.
func (w *world) rawServer(says string) {
	w.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			if req, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				_, _ = io.Copy(io.Discard, req.Body)
				_, _ = io.WriteString(conn, strings.ReplaceAll(says, "\n", "\r\n"))
			}
			_ = conn.Close()
		}
	}()
	w.t.Cleanup(func() { check(w.t, ln.Close()); <-done })
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, ln.Addr().String())
	}}
	m := w.machine()
	m.mu.Lock()
	m.live = tr
	m.mu.Unlock()
}

// heard returns the answers to one request as they came over the connection, including
// informational ones, and what followed the last one's headers.
func (w *world) heard(host, target string, headers ...string) (statuses []string, heads []textproto.MIMEHeader, rest string) {
	w.t.Helper()
	conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", w.port), 5*time.Second)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	check(w.t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	lines := strings.Join(headers, "\r\n")
	if !strings.Contains(lines, "Upgrade:") {
		lines += "\r\nConnection: close"
	}
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\nTE: trailers\r\n\r\n", target, host, lines); err != nil {
		w.t.Fatal(err)
	}
	r := textproto.NewReader(bufio.NewReader(conn))
	for {
		status, err := r.ReadLine()
		if err != nil {
			w.t.Fatal(err)
		}
		head, err := r.ReadMIMEHeader()
		if err != nil {
			w.t.Fatal(err)
		}
		statuses, heads = append(statuses, status), append(heads, head)
		if !strings.HasPrefix(status, "HTTP/1.1 1") || strings.HasPrefix(status, "HTTP/1.1 101") {
			b, _ := io.ReadAll(r.R)
			return statuses, heads, string(b)
		}
	}
}

const evilHead = "Content-Security-Policy: default-src *\nPermissions-Policy: camera=*\nOrigin-Agent-Cluster: ?0\nX-Content-Type-Options: sniff\n" +
	"Set-Cookie: a=b\nLink: <http://evil.example/x>; rel=preload\nClear-Site-Data: \"*\"\nService-Worker-Allowed: /\nRefresh: 0; url=http://evil.example\n" +
	"Cross-Origin-Opener-Policy: unsafe-none\nCross-Origin-Resource-Policy: cross-origin\nReferrer-Policy: unsafe-url\nSpeculation-Rules: \"/x\"\nReporting-Endpoints: a=\"http://evil.example\"\n"

// TestAttack44_HostsHeadersAreLast shows that whatever answer the dev server gives, only choir's
// headers decide what a browser may do with it.
func TestAttack44_HostsHeadersAreLast(t *testing.T) {
	want := map[string]string{
		"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox", "Origin-Agent-Cluster": "?1", "X-Content-Type-Options": "nosniff",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Referrer-Policy": "no-referrer",
	}
	never := []string{"Set-Cookie", "Link", "Clear-Site-Data", "Service-Worker-Allowed", "Refresh", "Speculation-Rules", "Reporting-Endpoints", "Location", "Trailer"}
	script := "HTTP/1.1 200 OK\nContent-Type: text/javascript\nContent-Length: 9\n" + evilHead + "\nexport {}"
	for _, c := range []struct{ name, says, status, kind string }{
		{"plain", script, "200", "text/javascript; charset=utf-8"},
		{"early hints", "HTTP/1.1 103 Early Hints\n" + evilHead + "\n" + script, "200", "text/javascript; charset=utf-8"},
		{"many of them", strings.Repeat("HTTP/1.1 103 Early Hints\nContent-Security-Policy: default-src *\n\n", 3) + "HTTP/1.1 102 Processing\n\n" + "HTTP/1.1 199 Odd\nX-A: b\n\n" + script, "200", "text/javascript; charset=utf-8"},
		{"continue", "HTTP/1.1 100 Continue\n\n" + script, "200", "text/javascript; charset=utf-8"},
		{"duplicates", "HTTP/1.1 200 OK\nContent-Type: text/javascript\nContent-Type: text/html\nCache-Control: no-cache\nCache-Control: public, immutable\nContent-Length: 1\n\n1", "200", "text/javascript; charset=utf-8"},
		{"folded", "HTTP/1.1 200 OK\nContent-Type: text/javascript;a=b,\n text/html\nContent-Length: 1\nX-A: b\n Content-Security-Policy: default-src *\n\n1", "200", "text/javascript; charset=utf-8"},
		{"trailers", "HTTP/1.1 200 OK\nContent-Type: text/javascript\nTransfer-Encoding: chunked\nTrailer: Content-Security-Policy, Set-Cookie\n\n9\nexport {}\n0\nContent-Security-Policy: default-src *\nSet-Cookie: a=b\n\n", "200", "text/javascript; charset=utf-8"},
		{"trailers that nobody announced", "HTTP/1.1 200 OK\nContent-Type: text/javascript\nTransfer-Encoding: chunked\n\n9\nexport {}\n0\nSet-Cookie: a=b\n\n", "200", "text/javascript; charset=utf-8"},
		{"not modified", "HTTP/1.1 304 Not Modified\nEtag: \"a\"\n" + evilHead + "\n", "304", ""},
		{"a redirect", "HTTP/1.1 302 Found\nLocation: http://evil.example/\n" + evilHead + "\n", "502", "application/problem+json"},
		{"a page", "HTTP/1.1 200 OK\nContent-Type: text/html\nContent-Length: 1\n" + evilHead + "\n1", "404", "application/problem+json"},
		{"an error", "HTTP/1.1 500 Oh\nContent-Type: text/html\nContent-Length: 1\n" + evilHead + "\n1", "404", "application/problem+json"},
		{"a failure of its own type", "HTTP/1.1 500 Oh\nContent-Type: text/x-evil\nContent-Length: 1\n" + evilHead + "\n1", "500", "application/octet-stream"},
		{"an upgrade that nobody asked for", "HTTP/1.1 101 Switching Protocols\nUpgrade: evil\nConnection: Upgrade\n" + evilHead + "\n", "502", "application/problem+json"},
		{"no HTTP", "hello\n\n", "502", "application/problem+json"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := open(t)
			w.rawServer(c.says)
			origin, cookie := w.enter(w.signIn())
			statuses, heads, rest := w.heard(hostOf(origin), "/src/x.js", append(fetched(origin)[1:3:3], "Sec-Fetch-Dest: worker", cookie)...)
			if len(statuses) != 1 || !strings.HasPrefix(statuses[0], "HTTP/1.1 "+c.status) {
				t.Fatalf("the answers were %q", statuses)
			}
			h := heads[0]
			for name, value := range want {
				if got := h[name]; len(got) != 1 || got[0] != value {
					t.Errorf("%s: %q", name, got)
				}
			}
			for _, name := range []string{"Content-Type", "Cache-Control", "Permissions-Policy"} {
				if len(h[name]) > 1 {
					t.Errorf("%s came %d times: %q", name, len(h[name]), h[name])
				}
			}
			if c.kind != "" && h.Get("Content-Type") != c.kind {
				t.Errorf("its type is %q", h.Get("Content-Type"))
			}
			for _, name := range never {
				if got := h[name]; got != nil {
					t.Errorf("%s came through: %q", name, got)
				}
			}
			if strings.Contains(rest, "Set-Cookie") || strings.Contains(rest, "default-src *") {
				t.Errorf("trailers came through: %q", rest)
			}
		})
	}
	t.Run("an upgrade", func(t *testing.T) {
		w := open(t)
		w.rawServer("HTTP/1.1 103 Early Hints\n" + evilHead + "\nHTTP/1.1 101 Switching Protocols\nUpgrade: websocket\nConnection: Upgrade\n" + evilHead + "\n")
		origin, cookie := w.enter(w.signIn())
		statuses, heads, _ := w.heard(hostOf(origin), "/?token=x", "Origin: "+origin, "Sec-Fetch-Site: same-origin", "Sec-Fetch-Dest: websocket", cookie,
			"Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Protocol: vite-hmr")
		if len(statuses) != 1 || !strings.HasPrefix(statuses[0], "HTTP/1.1 101") {
			t.Fatalf("the answers were %q", statuses)
		}
		for _, name := range never {
			if got := heads[0][name]; got != nil {
				t.Errorf("%s came through: %q", name, got)
			}
		}
		for name, value := range want {
			if got := heads[0][name]; len(got) != 1 || got[0] != value {
				t.Errorf("%s: %q", name, got)
			}
		}
	})
}
