package control

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"choir.dev/choiros/internal/control/httpio"
	"choir.dev/choiros/internal/control/problem"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/identity"
)

// pages are the console's pages: index.html for people who are signed in, and claim.html for everybody.
type pages struct{ index, claim []byte }

func loadPages(files fs.FS) (*pages, error) {
	p := &pages{}
	for name, into := range map[string]*[]byte{"index.html": &p.index, "claim.html": &p.claim} {
		b, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, fault.New("", fault.Missing, "Build the console into the binary.", fmt.Errorf("console: %w", err))
		}
		*into = b
	}
	return p, nil
}

// servePage serves the console's pages.
func (s *Server) servePage(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if !defence.Off(defence.ControlFrameOptions) {
		h.Set("X-Frame-Options", "DENY")
	}
	h.Set("Permissions-Policy", httpio.Permissions)
	// The console's page posts a ticket to the desktop in its frame; under no-referrer a browser would
	// send "null" as that request's Origin.
	h.Set("Referrer-Policy", "strict-origin")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		problem.RefuseMethod(w, r.Method+" is not for pages", http.MethodGet, http.MethodHead)
		return
	}
	if r.Header.Get("Service-Worker") != "" {
		problem.Write(w, problem.Refuse(http.StatusForbidden, fault.Denied, "there are no service workers here", ""))
		return
	}
	switch name := path.Clean(r.URL.Path); {
	case name == "/claim":
		s.writePage(w, s.pages.claim)
	case name == "/":
		_, err := s.options.Identity.Session(r.Context(), cookie(r, consoleCookie), identity.Console)
		switch {
		case fault.Is(err, fault.Denied):
			// The target is constant, so this can't be used as an open redirect.
			h.Set("Cache-Control", "no-store")
			http.Redirect(w, r, "/claim", http.StatusSeeOther)
		case err != nil:
			problem.Write(w, problem.Of(s.log, "page", err))
		default:
			s.writePage(w, s.pages.index)
		}
	case strings.HasPrefix(name, "/assets/"):
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; sandbox")
		s.compressor.Serve(w, r, func(w http.ResponseWriter) {
			if p := s.writeAsset(w, r, s.options.Console, strings.TrimPrefix(name, "/"), "no-cache"); p != nil {
				problem.Write(w, p)
			}
		})
	default:
		problem.Write(w, problem.Refuse(http.StatusNotFound, fault.NotFound, "there is nothing here", "Open "+s.hosts.Console()+"."))
	}
}

// writePage writes one of the console's pages. They have no inline scripts or styles, do not build HTML
// from strings, and frame nothing but desktops.
func (s *Server) writePage(w http.ResponseWriter, html []byte) {
	nonce := httpio.NewNonce()
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	desktops := s.hosts.Desktop("*")
	framed, framers := desktops, "frame-ancestors 'none'; "
	if defence.Off(defence.ControlFrames) {
		framed = "*"
	}
	if defence.Off(defence.ControlAncestors) {
		framers = ""
	}
	h.Set("Content-Security-Policy", strings.Join([]string{
		"default-src 'none'", "script-src 'nonce-" + nonce + "'", "style-src 'self'", "img-src 'self'", "font-src 'self'", "connect-src 'self'",
		"frame-src " + framed, "form-action " + desktops, "base-uri 'none'", framers + "require-trusted-types-for 'script'",
	}, "; "))
	_, _ = w.Write(bytes.ReplaceAll(html, []byte(httpio.NoncePlaceholder), []byte(nonce))) // the client has gone if this fails
}

// maxAsset bounds one file of a page, in bytes.
const maxAsset = 32 << 20

// writeAsset writes one regular file of files, compressed with Brotli if the build contains that form and
// the browser accepts it; name is clean and relative. If there is no such file, it returns the problem to
// answer with.
func (s *Server) writeAsset(w http.ResponseWriter, r *http.Request, files fs.FS, name, cache string) *problem.Error {
	encoding := ""
	var b []byte
	err := fs.ErrNotExist
	if r.Header.Get("Range") == "" && httpguts.HeaderValuesContainsToken(r.Header.Values("Accept-Encoding"), "br") {
		encoding = "br"
		b, err = readAsset(files, name+".br")
	}
	if errors.Is(err, fs.ErrNotExist) {
		encoding = ""
		b, err = readAsset(files, name)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) {
		return problem.Refuse(http.StatusNotFound, fault.NotFound, "there is no such file", "")
	}
	if err != nil {
		return problem.Of(s.log, "asset", err)
	}
	h := w.Header()
	h.Set("Content-Type", httpio.AssetType(name))
	h.Set("Cache-Control", cache)
	if encoding != "" {
		h.Set("Content-Encoding", encoding)
		h.Add("Vary", "Accept-Encoding")
	}
	// The ETag lets a browser revalidate its copy. It is weak because the same content may be sent in
	// another encoding.
	sum := sha256.Sum256(b)
	h.Set("ETag", fmt.Sprintf(`W/"%x"`, sum[:8]))
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
	return nil
}

func readAsset(files fs.FS, name string) ([]byte, error) {
	if !fs.ValidPath(name) {
		return nil, fs.ErrInvalid
	}
	f, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	b, err := func() ([]byte, error) {
		st, err := f.Stat()
		if err != nil {
			return nil, err
		}
		if !st.Mode().IsRegular() {
			return nil, fs.ErrNotExist
		}
		if st.Size() > maxAsset {
			return nil, fault.New("", fault.Exhausted, "", fmt.Errorf("%s is %d bytes long; at most %d are served", name, st.Size(), maxAsset))
		}
		b := make([]byte, st.Size())
		_, err = io.ReadFull(f, b)
		return b, err
	}()
	return b, errors.Join(err, f.Close())
}
