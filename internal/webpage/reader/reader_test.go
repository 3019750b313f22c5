package reader_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"choir.dev/choiros/internal/webpage"
	"choir.dev/choiros/internal/webpage/reader"
)

// site is a server of pages, and the proxy by which it is read.
type site struct {
	*httptest.Server
	proxy *url.URL
}

func newSite(t *testing.T, h http.HandlerFunc, before ...func(*httptest.Server)) *site {
	t.Helper()
	s := &site{Server: httptest.NewUnstartedServer(h)}
	for _, set := range before {
		set(s.Server)
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			http.Error(w, "only CONNECT", http.StatusForbidden)
			return
		}
		up, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		down, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(down, "HTTP/1.1 200 OK\r\n\r\n") // whoever asked is gone if this fails
		go func() { _, _ = io.Copy(up, down); up.Close() }()
		_, _ = io.Copy(down, up)
		down.Close()
	}))
	t.Cleanup(proxy.Close)
	s.proxy, _ = url.Parse(proxy.URL)
	return s
}

// read reads a path of the site, whose certificate is trusted.
func (s *site) read(t *testing.T, path string) webpage.Page {
	t.Helper()
	return reader.ReadWith(t.Context(), webpage.Request{URL: "https://example.com" + path}, s.proxy, &tls.Config{RootCAs: s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs})
}

const article = `<html><head><title>Of cats</title><script>steal()</script><style>p{}</style></head><body>
<nav><a href="/about">About</a></nav>
<article><h1>Of cats</h1><p>Cats, says <a href="/dogs?x=1#top">the dog page</a>, are small. %s</p>
<table><tr><th>cat</th><th>age</th></tr><tr><td>Tom</td><td>3</td></tr></table>
<pre><code>meow()</code></pre><p>See <a href="https://other.example/c">others</a> and <a href="javascript:x()">this</a> and <a href="/dogs?x=1">dogs again</a>.</p></article>
<footer>all rights reserved</footer></body></html>`

