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
	"strings"
	"time"

	"choir.dev/choiros/contract"

	"choir.dev/choiros/internal/control/devserver"
	"choir.dev/choiros/internal/control/httpio"
	"choir.dev/choiros/internal/control/problem"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

const (
	maxPage     = 4 << 20          // a page's HTML, bytes
	pageTimeout = 10 * time.Second // how long the live page may take before the build is shown
)

// content serves a desktop's page, the files of its build, and the dev server's files.
func (s *Server) content(w http.ResponseWriter, r *http.Request, v desktopRequest) {
	page := asPage(r)
	c, err := s.options.Computers.Get(r.Context(), v.place.Computer)
	if err != nil {
		problem.Write(w, problem.Of(s.log, "desktop", err))
		return
	}
	upgrade := r.Header.Get("Upgrade") != ""
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		problem.RefuseMethod(w, r.Method+" is not for files", http.MethodGet, http.MethodHead)
	case page && r.URL.Path == "/":
		s.desktopPage(w, r, v, c)
	case page || r.URL.Path == "/" && !upgrade:
		problem.Write(w, problem.Refuse(http.StatusNotFound, fault.NotFound, "a desktop has one page", ""))
	case upgrade:
		s.hmr(w, r, v, c)
	default:
		s.desktopFile(w, r, v, c)
	}
}

var errKept = errors.New("the kept build was asked for")

// desktopPage serves the desktop's page: the dev server's when it is running, else the build's.
func (s *Server) desktopPage(w http.ResponseWriter, r *http.Request, v desktopRequest, c Computer) {
	mode := view.ModeLive
	body, err := []byte(nil), errKept
	if r.URL.RawQuery != keptPage {
		body, err = s.livePage(r, c)
	}
	if err != nil {
		// The source is broken or the dev server is not up yet, so the build is shown; the frame around
		// the desktop says which is shown.
		s.log.Debug("the live page can't be had", "computer", v.place.Computer, "error", err)
		mode = view.ModeBuild
		files, err := c.Build(r.Context())
		if err == nil {
			body, err = readAsset(files, "index.html")
		}
		if err != nil {
			problem.Write(w, problem.Of(s.log, "desktop page", err))
			return
		}
		s.desktops.keep(v.session.ID, files)
	}
	nonce := httpio.NewNonce()
	tag := fmt.Sprintf(`<script src="%sheartbeat.js" nonce="%s" data-mode="%s" data-load="%s" data-console="%s"></script>`,
		ownPrefix, nonce, mode, s.expectHeartbeat(v, mode), html.EscapeString(s.hosts.Console()))
	body = bytes.ReplaceAll(body, []byte(httpio.NoncePlaceholder), []byte(nonce))
	body = inject(body, []byte(tag))
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", s.desktopPolicy(v, nonce))
	_, _ = w.Write(body) // the client has gone if this fails
}

// desktopPolicy is the Content-Security-Policy of a desktop's page. Agents write the page, and must not
// get the network through the browser: nothing is loaded from, sent to or framed by another origin than
// the desktop's own. Styles are files, or come from Vite's hot updates and carry the nonce. React sets an
// element's styles through the DOM, which the policy does not restrict.
func (s *Server) desktopPolicy(v desktopRequest, nonce string) string {
	framed := []string{"frame-ancestors " + s.hosts.Console()}
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
		"connect-src 'self' " + s.hosts.Socket(v.label),
		"worker-src 'self'",
		"frame-src 'none'", "object-src 'none'", "form-action 'none'", "base-uri 'none'", "manifest-src 'none'",
	}, framed...), "; ")
}

// pageSandbox repeats in the page's own headers what the console's frame allows a desktop: it may not
// open windows, nor navigate the tab that it is shown in.
const pageSandbox = "sandbox allow-scripts allow-same-origin allow-forms allow-downloads"

