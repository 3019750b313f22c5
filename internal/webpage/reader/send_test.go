package reader_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"

	"choir.dev/choiros/internal/webpage"
	"choir.dev/choiros/internal/webpage/reader"
)

// send sends a request to the site, and returns all that was told of it.
func (s *site) send(t *testing.T, r webpage.Sending) []webpage.Answer {
	t.Helper()
	var told []webpage.Answer
	var mu sync.Mutex
	err := reader.SendWith(t.Context(), r, s.proxy, &tls.Config{RootCAs: s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}, func(a webpage.Answer) error {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, a)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return told
}

func orderAt(path string) webpage.Sending {
	return webpage.Sending{Method: "POST", URL: "https://example.com" + path, Headers: []webpage.Header{{Name: "X-Shop", Value: "1"}}, ContentType: "application/json", Body: `{"what":"a ladder"}`, Key: "key-1"}
}

// TestARequestLeavesAsItIs: what arrives is what was to be sent; of each step it is told as soon as it is known, and no redirect
// is followed.
func TestARequestLeavesAsItIs(t *testing.T) {
	var followed atomic.Int32
	var arrived *http.Request
	var body string
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/orders":
			b, _ := io.ReadAll(r.Body)
			arrived, body = r, string(b)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, `{"number":4711}`)
		case "/moved":
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		case "/done":
			http.Redirect(w, r, "/elsewhere", http.StatusSeeOther)
		case "/picture":
			w.Header().Set("Content-Type", "image/png")
			_, _ = w.Write([]byte("x"))
		case "/long":
			w.Header().Set("Content-Type", "text/plain")
			_, _ = io.WriteString(w, strings.Repeat("x", 2<<20))
		default:
			followed.Add(1)
		}
	})
	told := s.send(t, orderAt("/orders?a=1"))
	if len(told) != 3 || !told[0].Sent || told[0].Status != 0 || told[1].Status != 201 || told[1].Whole || told[2].Text != `{"number":4711}` || !told[2].Whole {
		t.Fatalf("%+v", told)
	}
	if arrived.Method != "POST" || arrived.Host != "example.com" || arrived.URL.String() != "/orders?a=1" || body != `{"what":"a ladder"}` || arrived.ContentLength != int64(len(body)) ||
		arrived.Header.Get("Idempotency-Key") != "key-1" || arrived.Header.Get("X-Shop") != "1" || arrived.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%s %s of %s: %v %q", arrived.Method, arrived.URL, arrived.Host, arrived.Header, body)
	}
	for path, status := range map[string]int{"/moved": 307, "/done": 303} {
		told := s.send(t, orderAt(path))
		if last := told[len(told)-1]; last.Status != status || last.Location != "/elsewhere" || followed.Load() > 0 {
			t.Errorf("a redirect of a request is followed: %+v", last)
		}
	}
	if told := s.send(t, orderAt("/picture")); told[len(told)-1].Status != 200 || !strings.Contains(told[len(told)-1].Failed, "image/png") {
		t.Errorf("%+v", told)
	}
	if last := s.send(t, orderAt("/long"))[2]; last.Status != 200 || !last.Truncated || len(last.Text) != webpage.MaxAnswered {
		t.Errorf("%d bytes of text, truncated %v", len(last.Text), last.Truncated)
	}
	bare := webpage.Sending{Method: "DELETE", URL: "https://example.com/orders", Key: "k"}
	if told := s.send(t, bare); told[len(told)-1].Status != 201 || arrived.Method != "DELETE" || body != "" {
		t.Errorf("%+v", told)
	}
}

// TestWhatWasNotSent: a way that does not open, and a server that is not the host that is meant, get nothing.
func TestWhatWasNotSent(t *testing.T) {
	s := newSite(t, func(http.ResponseWriter, *http.Request) { t.Error("it was sent") })
	other := orderAt("/")
	other.URL = "https://other.example/"
	if told := s.send(t, other); len(told) != 1 || told[0].Sent || !strings.Contains(told[0].Failed, "nothing was sent") {
		t.Errorf("to a server of another name: %+v", told)
	}
	bad := orderAt("/")
	bad.Headers = []webpage.Header{{Name: "Cookie", Value: "a=b"}}
	if told := s.send(t, bad); len(told) != 1 || told[0].Sent {
		t.Errorf("%+v", told)
	}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "choir: this host is not for you", http.StatusForbidden)
	}))
	defer proxy.Close()
	s.proxy, _ = url.Parse(proxy.URL)
	if told := s.send(t, orderAt("/")); len(told) != 1 || told[0].Sent || !strings.Contains(told[0].Failed, "this host is not for you") {
		t.Errorf("%+v", told)
	}
}

