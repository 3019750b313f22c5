package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"net/http"
	"net/http/httputil"
	"path"
	"strings"
	"time"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

const (
	// noncePlaceholder stands in a page where the nonce of its scripts and styles goes.
	noncePlaceholder = "CHOIR_NONCE"
	maxPage          = 4 << 20 // a page's HTML, bytes
	liveTimeout      = time.Minute
	pageTimeout      = 10 * time.Second // how long the live page may take before the build is shown
)

// content serves what the desktop is made of: its page, the kept build's files,
// and what the dev server has.
func (s *Server) content(w http.ResponseWriter, r *http.Request, v visit) {
	page := asPage(r)
	c, err := s.o.Computers.Get(r.Context(), v.place.Computer)
	if err != nil {
		writeProblem(w, problemOf(s.log, "desktop", err))
		return
	}
	upgrade := r.Header.Get("Upgrade") != ""
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		writeProblem(w, refusal(http.StatusMethodNotAllowed, fault.Invalid, r.Method+" is not for files", ""))
	case page && r.URL.Path == "/":
		s.desktopPage(w, r, v, c)
	case page || r.URL.Path == "/" && !upgrade:
		writeProblem(w, refusal(http.StatusNotFound, fault.NotFound, "a desktop has one page", ""))
	case upgrade:
		s.hmr(w, r, v, c)
	default:
		s.desktopFile(w, r, v, c)
	}
}

var errKept = errors.New("the kept build was asked for")

// desktopPage serves the one page: the live one when the dev server has it,
// else the kept build's.
func (s *Server) desktopPage(w http.ResponseWriter, r *http.Request, v visit, c Computer) {
	mode := view.ModeLive
	body, err := []byte(nil), errKept
	if r.URL.RawQuery != keptPage {
		body, err = s.livePage(r, c)
	}
	if err != nil {
		// The build is what there is to show when the source is broken or the dev
		// server is not up yet; the frame says which.
		s.log.Debug("the live page can't be had", "computer", v.place.Computer, "error", err)
		mode = view.ModeBuild
		files, err := c.Build(r.Context())
		if err == nil {
			body, err = readAsset(files, "index.html")
		}
		if err != nil {
			writeProblem(w, problemOf(s.log, "desktop page", err))
			return
		}
		s.desktops.keep(v.session.ID, files)
	}
	nonce := newNonce()
	tag := fmt.Sprintf(`<script src="%sheartbeat.js" nonce="%s" data-mode="%s" data-load="%s" data-console="%s"></script>`,
		ownPrefix, nonce, mode, s.expectBeat(v, mode), html.EscapeString(s.hosts.console()))
	body = bytes.ReplaceAll(body, []byte(noncePlaceholder), []byte(nonce))
	body = inject(body, []byte(tag))
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", s.desktopPolicy(v, nonce))
	_, _ = w.Write(body) // the client has gone if this fails
}

// desktopPolicy keeps the browser from being the agent's network card: nothing
// is loaded from, sent to or framed by another origin than the desktop's own.
// Styles are files, or Vite's hot ones, which carry the nonce; what React sets
// on an element goes by the object model, which the policy leaves alone.
func (s *Server) desktopPolicy(v visit, nonce string) string {
	framed := []string{"frame-ancestors " + s.hosts.console()}
	if !defence.Off(defence.ControlSandbox) {
		framed = append(framed, pageSandbox)
	}
	if defence.Off(defence.ControlPolicy) {
		return strings.Join(framed, "; ")
	}
	return strings.Join(append([]string{
		"default-src 'self'",
		"script-src 'self' 'nonce-" + nonce + "' 'wasm-unsafe-eval'",
		"style-src 'self' 'nonce-" + nonce + "'",
		"img-src 'self' data: blob:",
		"media-src 'self' blob:",
		"connect-src 'self' " + s.hosts.socket(v.label),
		"worker-src 'self'",
		"frame-src 'none'", "object-src 'none'", "form-action 'none'", "base-uri 'none'", "manifest-src 'none'",
	}, framed...), "; ")
}

// pageSandbox is what the console's frame allows a desktop, said once more by
// the page's own answer: no windows of its own, and not the tab it is in.
const pageSandbox = "sandbox allow-scripts allow-same-origin allow-forms allow-downloads"

// inject puts the heartbeat before any other script of the page.
func inject(page, tag []byte) []byte {
	lower := bytes.ToLower(page)
	at := 0
	if i := bytes.Index(lower, []byte("<head")); i >= 0 {
		if j := bytes.IndexByte(page[i:], '>'); j >= 0 {
			at = i + j + 1
		}
	} else if i := bytes.Index(lower, []byte("<!doctype")); i >= 0 {
		if j := bytes.IndexByte(page[i:], '>'); j >= 0 {
			at = i + j + 1
		}
	}
	return append(append(append(make([]byte, 0, len(page)+len(tag)), page[:at]...), tag...), page[at:]...)
}

