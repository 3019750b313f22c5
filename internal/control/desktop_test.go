package control_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"choir.dev/choiros/internal/control/devserver"
)

// vite is a hostile dev server on a real port: it sets headers that it must not set, and records
// what it was asked.
type vite struct {
	asked chan *http.Request
	html  string
}

func (w *world) startVite() *vite {
	w.t.Helper()
	v := &vite{asked: make(chan *http.Request, 64), html: `<html><head><script nonce="CHOIR_NONCE" type="module" src="/src/main.tsx"></script></head><body>live</body></html>`}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	srv := &http.Server{Handler: v, ReadHeaderTimeout: 5 * time.Second}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	w.t.Cleanup(func() { check(w.t, srv.Close()); <-done })
	tr := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, ln.Addr().String())
	}}
	w.t.Cleanup(tr.CloseIdleConnections)
	m := w.machine()
	m.mu.Lock()
	m.live = tr
	m.mu.Unlock()
	return v
}

func (v *vite) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.asked <- r.Clone(context.Background())
	if r.Header.Get("Upgrade") != "" {
		ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"vite-hmr"}, InsecureSkipVerify: true})
		if err != nil {
			return
		}
		defer ws.CloseNow()
		kind, b, err := ws.Read(r.Context())
		if err == nil {
			_ = ws.Write(r.Context(), kind, append([]byte("echo "), b...))
		}
		return
	}
	h := w.Header()
	for k, val := range map[string]string{
		"Set-Cookie": "__Host-choir-console=stolen; Path=/; Secure", "Clear-Site-Data": `"*"`, "Service-Worker-Allowed": "/",
		"Access-Control-Allow-Origin": "*", "Content-Security-Policy": "default-src *", "Refresh": "0; url=http://evil.example", "Link": "<http://evil.example>; rel=preload",
		"Report-To": "{}", "Alt-Svc": "h3=\":443\"",
	} {
		h.Set(k, val)
	}
	switch {
	case r.URL.Path == "/":
		h.Set("Content-Type", "text/html")
		h.Set("Etag", `"page"`)
		h.Set("Cache-Control", "max-age=600")
		_, _ = io.WriteString(w, v.html)
	case strings.HasSuffix(r.URL.Path, ".tsx"):
		h.Set("Content-Type", "text/javascript")
		_, _ = io.WriteString(w, "export {}")
	case r.URL.Path == "/away":
		h.Set("Location", "http://evil.example/")
		w.WriteHeader(http.StatusFound)
	default:
		h.Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<script>fallback</script>")
	}
}

var mustNotCome = []string{"Set-Cookie", "Clear-Site-Data", "Service-Worker-Allowed", "Access-Control-Allow-Origin", "Refresh", "Link", "Report-To", "Alt-Svc", "Location"}

