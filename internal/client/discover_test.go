package client_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/process"
	"choir.dev/choiros/internal/view"
)

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

// listen answers every request on a real port and returns the port.
func listen(t *testing.T, answer http.HandlerFunc) (port string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: answer, ReadHeaderTimeout: 5 * time.Second}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	_, port, err = net.SplitHostPort(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestDiscover(t *testing.T) {
	var host, token string
	port := listen(t, func(w http.ResponseWriter, r *http.Request) {
		host, token = r.Host, r.Header.Get("Authorization")
		_, _ = io.WriteString(w, `[]`)
	})
	url := "http://console.choir.localhost:" + port
	data := t.TempDir()
	if _, err := client.Discover(env(), data, ""); !fault.Is(err, fault.Unreachable) || fault.HintOf(err) == "" {
		t.Errorf("nothing runs: %v", err)
	}
	if err := client.WriteRuntime(data, client.Runtime{URL: url, Token: "choir_runtime", PID: os.Getpid(), Process: process.Self()}); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(filepath.Join(data, "runtime.json")); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	// If the client used a proxy, it would get the token.
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	for _, c := range []struct {
		name string
		env  []string
		want string
	}{
		{"the running instance", nil, "Bearer choir_runtime"},
		{"the environment", []string{"CHOIR_URL", url, "CHOIR_TOKEN", "choir_env"}, "Bearer choir_env"},
		{"a token for the running instance", []string{"CHOIR_TOKEN", "choir_other"}, "Bearer choir_other"},
		{"another address never gets the instance's token", []string{"CHOIR_URL", "http://other.localhost:" + port}, ""},
	} {
		cl, err := client.Discover(env(c.env...), data, "")
		if err != nil {
			t.Fatal(c.name, err)
		}
		if _, err := cl.Computers(bounded(t)); err != nil {
			t.Fatal(c.name, err)
		}
		if token != c.want || !strings.HasSuffix(host, ".localhost:"+port) {
			t.Errorf("%s: %s got %q", c.name, host, token)
		}
		cl.Close()
	}
	if err := client.WriteRuntime(data, client.Runtime{URL: url, PID: 1 << 30}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Discover(env(), data, ""); !fault.Is(err, fault.Unreachable) {
		t.Errorf("one that was killed: %v", err)
	}
	// The process id and the port now belong to somebody else, who must not get the token.
	_, started, _ := strings.Cut(process.Self(), " ")
	for _, was := range []string{"", "1", strconv.Itoa(os.Getpid()) + " 1", "1 " + started} {
		if err := client.WriteRuntime(data, client.Runtime{URL: url, Token: "choir_runtime", PID: os.Getpid(), Process: was}); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Discover(env(), data, ""); !fault.Is(err, fault.Unreachable) {
			t.Errorf("one that was killed, and was %q: %v", was, err)
		}
	}
	if err := client.RemoveRuntime(data); err != nil {
		t.Fatal(err)
	}
	if err := client.RemoveRuntime(data); err != nil {
		t.Errorf("twice: %v", err)
	}
}

func TestNewRefuses(t *testing.T) {
	for _, base := range []string{"", "choir", "ftp://x", "http://", "http://u:p@x", "http://x/path"} {
		if _, err := client.New(base, "", ""); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", base, err)
		}
	}
	if _, err := client.New("http://x", "", "../y"); !fault.Is(err, fault.Invalid) {
		t.Errorf("computer: %v", err)
	}
}

func TestWhatAnswersIsNoControlPlane(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"another server": func(w http.ResponseWriter, r *http.Request) { http.Error(w, "<h1>nginx</h1>", http.StatusBadGateway) },
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://evil.example/", http.StatusFound)
		},
		"not JSON": func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "<html>") },
		"a cut answer": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `[{"id":`)
		},
	} {
		c, err := client.New("http://127.0.0.1:"+listen(t, answer), "t", "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Computers(bounded(t)); !fault.Is(err, fault.Unreachable) {
			t.Errorf("%s: %v", name, err)
		}
		c.Close()
	}
}

func TestBrokenStreams(t *testing.T) {
	ctx := bounded(t)
	for name, body := range map[string]string{
		"cut before the end": "s\x00\x00\x00\x02{}o\x00\x00\x00\x02hi",
		"cut in a frame":     "o\x00\x00\x00\x05hi",
		"unknown kind":       "z\x00\x00\x00\x00",
		"a huge frame":       "o\xff\xff\xff\xff",
	} {
		c, err := client.New("http://127.0.0.1:"+listen(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, body) }), "t", "")
		if err != nil {
			t.Fatal(err)
		}
		if exit, err := c.Exec(ctx, view.ExecRequest{Argv: []string{"x"}}, view.ExecIO{}); !fault.Is(err, fault.Unreachable) {
			t.Errorf("%s: %+v, %v", name, exit, err)
		}
		c.Close()
	}
	c, err := client.New("http://127.0.0.1:"+listen(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "\n{\"specversion\":\"9\"}\n") }), "t", "")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for e, err := range c.Events(ctx, client.EventsOptions{}) {
		if !fault.Is(err, fault.Unreachable) || contract.AsFieldError(err) == nil {
			t.Errorf("%+v, %v", e, err)
		}
	}
}