// livePage asks the dev server for its page.
func (s *Server) livePage(r *http.Request, c Computer) ([]byte, error) {
	rt, err := c.Live(r.Context())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), pageTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.Host+"/", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/html")
	req.Header.Set("Accept-Encoding", "identity")
	res, err := rt.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(&limited{res.Body, maxPage})
	if err = errors.Join(err, res.Body.Close()); err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK || !isHTML(res.Header.Get("Content-Type")) {
		return nil, fault.New("", fault.Unavailable, "", fmt.Errorf("the dev server answered its page with %d %.100q", res.StatusCode, res.Header.Get("Content-Type")))
	}
	return b, nil
}

// desktopFile serves one file: of a build whose page this session has, else, if
// it is named like a built one, of the newest build (a second page that enters
// gives the browser a new session), else of the dev server, else of the newest build.
func (s *Server) desktopFile(w http.ResponseWriter, r *http.Request, v visit, c Computer) {
	// Refused whoever would answer: a path that needs cleaning is no file's.
	if p := checkPath(r); p != nil {
		writeProblem(w, p)
		return
	}
	name := strings.TrimPrefix(r.URL.Path, "/")
	built := strings.HasPrefix(name, "assets/")
	if built {
		for _, files := range s.desktops.kept(v.session.ID) {
			found := false
			s.squeezed(w, r, func(w http.ResponseWriter) { found = s.buildFile(w, r, files, name) })
			if found {
				return
			}
		}
	}
	s.squeezed(w, r, func(w http.ResponseWriter) { s.newestFile(w, r, c, name, built) })
}

// newestFile serves a file of the dev server or of the newest build.
func (s *Server) newestFile(w http.ResponseWriter, r *http.Request, c Computer, name string, built bool) {
	rt, notLive := c.Live(r.Context())
	if notLive == nil && !built {
		s.proxy(w, r, rt)
		return
	}
	files, err := c.Build(r.Context())
	if err == nil && s.buildFile(w, r, files, name) {
		return
	}
	switch {
	case notLive == nil:
		s.proxy(w, r, rt)
	case err != nil:
		writeProblem(w, problemOf(s.log, "desktop file", err))
	default:
		writeProblem(w, refusal(http.StatusNotFound, fault.NotFound, "there is no such file", ""))
	}
}

// buildFile serves a build's file, if it has it. A page is not a file: HTML is
// served at / only, with its policy.
func (s *Server) buildFile(w http.ResponseWriter, r *http.Request, files fs.FS, name string) bool {
	if isHTML(assetType(name)) {
		return false
	}
	cache := "no-cache"
	if strings.HasPrefix(name, "assets/") {
		cache = "private, max-age=31536000, immutable" // its name holds its hash
	}
	if p := s.writeAsset(w, r, files, name, cache); p != nil {
		if p.Status == http.StatusNotFound {
			return false
		}
		writeProblem(w, p)
	}
	return true
}

// hmr connects the page to the dev server's hot updates. Session, Origin and
// Host have been checked.
func (s *Server) hmr(w http.ResponseWriter, r *http.Request, v visit, c Computer) {
	protocols := r.Header.Values("Sec-WebSocket-Protocol")
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") || r.URL.Path != "/" || len(protocols) != 1 ||
		(protocols[0] != "vite-hmr" && protocols[0] != "vite-ping") {
		writeProblem(w, refusal(http.StatusForbidden, fault.Denied, "this is no address for a socket", ""))
		return
	}
	if p := checkPath(r); p != nil {
		writeProblem(w, p)
		return
	}
	rt, err := c.Live(r.Context())
	if err != nil {
		writeProblem(w, problemOf(s.log, "hmr", err))
		return
	}
	if !s.begin() {
		writeProblem(w, refusal(http.StatusServiceUnavailable, fault.Unavailable, "the server is closing", ""))
		return
	}
	defer s.wg.Done()
	ctx, release, err := s.hold(r.Context(), v.holder(), s.still(v))
	if err != nil {
		writeProblem(w, problemOf(s.log, "hmr", err))
		return
	}
	defer release()
	s.proxy(w, r.WithContext(ctx), rt)
}

// toBox is what of a request the box may see: never a cookie, a token or an
// address.
var toBox = []string{"Accept", "If-None-Match", "If-Modified-Since", "Range", "Origin", "Upgrade", "Connection", "Cache-Control",
	"Sec-WebSocket-Key", "Sec-WebSocket-Version", "Sec-WebSocket-Protocol", "Sec-Fetch-Dest", "Sec-Fetch-Mode", "Sec-Fetch-Site"}

// fromBox is what of an answer the browser may see. Everything else (cookies,
// Clear-Site-Data, Service-Worker-Allowed, redirects, Refresh, policies,
// reporting, prefetch links) is dropped.
var fromBox = []string{"Content-Type", "Content-Length", "Content-Range", "Accept-Ranges", "Etag", "Last-Modified", "Cache-Control",
	"Upgrade", "Connection", "Sec-Websocket-Accept", "Sec-Websocket-Protocol"}