func TestDesktopPageFromBuildAndLive(t *testing.T) {
	w := open(t)
	origin, cookie := w.enter(w.signIn())
	page := func() answer { return w.ask("GET", hostOf(origin), "/", "", append(iframed, cookie)...) }
	res := page()
	if res.StatusCode != 200 || !strings.Contains(res.body, `data-mode="build"`) || strings.Contains(res.body, "CHOIR_NONCE") {
		t.Fatalf("build: %d %s", res.StatusCode, res.body)
	}
	if at := strings.Index(res.body, "heartbeat.js"); at < 0 || at > strings.Index(res.body, "app-1.js") {
		t.Error("the heartbeat does not come first")
	}
	csp := res.Header.Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'self'", "frame-ancestors " + w.console(), "form-action 'none'", "frame-src 'none'", "base-uri 'none'"} {
		if !strings.Contains(csp, want) {
			t.Errorf("the policy lacks %s: %s", want, csp)
		}
	}
	for _, foreign := range []string{"*", "https:", "'unsafe-", "http://evil"} {
		if strings.Contains(csp, " "+foreign) {
			t.Errorf("the policy allows %s", foreign)
		}
	}
	// A nonce that somebody has seen allows nothing: every answer has its own, in the policy and in
	// the page, and no answer comes from a cache.
	seen := map[string]bool{}
	fresh := func(ask ...string) {
		t.Helper()
		res := w.ask("GET", hostOf(origin), "/", "", append(append(iframed[:len(iframed):len(iframed)], cookie), ask...)...)
		csp := res.Header.Get("Content-Security-Policy")
		_, after, ok := strings.Cut(csp, "style-src 'self' 'nonce-")
		nonce, _, _ := strings.Cut(after, "'")
		if !ok || len(nonce) < 20 || seen[nonce] || !strings.Contains(csp, "script-src 'self' 'nonce-"+nonce+"'") ||
			!strings.Contains(res.body, ` nonce="`+nonce+`" `) || strings.Contains(res.body, "CHOIR_NONCE") {
			t.Errorf("the nonce %q is not this answer's own: %s\n%s", nonce, csp, res.body)
		}
		seen[nonce] = true
		if res.StatusCode != 200 || res.Header.Get("Etag") != "" || res.Header.Get("Last-Modified") != "" || res.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("the page may be answered from a cache: %d %v", res.StatusCode, res.Header)
		}
	}
	conditions := []string{`If-None-Match: "page", *`, "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT"}
	fresh()
	fresh(conditions...)
	for name, want := range map[string]string{"Origin-Agent-Cluster": "?1", "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"} {
		if got := res.Header.Get(name); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
	if pp := res.Header.Get("Permissions-Policy"); !strings.Contains(pp, "publickey-credentials-get=()") || !strings.Contains(pp, "publickey-credentials-create=()") {
		t.Errorf("passkeys are not refused: %s", pp)
	}
	v := w.startVite()
	res = page()
	if !strings.Contains(res.body, `data-mode="live"`) || !strings.Contains(res.body, "live</body>") {
		t.Fatalf("live: %s", res.body)
	}
	for _, name := range mustNotCome {
		if got := res.Header.Get(name); got != "" {
			t.Errorf("%s: %s came through", name, got)
		}
	}
	<-v.asked
	fresh()
	fresh(conditions...)
	for range 2 {
		// Otherwise the dev server could answer that nothing has changed.
		if asked := <-v.asked; asked.Header.Get("If-None-Match") != "" || asked.Header.Get("If-Modified-Since") != "" {
			t.Errorf("the box was asked for its page on a condition: %v", asked.Header)
		}
	}
	// The page of the build may still be open somewhere, so its assets must be served.
	own := append(fetched(origin)[1:3:3], "Sec-Fetch-Dest: script", cookie)
	if res := w.ask("GET", hostOf(origin), "/assets/app-1.js", "", own...); res.StatusCode != 200 || res.body != "export {}" {
		t.Errorf("an old page's asset: %d", res.StatusCode)
	}
	res = w.ask("GET", hostOf(origin), "/src/main.tsx?t=1700000000000", "", append(own, "Authorization: Bearer x", "X-Forwarded-For: 1.2.3.4")...)
	if res.StatusCode != 200 || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/javascript") {
		t.Fatalf("module: %d %v %s", res.StatusCode, res.Header, res.body)
	}
	for _, name := range mustNotCome {
		if got := res.Header.Get(name); got != "" {
			t.Errorf("%s: %s came through", name, got)
		}
	}
	asked := <-v.asked
	for _, name := range []string{"Cookie", "Authorization", "X-Forwarded-For", "Referer"} {
		if got := asked.Header.Get(name); got != "" {
			t.Errorf("the box saw %s: %s", name, got)
		}
	}
	if res := w.ask("GET", hostOf(origin), "/away.js", "", own...); res.StatusCode != 404 || strings.Contains(res.body, "fallback") {
		t.Errorf("HTML in place of a script: %d %s", res.StatusCode, res.body)
	}
	if res := w.ask("GET", hostOf(origin), "/away", "", own...); res.StatusCode != 502 || res.Header.Get("Location") != "" {
		t.Errorf("a redirect: %d %v", res.StatusCode, res.Header)
	}
}