// inject inserts the heartbeat script before the page's other scripts.
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
	b, err := io.ReadAll(httpio.Limit(res.Body, maxPage))
	if err = errors.Join(err, res.Body.Close()); err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK || !httpio.IsHTML(res.Header.Get("Content-Type")) {
		return nil, fault.New("", fault.Unavailable, "", fmt.Errorf("the dev server answered its page with %d %.100q", res.StatusCode, res.Header.Get("Content-Type")))
	}
	return b, nil
}

// desktopFile serves one file. If its name is that of a built asset, the builds whose page this session
// was given are searched first, then the newest build (entering from a second page gives the browser a
// new session). Other files come from the dev server, or from the newest build when it is not running.
func (s *Server) desktopFile(w http.ResponseWriter, r *http.Request, v desktopRequest, c Computer) {
	// This is checked whatever serves the file: no file has a path that needs cleaning.
	if p := devserver.CheckPath(r); p != nil {
		problem.Write(w, p)
		return
	}
	name := strings.TrimPrefix(r.URL.Path, "/")
	built := strings.HasPrefix(name, "assets/")
	if built {
		for _, files := range s.desktops.kept(v.session.ID) {
			found := false
			s.compressor.Serve(w, r, func(w http.ResponseWriter) { found = s.buildFile(w, r, files, name) })
			if found {
				return
			}
		}
	}
	s.compressor.Serve(w, r, func(w http.ResponseWriter) { s.newestFile(w, r, c, name, built) })
}

// newestFile serves a file from the dev server or the newest build.
func (s *Server) newestFile(w http.ResponseWriter, r *http.Request, c Computer, name string, built bool) {
	rt, notLive := c.Live(r.Context())
	if notLive == nil && !built {
		devserver.Forward(w, r, rt, s.log)
		return
	}
	files, err := c.Build(r.Context())
	if err == nil && s.buildFile(w, r, files, name) {
		return
	}
	switch {
	case notLive == nil:
		devserver.Forward(w, r, rt, s.log)
	case err != nil:
		problem.Write(w, problem.Of(s.log, "desktop file", err))
	default:
		problem.Write(w, problem.Refuse(http.StatusNotFound, fault.NotFound, "there is no such file", ""))
	}
}

// buildFile serves a build's file and reports whether the build has it. HTML is not served as a file: the
// page is served only at /, with its policy.
func (s *Server) buildFile(w http.ResponseWriter, r *http.Request, files fs.FS, name string) bool {
	if httpio.IsHTML(httpio.AssetType(name)) {
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
		problem.Write(w, p)
	}
	return true
}

// hmr connects the page to the dev server's hot updates. Session, Origin and Host have been checked.
func (s *Server) hmr(w http.ResponseWriter, r *http.Request, v desktopRequest, c Computer) {
	protocols := r.Header.Values("Sec-WebSocket-Protocol")
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") || r.URL.Path != "/" || len(protocols) != 1 ||
		(protocols[0] != "vite-hmr" && protocols[0] != "vite-ping") {
		problem.Write(w, problem.Refuse(http.StatusForbidden, fault.Denied, "this is no address for a socket", ""))
		return
	}
	if p := devserver.CheckPath(r); p != nil {
		problem.Write(w, p)
		return
	}
	rt, err := c.Live(r.Context())
	if err != nil {
		problem.Write(w, problem.Of(s.log, "hmr", err))
		return
	}
	if !s.begin() {
		problem.Write(w, problem.Refuse(http.StatusServiceUnavailable, fault.Unavailable, "the server is closing", ""))
		return
	}
	defer s.wg.Done()
	ctx, release, err := s.hold(r.Context(), v.holder(), s.still(v, contract.CanRead))
	if err != nil {
		problem.Write(w, problem.Of(s.log, "hmr", err))
		return
	}
	defer release()
	devserver.Forward(w, r.WithContext(ctx), rt, s.log)
}

// begin counts one piece of work that Close waits for; it returns false once the server is closing.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	s.wg.Add(1)
	return true
}

// keep remembers which build a session's page came from, so that the page gets the assets of that build
// after a newer one exists.
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