// proxy hands a request to the dev server in its box, and its answer on.
func (s *Server) proxy(w http.ResponseWriter, r *http.Request, rt http.RoundTripper) {
	if r.Header.Get("Upgrade") == "" {
		ctx, cancel := context.WithTimeout(r.Context(), liveTimeout)
		defer cancel()
		r = r.WithContext(ctx)
	}
	answer := newBoxAnswer(deadlined{w, http.NewResponseController(w)})
	rp := &httputil.ReverseProxy{
		Transport: rt,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = "http", p.In.Host, p.In.Host
			h := http.Header{}
			for _, name := range toBox {
				if vals := p.In.Header.Values(name); len(vals) > 0 {
					h[http.CanonicalHeaderKey(name)] = vals
				}
			}
			if defence.Off(defence.ControlRequests) {
				h = p.In.Header.Clone()
			}
			h.Set("Accept-Encoding", "identity")
			p.Out.Header = h
			p.Out.Body, p.Out.ContentLength = nil, 0
		},
		ModifyResponse: func(res *http.Response) error { return fromDevServer(res, answer.host) },
		ErrorHandler: func(_ http.ResponseWriter, r *http.Request, err error) {
			var p *problem
			if !errors.As(err, &p) {
				s.log.Debug("dev server", "path", r.URL.Path, "error", err)
				p = refusal(http.StatusBadGateway, fault.Unavailable, "the desktop's dev server did not answer", "Wait a moment, or reload.")
			}
			writeProblem(w, p)
		},
	}
	rp.ServeHTTP(answer, r)
}

// fromDevServer leaves of an answer what the browser may see. The proxy writes
// a switch of protocols from it as it stands, so the host's headers are in it.
func fromDevServer(res *http.Response, host http.Header) error {
	switch {
	case res.StatusCode/100 == 3 && res.StatusCode != http.StatusNotModified && !defence.Off(defence.ControlRedirects):
		return refusal(http.StatusBadGateway, fault.Denied, "the dev server may not redirect", "")
	case res.StatusCode == http.StatusSwitchingProtocols:
	case isHTML(res.Header.Get("Content-Type")) && !defence.Off(defence.ControlPages):
		// Its fallback for what it does not have; and no uploaded page gets this origin.
		return refusal(http.StatusNotFound, fault.NotFound, "there is no such file", "")
	}
	h := http.Header{}
	for _, name := range fromBox {
		if v := res.Header.Get(name); v != "" {
			h.Set(name, v)
		}
	}
	if defence.Off(defence.ControlHeaders) {
		h = res.Header
	}
	if res.StatusCode != http.StatusSwitchingProtocols && !defence.Off(defence.ControlTypes) {
		h.Set("Content-Type", safeType(h.Get("Content-Type")))
		h.Set("Cache-Control", "private, no-cache")
		if dependency(res.Request) {
			h.Set("Cache-Control", "private, max-age=31536000, immutable") // its address holds the hash of what it was made from
		}
	}
	if !defence.Off(defence.BoxHeadersApart) {
		setHost(h, host)
	}
	res.Header, res.Trailer = h, nil
	return nil
}

// dependency reports whether a request is for one of the dev server's bundled
// dependencies. Nothing else of it may be kept unasked: what an agent's server
// called immutable would go on after that server.
func dependency(r *http.Request) bool {
	if r == nil {
		return false
	}
	p := r.URL.Path
	if i := strings.Index(p, "/@fs/"); i > 0 {
		p = p[i:] // as the box is asked for it
	}
	return cachePath().MatchString(p) && r.URL.Query().Get("v") != ""
}

// safeType lets through types that are no page's, in our own words: of a type
// with another one folded behind it a browser would take the last.
func safeType(contentType string) string {
	base, _, _ := strings.Cut(strings.ToLower(contentType), ";")
	base = strings.TrimSpace(base)
	for _, known := range assetTypes {
		k, _, _ := strings.Cut(known, ";")
		if k == base && !isHTML(k) {
			return known
		}
	}
	return "application/octet-stream"
}

// begin counts one piece of work that Close waits for, unless it closed.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	s.wg.Add(1)
	return true
}

// keep remembers what a session's page was made of, so that it gets its own
// assets after a newer build has come.
func (d *desktops) keep(session string, files fs.FS) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.builds) >= maxKept {
		clear(d.builds) // their pages fall back to the newest build
	}
	list := append([]fs.FS{files}, d.builds[session]...)
	d.builds[session] = list[:min(len(list), keptBuilds)]
}

func (d *desktops) kept(session string) []fs.FS {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.builds[session]
}

// hidden reports whether a path's segment is what no desktop's page loads: a
// dot file, or one that holds a key.
func hidden(segment string) bool {
	ext := strings.ToLower(path.Ext(segment))
	return strings.HasPrefix(segment, ".") || ext == ".pem" || ext == ".crt" || ext == ".key" || ext == ".p12" || ext == ".pfx"
}