// TestAttack21_DevServerPaths shows that nothing outside the desktop's source is served, and that
// the box is not even asked for it.
func TestAttack21_DevServerPaths(t *testing.T) {
	w := open(t)
	v := w.startVite()
	origin, cookie := w.enter(w.signIn())
	own := append(fetched(origin)[1:3:3], "Sec-Fetch-Dest: script", cookie)
	for _, path := range []string{
		"/@fs/etc/passwd", "/@fs/etc/passwd?raw", "/@fs//etc/passwd", "/@FS/etc/passwd", "/%40fs/etc/passwd", "/@fs/etc/passwd?import&raw??", "/@fs/etc/passwd?url",
		"/@fs/etc/passwd?.svg?.wasm?init", "/@fs" + devserver.ViteCache + "/deps/../../etc/passwd.js", "/@fs" + devserver.ViteCache + "/deps/x.js?raw??",
		"/@fs" + devserver.ViteCache + "/deps/%2e%2e/x.js", "/@fs" + devserver.ViteCache + "/other/x.js", "/x/@fs/etc/passwd",
		"/src/main.tsx?import&raw??", "/src/main.tsx?raw&url=../../etc/passwd", "/src/main.tsx?html-proxy=/etc/passwd",
		"/../etc/passwd", "/src/../../etc/passwd", "/src/%2e%2e/%2e%2e/etc/passwd", "/src/..%2f..%2fetc/passwd", "/src/%252e%252e/x", "/..%5c..%5cetc", `/src/..\..\etc`,
		"/.env", "/.env/", "/.env?raw", "/.git/config", "/src/.npmrc", "/.", "/./src/main.tsx", "//etc/passwd", "/src//main.tsx", "/key.pem", "/src/KEY.PEM?raw",
		"/@id//etc/passwd", "/@id/__x00__/etc/passwd", "/@id/__x00__x/../../etc/passwd", "/@id/file:///etc/passwd", "/@vite/../etc", "/@other",
		"/__open-in-editor?file=/etc/passwd", "/__inspect/", "/src/a%00.tsx", "/src/main.tsx#/../../etc/passwd", "/_choir/../_choir/x", "/_choirx",
		"/etc/passwd?import&url&inline=1.wasm?init",
	} {
		res := w.ask("GET", hostOf(origin), path, "", own...)
		if res.StatusCode < 400 {
			t.Errorf("%s: %d %s", path, res.StatusCode, res.body)
		}
	}
	select {
	case r := <-v.asked:
		t.Errorf("the box was asked for %s", r.URL)
	default:
	}
	for _, path := range []string{"/src/main.tsx", "/src/main.tsx?t=17", "/@vite/client", "/@react-refresh", "/node_modules/react/index.js?v=ab12", "/node_modules/.vite/deps/react.js?v=ab12",
		"/@fs" + devserver.ViteCache + "/deps/react-dom_client.js?v=ab12", "/src/app.css?direct", "/@id/__x00__vite/preload-helper.js"} {
		w.ask("GET", hostOf(origin), path, "", own...)
		select {
		case <-v.asked:
		case <-time.After(20 * time.Second):
			t.Errorf("%s was not asked for", path)
		}
	}
}

