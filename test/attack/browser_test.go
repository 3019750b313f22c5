package attack_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/internal/chromium"
	"choir.dev/choiros/internal/defence"
)

// chrome is the one Chromium that all rows of a run share; endBrowser ends it. Each try has its own
// profile.
var chrome struct {
	sync.Mutex
	*chromium.Browser
	dir string
}

// lacksBrowser returns a reason if there is no Chromium.
func lacksBrowser(t *testing.T) string {
	err := startBrowser()
	if errors.Is(err, chromium.ErrMissing) {
		return "browser"
	}
	if err != nil {
		t.Fatal(err)
	}
	return ""
}

func startBrowser() error {
	chrome.Lock()
	defer chrome.Unlock()
	if chrome.Browser != nil {
		return nil
	}
	dir, err := os.MkdirTemp("", "choir-chromium-")
	if err != nil {
		return err
	}
	// Every other name resolves to the test's own server.
	b, err := chromium.Open(dir, "--host-resolver-rules=MAP *.example 127.0.0.1", "--disable-popup-blocking")
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	chrome.Browser, chrome.dir = b, dir
	return nil
}

// visitor is a real browser in front of a control plane. Its user is signed in to the console and
// to the desktop.
type visitor struct {
	*web
	*chromium.Browser
	ctx     context.Context
	outside *outside
}

func newVisitor(t *testing.T) *visitor {
	t.Helper()
	w, o := newWeb(t), newOutside(t) // they end after the page that uses them
	v := newTab(t)
	v.web, v.outside = w, o
	v.signedIn(t)
	return v
}

// newTab opens a page of the browser in a profile of its own, until the test ends.
func newTab(t *testing.T) *visitor {
	t.Helper()
	if err := startBrowser(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	t.Cleanup(cancel)
	v := &visitor{Browser: chrome.Browser, ctx: ctx}
	leave, err := v.Page(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // the test's own context has ended
		defer cancel()
		if err := leave(ctx); err != nil {
			t.Error(err)
		}
	})
	return v
}

// signedIn gives the browser the cookies that the control plane set.
func (v *visitor) signedIn(t *testing.T) {
	t.Helper()
	for of, c := range v.given {
		strict := map[http.SameSite]string{http.SameSiteStrictMode: "Strict", http.SameSiteNoneMode: "None"}[c.SameSite]
		if strict == "" {
			t.Fatalf("the cookie of %s says nothing of other sites: %s", of, c)
		}
		if err := v.SetCookies(v.ctx, chromium.Cookie{Name: c.Name, Value: c.Value, URL: of + "/", Path: c.Path, Secure: c.Secure, HTTPOnly: c.HttpOnly, SameSite: strict}); err != nil {
			t.Fatal(err)
		}
	}
}

// leave runs a script that takes the tab to another page, and waits for the page.
func (v *visitor) leave(t *testing.T, script string) {
	t.Helper()
	v.eval(t, "void "+script)
	if err := v.Until(v.ctx, "location.hostname !== 'evil.example' && document.readyState === 'complete'"); err != nil {
		t.Fatal(err)
	}
}

// open goes to an address.
func (v *visitor) open(t *testing.T, url string) {
	t.Helper()
	var went struct {
		ErrorText string `json:"errorText"`
	}
	if err := v.Call(v.ctx, "Page.navigate", map[string]any{"url": url}, &went); err != nil {
		t.Fatal(err)
	}
	if went.ErrorText != "" {
		t.Fatalf("%s: %s", url, went.ErrorText)
	}
	if err := v.Until(v.ctx, "document.readyState === 'complete'"); err != nil {
		t.Fatal(err)
	}
}

