package control_test

import (
	"context"
	"encoding/json"
	"html"
	"net"
	"net/http/httptest"
	"regexp"
	"testing"

	"choir.dev/choiros/console"
	"choir.dev/choiros/internal/control/stopped"
	"choir.dev/choiros/internal/view"
)

// TestTheStoppedPageKnowsWhatItIsTold: the page compares the status that it was made with to the
// one that it polls. If they were spelled differently, it would reload itself again and again.
func TestTheStoppedPageKnowsWhatItIsTold(t *testing.T) {
	t.Parallel()
	page, err := stopped.New(stopped.Options{Console: console.Files(), Host: "choir.localhost", Port: 1})
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) []byte {
		t.Helper()
		r := httptest.NewRequest("GET", "http://console.choir.localhost:1"+path, nil)
		w := httptest.NewRecorder()
		page.ServeHTTP(w, r)
		if w.Code != 503 {
			t.Fatalf("GET %s: %d", path, w.Code)
		}
		return w.Body.Bytes()
	}
	said := regexp.MustCompile(`data-told="([^"]*)"`)
	for _, detail := range []string{"control.sqlite: file is not a database (26)", `"quoted" & <b>marked</b> 'twice'`} {
		page.Say(view.Refusal{Code: "damaged", Detail: detail, Hint: "Run choir recover."}, "Everything.")
		var told struct{ Detail string }
		if err := json.Unmarshal(get("/health"), &told); err != nil || told.Detail == "" {
			t.Fatalf("%+v %v", told, err)
		}
		m := said.FindSubmatch(get("/claim"))
		if m == nil || html.UnescapeString(string(m[1])) != told.Detail {
			t.Errorf("the page knows %q, and is told %q", m, told.Detail)
		}
	}
}

// TestWhoIsCutOffIsNoFailure: browsers open some connections ahead. One on which nothing is asked
// delays the end of the page's server and must not make it an error, because choir up continues
// only without one.
func TestWhoIsCutOffIsNoFailure(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	page, err := stopped.New(stopped.Options{Console: console.Files(), Host: "choir.localhost", Port: ln.Addr().(*net.TCPAddr).Port})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	served := make(chan error, 1)
	go func() { served <- page.Serve(ctx, ln) }()
	silent, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	// Connections are accepted in order: once a later one is answered, this one was accepted.
	asked, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer asked.Close()
	if _, err := asked.Write([]byte("GET / HTTP/1.0\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := asked.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	end()
	if err := <-served; err != nil {
		t.Errorf("the page ended with %v", err)
	}
}