// TestDesktopRefusals (attacks 20, 22 and 23) shows who may use a desktop's origin, and how.
func TestDesktopRefusals(t *testing.T) {
	w := open(t)
	other := newMachine("Other")
	w.computers.list = append(w.computers.list, other)
	console := w.signIn()
	res := w.ask("POST", hostOf(w.console()), "/api/computers/"+string(w.machine().cid)+"/ticket", "", append(fetched(w.console()), console)...)
	var tk struct{ Action, Ticket string }
	if err := json.Unmarshal([]byte(res.body), &tk); err != nil {
		t.Fatal(err)
	}
	origin := strings.TrimSuffix(tk.Action, "/_choir/enter")
	otherOrigin := w.desktop("other")
	form := func(host, ticket string, headers ...string) answer {
		return w.ask("POST", hostOf(host), "/_choir/enter", "ticket="+ticket, headers...)
	}
	urlencoded := "Content-Type: application/x-www-form-urlencoded"
	for name, headers := range map[string][]string{
		"another desktop": {"Origin: " + otherOrigin, "Sec-Fetch-Site: same-site", "Sec-Fetch-Dest: iframe", urlencoded},
		"a foreign page":  {"Origin: http://evil.example", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Dest: iframe", urlencoded},
		"Origin null":     {"Origin: null", "Sec-Fetch-Site: same-site", "Sec-Fetch-Dest: iframe", urlencoded},
		"a top page":      {"Origin: " + w.console(), "Sec-Fetch-Site: same-site", "Sec-Fetch-Dest: document", urlencoded},
		"nothing":         {urlencoded},
	} {
		if res := form(origin, tk.Ticket, headers...); res.StatusCode != 403 || len(res.Cookies()) > 0 {
			t.Errorf("enter from %s: %d", name, res.StatusCode)
		}
	}
	if res := form(otherOrigin, tk.Ticket, w.framed()...); res.StatusCode != 403 || len(res.Cookies()) > 0 {
		t.Errorf("a ticket at another desktop: %d", res.StatusCode)
	}
	if res := form(origin, tk.Ticket, w.framed()...); res.StatusCode != 403 {
		t.Errorf("the ticket was not spent: %d", res.StatusCode)
	}
	res = w.ask("POST", hostOf(w.console()), "/api/computers/"+string(w.machine().cid)+"/ticket", "", append(fetched(w.console()), console)...)
	if err := json.Unmarshal([]byte(res.body), &tk); err != nil {
		t.Fatal(err)
	}
	res = form(origin, tk.Ticket, w.framed()...)
	cookie := cookieOf(t, res)
	if set := res.Header.Get("Set-Cookie"); !strings.Contains(set, "__Host-choir-desktop=") || !strings.Contains(set, "SameSite=Strict") || !strings.Contains(set, "HttpOnly") {
		t.Errorf("cookie: %s", set)
	}
	if res := form(origin, tk.Ticket, w.framed()...); res.StatusCode != 403 {
		t.Errorf("a ticket works twice: %d", res.StatusCode)
	}
	nats := []string{"Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-Fetch-Dest: websocket"}
	for _, c := range []struct {
		name, host, path string
		headers          []string
		status           int
	}{
		{"a service worker", origin, "/sw.js", []string{cookie, "Service-Worker: script", "Sec-Fetch-Site: same-origin", "Sec-Fetch-Dest: serviceworker"}, 403},
		{"a top page goes to the console", origin, "/", []string{cookie, "Sec-Fetch-Site: none", "Sec-Fetch-Dest: document", "Sec-Fetch-Mode: navigate"}, 303},
		{"framed by a foreign page", origin, "/", []string{cookie, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Dest: iframe", "Sec-Fetch-Mode: navigate"}, 403},
		{"fetched by itself", origin, "/", []string{cookie, "Sec-Fetch-Site: same-origin", "Sec-Fetch-Dest: empty"}, 404},
		{"embedded", origin, "/assets/app-1.js", []string{cookie, "Sec-Fetch-Site: same-origin", "Sec-Fetch-Dest: object"}, 403},
		{"another page in the frame", origin, "/sneaky.html", append([]string{cookie}, iframed...), 404},
		{"HTML as an asset", origin, "/assets/evil.html", []string{cookie, "Sec-Fetch-Site: same-origin", "Sec-Fetch-Dest: empty"}, 404},
		{"HTML as a pressed asset", origin, "/assets/evil.html", []string{cookie, "Accept-Encoding: br", "Sec-Fetch-Site: same-origin", "Sec-Fetch-Dest: empty"}, 404},
		{"session without cookie", origin, "/_choir/session", []string{"Sec-Fetch-Site: same-origin"}, 401},
		{"session from a sibling", origin, "/_choir/session", []string{cookie, "Sec-Fetch-Site: same-site", "Origin: " + otherOrigin}, 403},
		{"session from the console", origin, "/_choir/session", []string{cookie, "Sec-Fetch-Site: same-site", "Origin: " + w.console()}, 403},
		{"script from a sibling", origin, "/assets/app-1.js", []string{cookie, "Sec-Fetch-Site: same-site", "Sec-Fetch-Dest: script"}, 403},
		{"the cookie at another desktop", otherOrigin, "/_choir/session", []string{cookie, "Sec-Fetch-Site: same-origin"}, 401},
		{"a desktop that is not there", w.desktop("nobody"), "/_choir/session", []string{cookie, "Sec-Fetch-Site: same-origin"}, 401},
		{"NATS without Origin", origin, "/_choir/nats", append([]string{cookie}, nats...), 403},
		{"NATS from a foreign page", origin, "/_choir/nats", append([]string{cookie, "Origin: http://evil.example"}, nats...), 403},
		{"NATS from a sibling", origin, "/_choir/nats", append([]string{cookie, "Origin: " + otherOrigin, "Sec-Fetch-Site: same-site"}, nats...), 403},
		{"NATS without cookie", origin, "/_choir/nats", append([]string{"Origin: " + origin}, nats...), 401},
		{"HMR from a foreign page", origin, "/?token=x", append([]string{cookie, "Origin: http://evil.example", "Sec-WebSocket-Protocol: vite-hmr"}, nats...), 403},
		{"HMR without Origin", origin, "/?token=x", append([]string{cookie, "Sec-WebSocket-Protocol: vite-hmr"}, nats...), 403},
		{"a socket elsewhere", origin, "/src/main.tsx", append([]string{cookie, "Origin: " + origin, "Sec-WebSocket-Protocol: vite-hmr"}, nats...), 403},
		{"a socket of another protocol", origin, "/", append([]string{cookie, "Origin: " + origin, "Sec-WebSocket-Protocol: other"}, nats...), 403},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := w.ask("GET", hostOf(c.host), c.path, "", c.headers...)
			if res.StatusCode != c.status {
				t.Fatalf("%d, want %d: %s", res.StatusCode, c.status, res.body)
			}
			if loc := res.Header.Get("Location"); loc != "" && loc != w.console()+"/" {
				t.Errorf("redirected to %s", loc)
			}
			if strings.Contains(res.body, "seed") || strings.Contains(res.body, "alert(1)") || len(res.Cookies()) > 0 {
				t.Errorf("it shows %s", res.body)
			}
		})
	}
}

func TestHMRThroughTheProxy(t *testing.T) {
	w := open(t)
	v := w.startVite()
	origin, cookie := w.enter(w.signIn())
	h := http.Header{"Origin": {origin}, "Sec-Fetch-Site": {"same-origin"}, "Cookie": {strings.TrimPrefix(cookie, "Cookie: ")}}
	ctx := within(t)
	ws, _, err := websocket.Dial(ctx, "ws://"+hostOf(origin)+"/?token=AbC-1_2", &websocket.DialOptions{HTTPHeader: h, HTTPClient: w.loopback(), Subprotocols: []string{"vite-hmr"}})
	if err != nil {
		t.Fatal(err)
	}
	defer ws.CloseNow()
	if ws.Subprotocol() != "vite-hmr" {
		t.Errorf("subprotocol %q", ws.Subprotocol())
	}
	if err := ws.Write(ctx, websocket.MessageText, []byte("hi")); err != nil {
		t.Fatal(err)
	}
	if _, b, err := ws.Read(ctx); err != nil || string(b) != "echo hi" {
		t.Fatalf("%q, %v", b, err)
	}
	if r := <-v.asked; r.Header.Get("Cookie") != "" || r.URL.RawQuery != "token=AbC-1_2" {
		t.Errorf("the box saw %v %s", r.Header, r.URL)
	}
}

// loadOf serves a page and returns the name under which the page reports.
func (w *world) loadOf(origin, cookie string) string {
	w.t.Helper()
	page := w.ask("GET", hostOf(origin), "/", "", append(iframed[:len(iframed):len(iframed)], cookie)...)
	_, rest, _ := strings.Cut(page.body, `data-load="`)
	load, _, ok := strings.Cut(rest, `"`)
	if !ok {
		w.t.Fatalf("no page: %s", page.body)
	}
	return load
}

// TestAttack47_APageSpeaksForItself shows that a broken page of one visitor does not make the
// desktop count as broken while another page is well, and that a page that reports nothing has no
// effect.
func TestAttack47_APageSpeaksForItself(t *testing.T) {
	w := open(t)
	origin, mine := w.enter(w.signIn())
	_, theirs := w.enter(w.signIn())
	a, b := w.loadOf(origin, mine), w.loadOf(origin, theirs)
	w.loadOf(origin, theirs) // this page never reports
	beat := func(load, cookie, says string) {
		t.Helper()
		own := append(fetched(origin), cookie, "Content-Type: application/json")
		w.waitFor(func() bool {
			return w.ask("POST", hostOf(origin), "/_choir/heartbeat", `{"load":"`+load+`",`+says+`}`, own...).StatusCode == 204
		})
	}
	want := func(broken bool) {
		t.Helper()
		select {
		case b := <-w.machine().beats:
			if b.Broken != broken {
				t.Errorf("the desktop is told that it is broken: %v", b.Broken)
			}
		default:
			t.Errorf("nothing is told, not that it is broken: %v", broken)
		}
	}
	none := func() {
		t.Helper()
		select {
		case b := <-w.machine().beats:
			t.Errorf("one page speaks for all: %+v", b)
		default:
		}
	}
	beat(a, mine, `"broken":false`)
	want(false)
	beat(b, theirs, `"broken":true`)
	none()
	beat(a, mine, `"broken":false,"hidden":true`)
	want(false)
	beat(b, theirs, `"broken":true`)
	none()
	beat(a, mine, `"gone":true`)
	beat(a, mine, `"broken":false,"hidden":true`) // this report was on its way
	none()
	beat(b, theirs, `"broken":true`)
	want(true)
}

// TestAPageIsHeardAfterAnotherEntered: each page that enters gives the browser a new session. The
// pages that it shows already report in that session, and must still be heard.
func TestAPageIsHeardAfterAnotherEntered(t *testing.T) {
	w := open(t)
	console := w.signIn()
	origin, cookie := w.enter(console)
	first := w.loadOf(origin, cookie)
	_, cookie = w.enter(console)
	w.loadOf(origin, cookie)
	own := append(fetched(origin), cookie, "Content-Type: application/json")
	if res := w.ask("POST", hostOf(origin), "/_choir/heartbeat", `{"load":"`+first+`","broken":false}`, own...); res.StatusCode != 204 {
		t.Fatalf("the page that was there first: %d %s", res.StatusCode, res.body)
	}
	if b := <-w.machine().beats; b.Broken || b.Page != first {
		t.Errorf("%+v", b)
	}
}

func TestHeartbeat(t *testing.T) {
	w := open(t)
	origin, cookie := w.enter(w.signIn())
	page := w.ask("GET", hostOf(origin), "/", "", append(iframed, cookie)...)
	_, rest, _ := strings.Cut(page.body, `data-load="`)
	load, _, _ := strings.Cut(rest, `"`)
	beat := func(body string, headers ...string) int {
		return w.ask("POST", hostOf(origin), "/_choir/heartbeat", body, headers...).StatusCode
	}
	own := append(fetched(origin), cookie, "Content-Type: application/json")
	if got := beat(`{"load":"`+load+`","broken":false}`, own...); got != 204 {
		t.Fatalf("painted: %d", got)
	}
	if b := <-w.machine().beats; b.Broken || b.Mode != "build" {
		t.Errorf("%+v", b)
	}
	// This comes at once: a page's report in the same moment as another is not refused.
	if got := beat(`{"load":"`+load+`","broken":true,"reason":"error","detail":"Bang\u0007\u001b[31m`+strings.Repeat("x", 3000)+`"}`, own...); got != 204 {
		t.Fatalf("threw: %d", got)
	}
	if b := <-w.machine().beats; !b.Broken || b.Reason != "error" || len(b.Detail) > 2000 || strings.ContainsAny(b.Detail, "\a\x1b") {
		t.Errorf("%+v", b)
	}
	if got := beat(`{"load":"somebody else's"}`, own...); got != 404 {
		t.Errorf("another load: %d", got)
	}
	if got := beat(`{"load":"`+load+`"}`, cookie, "Origin: "+w.console(), "Sec-Fetch-Site: same-site"); got != 403 {
		t.Errorf("from the console: %d", got)
	}
	if got := beat(`{"load":"`+load+`","detail":"`+strings.Repeat("x", 10<<10)+`"}`, own...); got != 413 {
		t.Errorf("too large: %d", got)
	}
	refused := false
	for n := 0; n < 1000 && !refused; n++ {
		switch got := beat(`{"load":"`+load+`","broken":false}`, own...); got {
		case 204:
			<-w.machine().beats
		case 429:
			refused = true
		default:
			t.Fatalf("the %dth: %d", n, got)
		}
	}
	if !refused {
		t.Error("a page may report without end")
	}
}

func TestFrameStream(t *testing.T) {
	w := open(t)
	cookie := w.signIn()
	req, err := http.NewRequestWithContext(within(t), "GET", w.console()+"/api/computers/-/frame/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	req.Header.Set("Cookie", strings.TrimPrefix(cookie, "Cookie: "))
	res, err := w.loopback().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	in := bufio.NewScanner(res.Body)
	next := func() string {
		for in.Scan() {
			if data, ok := strings.CutPrefix(in.Text(), "data: "); ok {
				return data
			}
		}
		t.Fatalf("the stream ended: %v", in.Err())
		return ""
	}
	if first := next(); !strings.Contains(first, `"name":"My Studio"`) || !strings.Contains(first, `"running":[]`) {
		t.Fatalf("first: %s", first)
	}
	w.machine().mu.Lock()
	looks := w.machine().looks
	w.machine().mu.Unlock()
	if looks != 1 {
		t.Errorf("%d look", looks)
	}
	if _, err := w.client().Rename(within(t), "Renamed"); err != nil {
		t.Fatal(err)
	}
	if second := next(); !strings.Contains(second, `"name":"Renamed"`) {
		t.Errorf("second: %s", second)
	}
}
