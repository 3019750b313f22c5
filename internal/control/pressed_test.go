package control_test

import (
	"strings"
	"testing"
)

// TestABuildsFilesComePressed shows that files that a build holds in Brotli are sent so to clients
// that accept it, with the type of their content.
func TestABuildsFilesComePressed(t *testing.T) {
	w := open(t)
	origin, cookie := w.enter(w.signIn())
	for _, c := range []struct {
		name, path, headers string
		encoding, body      string
	}{
		{"taken", "/assets/app-2.js", "Accept-Encoding: gzip, br, zstd", "br", "two, pressed"},
		{"not taken", "/assets/app-2.js", "Accept-Encoding: identity", "", "export {two}"},
		{"refused", "/assets/app-2.js", "Accept-Encoding: br;q=0", "", "export {two}"},
		{"none there", "/assets/app-1.js", "Accept-Encoding: br", "", "export {}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := w.ask("GET", hostOf(origin), c.path, "", cookie, c.headers, "Sec-Fetch-Site: same-origin", "Sec-Fetch-Dest: script")
			if res.StatusCode != 200 || res.Header.Get("Content-Encoding") != c.encoding || res.body != c.body {
				t.Errorf("%d %q %q", res.StatusCode, res.Header.Get("Content-Encoding"), res.body)
			}
			if got := res.Header.Get("Content-Type"); got != "text/javascript; charset=utf-8" {
				t.Errorf("its type is %q", got)
			}
		})
	}
	part := w.ask("GET", hostOf(origin), "/assets/app-2.js", "", cookie, "Accept-Encoding: br", "Range: bytes=0-5", "Sec-Fetch-Site: same-origin", "Sec-Fetch-Dest: script")
	if part.StatusCode != 206 || part.Header.Get("Content-Encoding") != "" || part.body != "export" {
		t.Errorf("a part: %d %v %q", part.StatusCode, part.Header, part.body)
	}
	if res := w.ask("GET", hostOf(origin), "/assets/app-2.js.br", "", cookie, "Sec-Fetch-Site: same-origin", "Sec-Fetch-Dest: empty"); res.Header.Get("Content-Type") != "application/octet-stream" {
		t.Errorf("asked for by its own name it is %q", res.Header.Get("Content-Type"))
	}
}

// TestAFileIsNotSentTwice shows that a client that has a file's content is told so, in whatever
// encoding it came, because the console's files are requested with each of its pages.
func TestAFileIsNotSentTwice(t *testing.T) {
	w := open(t)
	origin, cookie := w.enter(w.signIn())
	for _, c := range []struct {
		name, host, path string
		headers          []string
	}{
		{"the console's", hostOf(w.console()), "/assets/console.css", nil},
		{"a build's", hostOf(origin), "/assets/app-2.js", []string{cookie, "Accept-Encoding: br", "Sec-Fetch-Site: same-origin", "Sec-Fetch-Dest: script"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			first := w.ask("GET", c.host, c.path, "", c.headers...)
			tag := first.Header.Get("ETag")
			if first.StatusCode != 200 || !strings.HasPrefix(tag, `W/"`) {
				t.Fatalf("%d with the tag %q", first.StatusCode, tag)
			}
			if again := w.ask("GET", c.host, c.path, "", append(c.headers, "If-None-Match: "+tag)...); again.StatusCode != 304 || again.body != "" {
				t.Errorf("asked for again: %d %q", again.StatusCode, again.body)
			}
			if other := w.ask("GET", c.host, c.path, "", append(c.headers, `If-None-Match: W/"0123456789abcdef"`)...); other.StatusCode != 200 || other.body != first.body {
				t.Errorf("who has something else: %d %q", other.StatusCode, other.body)
			}
		})
	}
}
