package stopped

import (
	"bytes"
	"context"
	"fmt"
	"html"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"

	"choir.dev/choiros/internal/control/httpio"
	"choir.dev/choiros/internal/control/origin"
	"choir.dev/choiros/internal/control/problem"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/lazy"
	"choir.dev/choiros/internal/view"
)

// Options configure a Page.
type Options struct {
	Console fs.FS  // the console's pages and assets (package console)
	Host    string // as in control.Options
	Port    int
	Logger  *slog.Logger
}

// Page is served in the console's place while the stored data can't be opened: every path
// answers why, with status 503. It has no sign-in, sets and reads no cookies, and knows of
// no computers.
type Page struct {
	hosts origin.Hosts
	log   *slog.Logger
	page  []byte
	style []byte
	said  atomic.Pointer[saying]
}

type saying struct {
	problem view.Refusal
	safe    string
}

// told is the text for programs, which do not show the page around it: that this is no
// answer to what they asked for. The page's own script asks as a program does, and compares
// the answer with the text that it shows.
func (s *saying) told() string {
	return "choir up runs and can't open what it has stored: " + s.problem.Detail
}

// fontFace matches the rules of the console's style that load a font file, which is not
// served here.
var fontFace = lazy.Regexp(`@font-face *\{[^}]*\}`)

// New makes a Page; call Say before serving it.
func New(o Options) (*Page, error) {
	const op = "control.NewStopped"
	s := &Page{hosts: origin.Hosts{Parent: o.Host, Port: fmt.Sprint(o.Port)}, log: o.Logger}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	for name, into := range map[string]*[]byte{"stopped.html": &s.page, "assets/console.css": &s.style} {
		b, err := fs.ReadFile(o.Console, name)
		if err != nil {
			return nil, fault.New(op, fault.Missing, "Build the console into the binary.", err)
		}
		*into = b
	}
	s.style = fontFace().ReplaceAll(s.style, nil)
	return s, nil
}

// Say sets what the page shows from now on: the reason, and what is safe nonetheless.
// Whoever can reach the port sees it.
func (s *Page) Say(r view.Refusal, safe string) { s.said.Store(&saying{r, safe}) }

// URL is the console's origin.
func (s *Page) URL() string { return s.hosts.Console() }

// Serve serves ln until ctx ends, and closes it.
func (s *Page) Serve(ctx context.Context, ln net.Listener) error {
	return fault.Wrap("control.Stopped", httpio.Serve(ctx, ln, s, s.log, nil))
}

// ServeHTTP answers every request to our hosts alike and refuses other hosts.
func (s *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Origin-Agent-Cluster", "?1")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Connection", "close") // the next request is for the server that replaces this page
	where, _ := s.hosts.Find(r.Host)
	if where == origin.None {
		problem.Write(w, problem.Refuse(http.StatusMisdirectedRequest, fault.Denied, "no such host is served here", "Open "+s.hosts.Console()+"."))
		return
	}
	said := s.said.Load()
	if said == nil {
		said = &saying{problem: problem.Refuse(http.StatusServiceUnavailable, fault.Unavailable, "what is stored can't be opened", "").Refusal}
	}
	h.Set("Retry-After", problem.RetryAfter)
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	if where != origin.Console || !read || r.URL.Path == "/health" || strings.HasPrefix(r.URL.Path, "/api/") {
		p := said.problem
		p.Detail = said.told()
		problem.Write(w, problem.New(http.StatusServiceUnavailable, p))
		return
	}
	s.writePage(w, said)
}

// writePage writes the page with its style inline, for every path answers with the page.
func (s *Page) writePage(w http.ResponseWriter, said *saying) {
	nonce := httpio.NewNonce()
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Permissions-Policy", httpio.Permissions)
	h.Set("Content-Security-Policy", strings.Join([]string{
		"default-src 'none'", "script-src 'nonce-" + nonce + "'", "style-src 'nonce-" + nonce + "'", "connect-src 'self'",
		"form-action 'none'", "base-uri 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'",
	}, "; "))
	w.WriteHeader(http.StatusServiceUnavailable)
	// A single pass fills in the page, so that placeholders in the inserted texts are not
	// replaced.
	_, _ = strings.NewReplacer( // the client has gone if this fails
		httpio.NoncePlaceholder, nonce,
		"CHOIR_STYLE", string(bytes.TrimSpace(s.style)),
		"CHOIR_TOLD", html.EscapeString(said.told()),
		"CHOIR_DETAIL", html.EscapeString(said.problem.Detail),
		"CHOIR_SAFE", html.EscapeString(said.safe),
		"CHOIR_HINT", html.EscapeString(said.problem.Hint),
	).WriteString(w, string(s.page))
}
