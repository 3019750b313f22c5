package devserver

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"path"
	"strings"
	"time"

	"choir.dev/choiros/internal/control/httpio"
	"choir.dev/choiros/internal/control/problem"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
)

// liveTimeout is how long the dev server may take to serve a file.
const liveTimeout = time.Minute

// toBox lists the request headers that the box may see: no cookie, no token and no client
// address.
var toBox = []string{"Accept", "If-None-Match", "If-Modified-Since", "Range", "Origin", "Upgrade", "Connection", "Cache-Control",
	"Sec-WebSocket-Key", "Sec-WebSocket-Version", "Sec-WebSocket-Protocol", "Sec-Fetch-Dest", "Sec-Fetch-Mode", "Sec-Fetch-Site"}

// fromBox lists the response headers that the browser may see. Everything else (cookies,
// Clear-Site-Data, Service-Worker-Allowed, redirects, Refresh, policies, reporting,
// prefetch links) is dropped.
var fromBox = []string{"Content-Type", "Content-Length", "Content-Range", "Accept-Ranges", "Etag", "Last-Modified", "Cache-Control",
	"Upgrade", "Connection", "Sec-Websocket-Accept", "Sec-Websocket-Protocol"}

// Forward passes a request to the dev server in its box, and the answer to the browser.
func Forward(w http.ResponseWriter, r *http.Request, rt http.RoundTripper, log *slog.Logger) {
	if r.Header.Get("Upgrade") == "" {
		ctx, cancel := context.WithTimeout(r.Context(), liveTimeout)
		defer cancel()
		r = r.WithContext(ctx)
	}
	answer := newBoxAnswer(httpio.Deadlined(w))
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
			var p *problem.Error
			if !errors.As(err, &p) {
				log.Debug("dev server", "path", r.URL.Path, "error", err)
				p = problem.Refuse(http.StatusBadGateway, fault.Unavailable, "the desktop's dev server did not answer", "Wait a moment, or reload.")
			}
			problem.Write(w, p)
		},
	}
	rp.ServeHTTP(answer, r)
}

// fromDevServer removes from an answer what the browser may not see. It sets the host's
// headers as well, because the proxy writes the answer to a protocol switch as it is,
// without boxAnswer.
func fromDevServer(res *http.Response, host http.Header) error {
	switch {
	case res.StatusCode/100 == 3 && res.StatusCode != http.StatusNotModified && !defence.Off(defence.ControlRedirects):
		return problem.Refuse(http.StatusBadGateway, fault.Denied, "the dev server may not redirect", "")
	case res.StatusCode == http.StatusSwitchingProtocols:
	case httpio.IsHTML(res.Header.Get("Content-Type")) && !defence.Off(defence.ControlPages):
		// This is the dev server's fallback for files that it does not have. Refusing
		// HTML also keeps an uploaded page from running in this origin.
		return problem.Refuse(http.StatusNotFound, fault.NotFound, "there is no such file", "")
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
			h.Set("Cache-Control", "private, max-age=31536000, immutable") // its URL contains a hash of what it was made from
		}
	}
	if !defence.Off(defence.BoxHeadersApart) {
		setHost(h, host)
	}
	res.Header, res.Trailer = h, nil
	return nil
}

// dependency reports whether a request is for one of the dev server's bundled dependencies.
// Browsers may keep nothing else without asking again: what an agent's dev server declared
// immutable would outlive that server.
func dependency(r *http.Request) bool {
	if r == nil {
		return false
	}
	p := r.URL.Path
	if i := strings.Index(p, "/@fs/"); i > 0 {
		p = p[i:] // the part of the path that the box is asked for
	}
	return cachePath().MatchString(p) && r.URL.Query().Get("v") != ""
}

// safeType returns a content type from our own table if it is not a page's. The box's own
// text is not passed on: if it contained two types, a browser would use the last.
func safeType(contentType string) string {
	base, _, _ := strings.Cut(strings.ToLower(contentType), ";")
	base = strings.TrimSpace(base)
	for _, known := range httpio.AssetTypes {
		k, _, _ := strings.Cut(known, ";")
		if k == base && !httpio.IsHTML(k) {
			return known
		}
	}
	return "application/octet-stream"
}

// hidden reports whether a path segment names a file that no desktop's page loads: a dot
// file, or one that may hold a key.
func hidden(segment string) bool {
	ext := strings.ToLower(path.Ext(segment))
	return strings.HasPrefix(segment, ".") || ext == ".pem" || ext == ".crt" || ext == ".key" || ext == ".p12" || ext == ".pfx"
}