// eval runs a script in the page and returns its result as text.
func (v *visitor) eval(t *testing.T, script string) string {
	t.Helper()
	var out string
	if err := v.Evaluate(v.ctx, "(async () => String(await ("+script+")))()", true, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// foreign opens a page of another site with this body.
func (v *visitor) foreign(t *testing.T, body string) {
	t.Helper()
	v.outside.page = "<!doctype html><meta charset=utf-8><body style='margin:0'>" + body
	v.open(t, v.outside.url+"/page")
}

// desktopRuns opens the console, which shows a desktop whose page runs script, as if an agent had
// written it. In the script, OUT stands for the outside site, and said(word) reports to the test.
// It returns the word, or "outside" if the outside site was requested, or "" as soon as the
// expression until is true in the console's page.
func (v *visitor) desktopRuns(t *testing.T, script string, files map[string]served, until string) string {
	t.Helper()
	v.desktopIs(script, files)
	v.open(t, v.console+"/")
	return v.outcome(t, until)
}

type served struct {
	status int
	header http.Header
	body   string
}

func (v *visitor) desktopIs(script string, files map[string]served) {
	v.mine.serve = func(r *http.Request) *http.Response {
		s, ok := files[r.URL.Path]
		switch {
		case ok:
		case r.URL.Path == "/":
			s = served{200, http.Header{"Content-Type": {"text/html"}}, "<!doctype html><html><head></head><body><div id=root>desktop</div><script src='/src/evil.js'></script></body></html>"}
		case r.URL.Path == "/src/evil.js":
			s = served{200, http.Header{"Content-Type": {"text/javascript"}}, "const said = (w) => fetch('/src/said-' + w + '.js')\n" + v.outside.in(script)}
		default:
			s = served{200, http.Header{"Content-Type": {"text/javascript"}}, ""}
		}
		return &http.Response{StatusCode: s.status, ProtoMajor: 1, ProtoMinor: 1, Header: s.header.Clone(), Body: io.NopCloser(strings.NewReader(v.outside.in(s.body))), Request: r}
	}
}

func (v *visitor) outcome(t *testing.T, until string) string {
	t.Helper()
	for {
		if len(v.outside.seen()) > 0 {
			return "outside"
		}
		for _, p := range v.mine.askedPaths() {
			if word, ok := strings.CutPrefix(p, "/src/said-"); ok {
				// Anything that it sent outside before it reported has arrived, or was stopped.
				if len(v.outside.seen()) > 0 {
					return "outside"
				}
				return strings.TrimSuffix(word, ".js")
			}
		}
		if until != "" {
			var there bool
			if err := v.Evaluate(v.ctx, until, false, &there); err == nil && there {
				return ""
			}
		}
		select {
		case <-v.ctx.Done():
			t.Fatal("nothing came of the page: it neither got out nor said that it was refused")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (p *played) askedPaths() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string{}, p.paths...)
}

// outside is another site, with the requests that it got except those for its own page.
type outside struct {
	url  string
	page string

	mu   sync.Mutex
	asks []string
}

func newOutside(t *testing.T) *outside {
	o := &outside{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/page" {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, o.page) // the browser may have gone
			return
		}
		if r.URL.Path != "/favicon.ico" {
			o.mu.Lock()
			o.asks = append(o.asks, r.URL.Path)
			o.mu.Unlock()
		}
		w.Header().Set("Access-Control-Allow-Origin", "*")
	}))
	t.Cleanup(srv.Close)
	_, port, err := net.SplitHostPort(srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	o.url = "http://evil.example:" + port
	return o
}

func (o *outside) in(text string) string { return strings.ReplaceAll(text, "OUT", o.url) }

func (o *outside) seen() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string{}, o.asks...)
}

// withBrowser makes a row of the matrix that needs a browser.
func withBrowser(number int, attack string, run func(t *testing.T, v *visitor) Verdict, defences ...defence.Name) Row {
	return Row{Number: number, Attack: "in a browser: " + attack, Defences: defences, Lacks: lacksBrowser, Run: func(t *testing.T) Verdict {
		return run(t, newVisitor(t))
	}}
}
