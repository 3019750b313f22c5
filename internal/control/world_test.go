package control_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/console"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/control"
	"choir.dev/choiros/internal/identity"
)

// world is a control plane on a real port, with a real bus and identity file.
type world struct {
	t         *testing.T
	srv       *control.Server
	ids       *identity.Store
	bus       *bus.Bus
	computers *memory
	system    *system
	port      int
	token     string
	owner     identity.User
	log       *syncBuffer
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func open(t *testing.T) *world {
	t.Helper()
	return openWith(t, console.Files())
}

func openWith(t *testing.T, pages fs.FS, tune ...func(*control.Options)) *world {
	t.Helper()
	ctx := context.Background()
	dir := t.TempDir()
	w := &world{t: t, computers: &memory{list: []*machine{newMachine("Studio")}}, system: &system{secrets: map[string]string{}}, log: &syncBuffer{}}
	logger := slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	if w.ids, err = identity.Open(ctx, filepath.Join(dir, "control.sqlite")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, w.ids.Close()) })
	if w.owner, err = w.ids.Owner(ctx); err != nil {
		t.Fatal(err)
	}
	if w.token, err = w.ids.MachineToken(ctx, filepath.Join(dir, "token"), ""); err != nil {
		t.Fatal(err)
	}
	if w.bus, err = bus.Open(ctx, bus.Options{Dir: filepath.Join(dir, "nats"), KeysDir: filepath.Join(dir, "keys"), Logger: logger}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, w.bus.Close()) })
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.port = ln.Addr().(*net.TCPAddr).Port
	o := control.Options{
		Identity: w.ids, Computers: w.computers, System: w.system, Bus: w.bus, Console: pages,
		Host: "choir.localhost", Port: w.port, Version: "test", Logger: logger,
	}
	for _, f := range tune {
		f(&o)
	}
	w.srv, err = control.New(o)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	serveCtx, stop := context.WithCancel(ctx)
	go func() { served <- w.srv.Serve(serveCtx, ln) }()
	t.Cleanup(func() {
		stop()
		check(t, <-served)
		check(t, w.srv.Close())
	})
	return w
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

func (w *world) machine() *machine { return w.computers.list[0] }

func (w *world) console() string { return fmt.Sprintf("http://console.choir.localhost:%d", w.port) }
func (w *world) desktop(handle string) string {
	return fmt.Sprintf("http://%s.desk.choir.localhost:%d", handle, w.port)
}

func (w *world) client() *client.Client {
	w.t.Helper()
	c, err := client.New(w.console(), w.token, "")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.Close)
	return c
}

// answer is a response that was read to its end.
type answer struct {
	*http.Response
	body string
}

// ask sends one request to the port with exactly these headers, each written as "Name: value".
func (w *world) ask(method, host, target, body string, headers ...string) answer {
	w.t.Helper()
	req := &http.Request{Method: method, Header: http.Header{}, Host: host, ContentLength: int64(len(body))}
	conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", w.port), 5*time.Second)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	check(w.t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, target, host)
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	fmt.Fprintf(&b, "Content-Length: %d\r\nConnection: close\r\n\r\n%s", len(body), body)
	if _, err := io.WriteString(conn, b.String()); err != nil {
		w.t.Fatal(err)
	}
	res, err := readResponse(conn, req)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, target, err)
	}
	return res
}

// hostOf strips the scheme.
func hostOf(origin string) string { return strings.TrimPrefix(origin, "http://") }

// fetched returns the headers that a browser sends with a page's own request.
func fetched(origin string) []string {
	return []string{"Origin: " + origin, "Sec-Fetch-Site: same-origin", "Sec-Fetch-Mode: cors", "Sec-Fetch-Dest: empty"}
}

// signIn claims the computer and returns the console's cookie as a header.
func (w *world) signIn() string {
	w.t.Helper()
	token, _, err := w.ids.NewLink(context.Background(), w.owner.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	res := w.ask("POST", hostOf(w.console()), "/api/claim", fmt.Sprintf(`{"token":%q,"name":"My Studio"}`, token),
		append(fetched(w.console()), "Content-Type: application/json")...)
	if res.StatusCode != http.StatusOK {
		w.t.Fatalf("claim: %d %s", res.StatusCode, res.body)
	}
	return cookieOf(w.t, res)
}

func cookieOf(t *testing.T, res answer) string {
	t.Helper()
	for _, c := range res.Cookies() {
		return "Cookie: " + c.Name + "=" + c.Value
	}
	t.Fatal("no cookie was set")
	return ""
}

// ticketTo asks for a ticket to a computer's desktop as the console's page does.
func (w *world) ticketTo(cookie, computer string) (action, ticket string) {
	w.t.Helper()
	res := w.ask("POST", hostOf(w.console()), "/api/computers/"+computer+"/ticket", "", append(fetched(w.console()), cookie)...)
	var out struct{ Action, Ticket string }
	if err := json.Unmarshal([]byte(res.body), &out); err != nil || out.Ticket == "" {
		w.t.Fatalf("ticket: %d %s", res.StatusCode, res.body)
	}
	return out.Action, out.Ticket
}

// framed returns the headers with which the console's page posts the ticket's form.
func (w *world) framed() []string {
	return []string{"Origin: " + w.console(), "Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe", "Content-Type: application/x-www-form-urlencoded"}
}

// enter signs in to the desktop and returns its origin and cookie.
func (w *world) enter(cookie string) (origin, desktopCookie string) { return w.enterAt(cookie, "-") }

func (w *world) enterAt(cookie, computer string) (origin, desktopCookie string) {
	w.t.Helper()
	action, ticket := w.ticketTo(cookie, computer)
	origin = strings.TrimSuffix(action, "/_choir/enter")
	res := w.ask("POST", hostOf(origin), "/_choir/enter", "ticket="+ticket, w.framed()...)
	if res.StatusCode != http.StatusSeeOther || res.Header.Get("Location") != "/" {
		w.t.Fatalf("enter: %d %s", res.StatusCode, res.body)
	}
	return origin, cookieOf(w.t, res)
}

var iframed = []string{"Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"}

// waitFor waits for a condition.
func (w *world) waitFor(done func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatal("waited too long")
		}
	}
}