// TestPagesBecomeMarkdown: an article without what stands around it, with its links numbered; and text, JSON
// and pages in other character sets as they are.
func TestPagesBecomeMarkdown(t *testing.T) {
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/cats":
			fmt.Fprintf(w, article, strings.Repeat("They sleep a good deal, in the sun, on the roof, by the fire. ", 20))
		case "/latin":
			w.Header().Set("Content-Type", "text/html; charset=iso-8859-1")
			_, _ = w.Write([]byte("<title>Gr\xfc\xdfe</title><p>K\xe4tzchen</p>"))
		case "/text":
			w.Header().Set("Content-Type", "text/plain")
			_, _ = io.WriteString(w, "<b>as it is</b>")
		case "/json":
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"a":1}`)
		case "/image":
			w.Header().Set("Content-Type", "image/png")
		case "/moved":
			http.Redirect(w, r, "/text", http.StatusFound)
		case "/away":
			http.Redirect(w, r, "https://evil.example/?from=here", http.StatusFound)
		case "/port":
			http.Redirect(w, r, "https://example.com:8443/", http.StatusFound)
		case "/down":
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		default:
			http.NotFound(w, r)
		}
	})
	cats := s.read(t, "/cats")
	for _, want := range []string{"the dog page](1)", "[others](2)", "[dogs again](1)", "1: https://example.com/dogs?x=1\n2: https://other.example/c", "| Tom | 3", "meow()"} {
		if !strings.Contains(cats.Text, want) {
			t.Errorf("lacks %q:\n%s", want, cats.Text)
		}
	}
	for _, not := range []string{"steal", "javascript", "rights reserved", "About"} {
		if strings.Contains(cats.Text, not) {
			t.Errorf("has %q:\n%s", not, cats.Text)
		}
	}
	if cats.Title != "Of cats" || cats.Status != 200 || cats.From != "https://example.com/cats" {
		t.Errorf("%+v", cats)
	}
	for path, want := range map[string]webpage.Page{
		"/latin": {Title: "Grüße", Text: "Kätzchen"}, "/text": {Text: "<b>as it is</b>"}, "/json": {Text: `{"a":1}`}, "/moved": {Text: "<b>as it is</b>"},
		"/away": {Redirect: "https://evil.example/?from=here"}, "/port": {Redirect: "https://example.com:8443/"},
		"/image": {Failed: "it is image/png"}, "/down": {Failed: "redirects to an address that is not read"}, "/loop": {Failed: "redirects more than"}, "/none": {Text: "404 page not found"},
	} {
		if got := s.read(t, path); got.Title != want.Title || got.Redirect != want.Redirect || !strings.Contains(got.Text, want.Text) || !strings.Contains(got.Failed, want.Failed) || (got.Failed == "") != (want.Failed == "") {
			t.Errorf("%s: %+v", path, got)
		}
	}
}

// TestAGiantPageIsBounded: of a page that never ends, or that a few bytes unpack to, only so much is read.
func TestAGiantPageIsBounded(t *testing.T) {
	const size = 64 << 20
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	for range size >> 20 {
		if _, err := z.Write(bytes.Repeat([]byte("a"), 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		if r.URL.Path == "/bomb" {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb.Bytes())
			return
		}
		for range size >> 20 {
			if _, err := w.Write(bytes.Repeat([]byte("b"), 1<<20)); err != nil {
				return
			}
		}
	})
	for _, path := range []string{"/bomb", "/long"} {
		p := s.read(t, path)
		if p.Bytes > webpage.MaxBody {
			t.Errorf("%d MiB of a page are read", p.Bytes>>20)
			continue
		}
		if !p.Truncated || p.Failed != "" || len(p.Text) != webpage.MaxText {
			t.Errorf("%s: truncated %v, %q, %d bytes of text", path, p.Truncated, p.Failed, len(p.Text))
		}
	}
}

// TestHostilePages: what would have a parser work for long, recurse too deep or panic gives a sentence.
func TestHostilePages(t *testing.T) {
	var body, media string
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", media)
		_, _ = io.WriteString(w, body)
	})
	for name, c := range map[string]struct{ media, body, failed string }{
		"deep HTML":     {"text/html", strings.Repeat("<div>", 450), "within each other"},
		"deeper HTML":   {"text/html", strings.Repeat("<div>", 5000), "its HTML can't be read"},
		"wide HTML":     {"text/html", strings.Repeat("<p>x", 60_000), "more than 50000 elements"},
		"a cut PDF":     {"application/pdf", "%PDF-1.7\n1 0 obj <</Type/Catalog", "PDF that can't be read"},
		"a PDF of text": {"text/html", "%PDF-1.4 nothing", "PDF that can't be read"},
	} {
		media, body = c.media, c.body
		if p := s.read(t, "/"); !strings.Contains(p.Failed, c.failed) {
			t.Errorf("%s: %+.200v", name, p)
		}
	}
}

// TestPDF: the text of a PDF, page by page.
func TestPDF(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("testdata", "two-pages.pdf"))
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/pdf")
		_, _ = w.Write(raw)
	})
	p := s.read(t, "/")
	if p.Failed != "" || !strings.Contains(p.Text, "## Page 1 of 2\n\nHello from a page") || !strings.Contains(p.Text, "## Page 2 of 2\n\nThe second page") {
		t.Errorf("%+v", p)
	}
}

// TestWithoutAWayOut: a proxy that refuses says why.
func TestWithoutAWayOut(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "choir: this host is not for you", http.StatusForbidden)
	}))
	defer proxy.Close()
	u, _ := url.Parse(proxy.URL)
	if p := reader.Read(context.Background(), webpage.Request{URL: "https://example.com/"}, u); p.Failed != "this host is not for you" {
		t.Errorf("%+v", p)
	}
}
