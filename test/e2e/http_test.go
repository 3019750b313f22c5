package e2e_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/test/choirtest"
)

// TestFilesOverPlainHTTP requests files as any HTTP client does: a part of one, one only if it has
// changed, or only its headers. It puts a file only in the place of the version that was read.
func TestFilesOverPlainHTTP(t *testing.T) {
	t.Parallel()
	in := choirtest.Start(t, choirtest.Options{})
	const file = "/api/computers/-/content?path=workspace/part.txt"
	ask := func(method, path, body string, headers ...string) (*http.Response, string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		host := strings.TrimPrefix(in.URL, "http://")
		_, port, err := net.SplitHostPort(host)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(ctx, method, "http://127.0.0.1:"+port+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		req.Header.Set("Authorization", "Bearer "+in.Token)
		if body != "" {
			req.Header.Set("Content-Type", "application/octet-stream")
		}
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res, string(b)
	}
	status := func(what string, res *http.Response, want int) {
		t.Helper()
		if res.StatusCode != want {
			t.Errorf("%s: %d, want %d", what, res.StatusCode, want)
		}
	}
	res, _ := ask("PUT", file, "0123456789", "If-None-Match", "*")
	status("a new file", res, 200)
	first := res.Header.Get("ETag")
	res, _ = ask("PUT", file, "other", "If-None-Match", "*")
	status("a new file where one is", res, 412)
	res, body := ask("GET", file, "")
	if body != "0123456789" || first == "" || res.Header.Get("ETag") != first {
		t.Errorf("read %q as %s, which was put as %s", body, res.Header.Get("ETag"), first)
	}
	res, body = ask("GET", file, "", "Range", "bytes=3-5")
	status("a part", res, 206)
	if body != "345" || res.Header.Get("Content-Range") != "bytes 3-5/10" {
		t.Errorf("the part is %q, %s", body, res.Header.Get("Content-Range"))
	}
	res, body = ask("GET", file, "", "Range", "bytes=-2", "If-Range", `"other"`)
	if status("a part of another version", res, 200); body != "0123456789" {
		t.Errorf("it is %q", body)
	}
	res, body = ask("GET", file, "", "Range", "bytes=10-")
	status("a part behind the end", res, 416)
	problem := func(what, code string) {
		t.Helper()
		var p struct{ Code, Detail string }
		if err := json.Unmarshal([]byte(body), &p); err != nil || p.Code != code || p.Detail == "" || res.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s is refused as %s, with %q", what, res.Header.Get("Content-Type"), body)
		}
	}
	if problem("a part behind the end", "invalid"); res.Header.Get("Content-Range") != "bytes */10" || res.Header.Get("Content-Disposition") != "" {
		t.Errorf("with %v", res.Header)
	}
	res, body = ask("GET", file, "", "If-Match", `"other"`)
	status("reading another version", res, 412)
	problem("reading another version", "conflict")
	res, _ = ask("GET", file, "", "If-None-Match", first)
	status("the version that is known", res, 304)
	res, body = ask("HEAD", file, "")
	if status("its headers", res, 200); body != "" || res.ContentLength != 10 || res.Header.Get("ETag") != first {
		t.Errorf("its headers are %v, with %q", res.Header, body)
	}
	res, _ = ask("PUT", file, "second", "If-Match", first)
	status("in the place of what was read", res, 200)
	res, body = ask("PUT", file, "third", "If-Match", first)
	if status("in the place of what is no longer there", res, 412); !strings.Contains(body, `"code":"conflict"`) {
		t.Errorf("it says %s", body)
	}
	res, _ = ask("PUT", file, "third", "If-Match", `"never given"`)
	status("in the place of what never was", res, 412)
	res, _ = ask("PUT", file+"2", "x", "If-Match", "*")
	status("in the place of anything, where nothing is", res, 412)
	if _, body = ask("GET", file, ""); body != "second" {
		t.Errorf("after all that the file holds %q", body)
	}
	large := strings.Repeat("0123456789abcde\n", 1<<17)
	const big = "/api/computers/-/content?path=workspace/big.txt"
	in.Must(t, "exec", "--", "sh", "-c", "yes 0123456789abcde | head -n 131072 > workspace/big.txt")
	res, body = ask("GET", big, "")
	state := res.Header.Get("ETag")
	if body != large || state == "" {
		t.Fatalf("a large file that was not put came as %d bytes, named %q", len(body), state)
	}
	res, body = ask("GET", big, "", "Range", "bytes=16-31", "If-Range", state)
	if status("a part of it", res, 206); body != "0123456789abcde\n" {
		t.Errorf("it is %q", body)
	}
	res, body = ask("DELETE", big, "", "If-Match", first)
	status("removing it as another", res, 412)
	problem("removing it as another", "conflict")
	res, _ = ask("DELETE", big, "", "If-Match", "what is no tag")
	status("removing it as what is no tag", res, 422)
	for _, condition := range []string{"If-Match", "If-None-Match"} {
		res, _ = ask("DELETE", big, "", condition, "")
		status("removing it as what is not said, by "+condition, res, 422)
		res, _ = ask("PUT", big, "x", condition, "")
		status("putting it in the place of what is not said, by "+condition, res, 422)
	}
	res, _ = ask("PUT", big, large+"one line more\n", "If-Match", state)
	status("putting it in the place of what was read", res, 200)
	put := res.Header.Get("ETag")
	res, _ = ask("DELETE", big, "", "If-Match", state)
	status("removing it as what was there before", res, 412)
	res, _ = ask("DELETE", big, "", "If-Match", put)
	status("removing what was put", res, 204)
	res, _ = ask("DELETE", big, "", "If-Match", "*")
	status("removing what is not there", res, 404)
	res, _ = ask("PATCH", file, "x")
	if status("a method that the address does not take", res, 405); res.Header.Get("Allow") != "GET, HEAD, PUT, DELETE" {
		t.Errorf("it allows %q", res.Header.Get("Allow"))
	}
	res, _ = ask("HEAD", "/api/computers/-/events?follow=true", "")
	status("the headers of what never ends", res, 200)
	_, body = ask("GET", "/api/openapi.json", "")
	var api struct{ Servers []struct{ URL string } }
	if err := json.Unmarshal([]byte(body), &api); err != nil || len(api.Servers) != 1 || api.Servers[0].URL != in.URL {
		t.Errorf("the API is at %+v (%v); want %s", api.Servers, err, in.URL)
	}
}
