package control_test

import "testing"

// TestABuildsFilesComePressed: what a build holds in Brotli comes so to who takes
// it, under the type of what it is.
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