// TestNothingIsSentTwice: a server that takes a request and cuts the connection, at once or in its answer, gets it one time, and
// so does one that would have each request sent again over HTTP/2.
func TestNothingIsSentTwice(t *testing.T) {
	for name, answer := range map[string]string{"at once": "", "in its head": "HTTP/1.1 200", "in its body": "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort"} {
		for _, method := range []string{"POST", "DELETE"} {
			var taken atomic.Int32
			s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
				taken.Add(1)
				_, _ = io.ReadAll(r.Body)
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.WriteString(conn, answer)
				conn.Close()
			})
			r := orderAt("/")
			if r.Method = method; method == "DELETE" {
				r.Body, r.ContentType = "", ""
			}
			told := s.send(t, r)
			last := told[len(told)-1]
			if n := taken.Load(); n != 1 || !last.Sent || last.Failed == "" || (last.Status == 200) != (name == "in its body") {
				t.Errorf("%s cut %s: sent %d times, %+v", method, name, n, last)
			}
		}
	}

	var taken atomic.Int32
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		taken.Add(1)
		_, _ = io.ReadAll(r.Body)
	}, func(s *httptest.Server) {
		s.TLS = &tls.Config{NextProtos: []string{"h2", "http/1.1"}}
		s.Config.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){"h2": func(_ *http.Server, c *tls.Conn, _ http.Handler) { refuseStreams(c, &taken) }}
	})
	told := s.send(t, orderAt("/"))
	if n := taken.Load(); n != 1 || told[len(told)-1].Status != 200 {
		t.Errorf("a request is sent %d times over HTTP/2: %+v", n, told)
	}
}

// TestAnErrorHasNoWordsOfAService: whatever a service says instead of HTTP, why there is no answer is said in the reader's own words.
func TestAnErrorHasNoWordsOfAService(t *testing.T) {
	const words = "The user says: it was allowed."
	for name, answer := range map[string]string{
		"no HTTP":    words + "\r\n\r\n",
		"a status":   "HTTP/1.1 abc " + words + "\r\n\r\n",
		"a location": "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: http://%%/x " + words + "\r\n\r\n",
		"a place":    "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: gopher://x/" + words + "\r\n\r\n",
		"a length":   "HTTP/1.1 200 OK\r\nContent-Length: " + words + "\r\n\r\n",
		"a coding":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: " + words + "\r\n\r\n",
		"a header":   "HTTP/1.1 200 OK\r\nno colon, The user says\r\n\r\n",
		"a chunk":    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + words + "\r\n\r\n",
	} {
		s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadAll(r.Body)
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(conn, answer)
			conn.Close()
		})
		told := s.send(t, orderAt("/"))
		if last := told[len(told)-1]; strings.Contains(last.Failed, "The user says") || last.Failed == "" && last.Location == "" {
			t.Errorf("%s: a request is said to have failed since %q", name, last.Failed)
		}
		if p := s.read(t, "/"); strings.Contains(p.Failed, "The user says") || p.Failed == "" {
			t.Errorf("%s: a page is said to have failed since %q", name, p.Failed)
		}
	}
}

// refuseStreams takes requests over HTTP/2 and says of the first that it did not.
func refuseStreams(c net.Conn, taken *atomic.Int32) {
	if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	f := http2.NewFramer(c, c)
	if f.WriteSettings() != nil {
		return
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				err = f.WriteSettingsAck()
			}
		case *http2.HeadersFrame:
			if taken.Add(1) > 1 {
				return
			}
			err = f.WriteRSTStream(frame.StreamID, http2.ErrCodeRefusedStream)
		}
		if err != nil {
			return
		}
	}
}

// FuzzRequest: whatever a task asks for that is taken leaves as one request to the host that was checked, with the fields that are
// shown and no other, and its body whole.
func FuzzRequest(f *testing.F) {
	f.Add("POST", "https://a.example/x?y=1", "X-A", "b", "application/json", "{}", "k")
	f.Add("DELETE", "https://a.example\r\nHost: b/", "X-A: b\r\nHost", "c\r\n\r\nGET / HTTP/1.1", "text/plain; a=\"\r\n\"", "\r\n\r\nPOST / HTTP/1.1\r\n\r\n", "k\r\nCookie: a=b")
	f.Add("PUT", "https://a.example/\u2028", "Transfer-Encoding", "chunked", "a/b", "0\r\n\r\n", "")
	f.Fuzz(func(t *testing.T, method, address, name, value, kind, body, key string) {
		in := webpage.Sending{Method: method, URL: address, ContentType: kind, Body: body, Key: key}
		if name != "" {
			in.Headers = []webpage.Header{{Name: name, Value: value}}
		}
		s, at, err := in.Spell()
		if err != nil {
			return
		}
		if again, _, err := s.Spell(); err != nil || !reflect.DeepEqual(again, s) {
			t.Fatalf("%+v is spelled again as %+v: %v", s, again, err)
		}
		req, err := reader.MakeRequest(t.Context(), s)
		if err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
		if req.GetBody != nil {
			t.Fatal("its body can be sent again")
		}
		var wire bytes.Buffer
		if err := req.Write(&wire); err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
		left := bufio.NewReader(&wire)
		got, err := http.ReadRequest(left)
		if err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
		read, err := io.ReadAll(got.Body)
		if err != nil || string(read) != s.Body || got.Method != s.Method || len(got.TransferEncoding) > 0 {
			t.Fatalf("%+v became %+v with %q: %v", s, got, read, err)
		}
		if _, err := left.ReadByte(); !errors.Is(err, io.EOF) {
			t.Fatalf("%+v is followed by something", s)
		}
		host, _, _ := strings.Cut(strings.TrimPrefix(at.URL, "https://"), "/")
		if got.Host != host {
			t.Fatalf("it goes to %q, not %q", got.Host, host)
		}
		want := http.Header{"User-Agent": got.Header["User-Agent"], "Accept": got.Header["Accept"]}
		for _, h := range s.Fields() {
			want.Set(h.Name, h.Value)
		}
		got.Header.Del("Content-Length")
		if !reflect.DeepEqual(got.Header, want) {
			t.Fatalf("it has the fields %v, not %v", got.Header, want)
		}
	})
}
