package attack_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"choir.dev/choiros/console"
	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/control"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/identity"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

// origin returns the headers by which a browser says which page sent a request, and for what.
func origin(from, site, mode, dest string) http.Header {
	h := http.Header{"Sec-Fetch-Site": {site}, "Sec-Fetch-Mode": {mode}, "Sec-Fetch-Dest": {dest}}
	if from != "" {
		h.Set("Origin", from)
	}
	return h
}

const evil = "http://evil.example"

var originChecks = []defence.Name{defence.ControlOrigin, defence.ControlFetchSite}

var controlRows = []Row{
	{Number: 20, Attack: "somebody's DNS points their name at our port (rebinding)", Defences: []defence.Name{defence.ControlHost}, Run: func(t *testing.T) Verdict {
		w := newWeb(t)
		res := w.ask(t, "GET", fmt.Sprintf("http://evil.example:%d/claim", w.port), "", http.Header{"Sec-Fetch-Site": {"same-origin"}})
		return Verdict{res.StatusCode == 200, res.told()}
	}},
	{Number: 20, Attack: "a foreign page opens the dev server's socket with the user's cookie", Defences: originChecks, Run: func(t *testing.T) Verdict {
		w := newWeb(t)
		h := origin(evil, "cross-site", "websocket", "empty")
		for name, v := range map[string]string{"Cookie": w.desktopCookie, "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
			"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol": "vite-hmr"} {
			h.Set(name, v)
		}
		res := w.ask(t, "GET", w.desktop+"/", "", h)
		return Verdict{w.mine.asked() > 0, res.told()}
	}},
	{Number: 28, Attack: "a desktop's page starts a run through the console's API, with the console's cookie", Defences: originChecks, Run: func(t *testing.T) Verdict {
		w := newWeb(t)
		h := origin(w.desktop, "same-site", "cors", "empty")
		h.Set("Cookie", w.consoleCookie)
		h.Set("Content-Type", "application/json")
		res := w.ask(t, "POST", w.console+"/api/computers/"+string(w.mine.cid)+"/prompts", fmt.Sprintf(`{"id":%q,"text":"do it"}`, contract.NewID()), h)
		return Verdict{w.mine.acted() > 0, res.told()}
	}},
	{Number: 22, Attack: "a desktop's page reads the console's API, with the console's cookie", Defences: originChecks, Run: func(t *testing.T) Verdict {
		w := newWeb(t)
		h := origin(w.desktop, "same-site", "cors", "empty")
		h.Set("Cookie", w.consoleCookie)
		res := w.ask(t, "GET", w.console+"/api/computers", "", h)
		return Verdict{res.StatusCode == 200, res.told()}
	}},
	{Number: 24, Attack: "a page that was handed an API token uses it", Defences: []defence.Name{defence.ControlTokens}, Run: func(t *testing.T) Verdict {
		w := newWeb(t)
		h := origin(evil, "cross-site", "cors", "empty")
		h.Set("Authorization", "Bearer "+w.token)
		res := w.ask(t, "GET", w.console+"/api/computers", "", h)
		return Verdict{res.StatusCode == 200, res.told()}
	}},
	{Number: 24, Attack: "a foreign page signs the user in to a desktop with a ticket of its own", Defences: []defence.Name{defence.ControlEnter}, Run: func(t *testing.T) Verdict {
		w := newWeb(t)
		desktop, ticket := w.ticket(t, string(w.mine.cid))
		h := origin(evil, "cross-site", "navigate", "iframe")
		h.Set("Content-Type", "application/x-www-form-urlencoded")
		res := w.ask(t, "POST", desktop+"/_choir/enter", "ticket="+ticket, h)
		return Verdict{len(res.Cookies()) > 0, res.told()}
	}},
	{Number: 24, Attack: "the dev server redirects the desktop elsewhere", Defences: []defence.Name{defence.ControlRedirects, defence.ControlHeaders, defence.BoxHeadersApart}, Run: fromBox(http.StatusFound, "", http.Header{"Location": {evil}}, func(res answer) bool {
		return res.Header.Get("Location") == evil
	})},
	{Number: 22, Attack: "the dev server sets a cookie and widens a service worker's scope", Defences: []defence.Name{defence.ControlHeaders, defence.BoxHeadersApart}, Run: fromBox(200, "text/javascript", http.Header{"Set-Cookie": {"a=b; Domain=choir.localhost"}, "Service-Worker-Allowed": {"/"}}, func(res answer) bool {
		return len(res.Cookies()) > 0 && res.Header.Get("Service-Worker-Allowed") != ""
	})},
	{Number: 44, Attack: "the dev server's headers take the place of the host's", Defences: []defence.Name{defence.ControlHeaders, defence.BoxHeadersApart}, Run: fromBox(200, "text/javascript", http.Header{"Content-Security-Policy": {"default-src *"}}, func(res answer) bool {
		return strings.Contains(strings.Join(res.Header.Values("Content-Security-Policy"), ";"), "default-src *")
	})},
	{Number: 44, Attack: "a 103 of the dev server brings the browser a preload from elsewhere", Defences: []defence.Name{defence.BoxInformational, defence.BoxHeadersApart}, Run: func(t *testing.T) Verdict {
		hinted, res := earlyHints(t)
		return Verdict{hinted, fmt.Sprintf("%s %v", res.told(), res.Header)}
	}},
	{Number: 44, Attack: "a 103 of the dev server wipes the host's headers of the answer after it", Defences: []defence.Name{defence.BoxHeadersApart}, Run: func(t *testing.T) Verdict {
		_, res := earlyHints(t)
		return Verdict{res.Header.Get("Content-Security-Policy") == "", fmt.Sprintf("%s %v", res.told(), res.Header)}
	}},
	{Number: 22, Attack: "a script is fetched as a service worker, to outlive a rewind", Defences: []defence.Name{defence.ControlWorkers}, Run: func(t *testing.T) Verdict {
		w := newWeb(t)
		w.mine.header = http.Header{"Content-Type": {"text/javascript"}}
		h := origin("", "same-origin", "same-origin", "serviceworker")
		h.Set("Service-Worker", "script")
		h.Set("Cookie", w.desktopCookie)
		res := w.ask(t, "GET", w.desktop+"/sw.js", "", h)
		return Verdict{res.StatusCode == 200, res.told()}
	}},
	{Number: 22, Attack: "the box reads the user's cookies from requests", Defences: []defence.Name{defence.ControlRequests}, Run: func(t *testing.T) Verdict {
		w := newWeb(t)
		w.mine.header = http.Header{"Content-Type": {"text/javascript"}}
		res := w.own(t, "/app.js")
		return Verdict{w.mine.saw("Cookie") != "", res.told()}
	}},
	{Number: 21, Attack: "a file outside the desktop's source, by /@fs", Defences: []defence.Name{defence.ControlPaths}, Run: viaPath("/@fs/etc/passwd")},
	{Number: 21, Attack: "a file the dev server denies, by ?import&raw??", Defences: []defence.Name{defence.ControlPaths}, Run: viaPath("/@fs/etc/passwd?import&raw??")},
	{Number: 21, Attack: "a file by an escape that is decoded twice", Defences: []defence.Name{defence.ControlPaths}, Run: viaPath("/src/%252e%252e/%252e%252e/etc/passwd")},
	{Number: 21, Attack: "a file whose name begins with a dot", Defences: []defence.Name{defence.ControlPaths}, Run: viaPath("/.env")},
	{Number: 27, Attack: "an uploaded page is served with the desktop's origin", Defences: []defence.Name{defence.ControlPages, defence.ControlTypes}, Run: fromBox(200, "text/html", nil, func(res answer) bool {
		return res.StatusCode == 200 && strings.HasPrefix(res.Header.Get("Content-Type"), "text/html")
	})},
	{Number: 23, Attack: "the session of one computer's desktop is shown to another's", Defences: []defence.Name{defence.ControlComputer}, Run: func(t *testing.T) Verdict {
		w := newWeb(t)
		other, _ := w.ticket(t, string(w.other.cid))
		w.other.header = http.Header{"Content-Type": {"text/javascript"}}
		h := origin(other, "same-origin", "cors", "empty")
		h.Set("Cookie", w.desktopCookie)
		res := w.ask(t, "GET", other+"/app.js", "", h)
		return Verdict{res.StatusCode == 200 && w.other.asked() > 0, res.told()}
	}},
	{Number: 29, Attack: "sign-in links are guessed as fast as the machine answers", Defences: []defence.Name{defence.ControlTries}, Run: func(t *testing.T) Verdict {
		w := newWeb(t)
		var res answer
		for range 30 {
			h := origin(w.console, "same-origin", "cors", "empty")
			h.Set("Content-Type", "application/json")
			res = w.ask(t, "POST", w.console+"/api/claim", fmt.Sprintf(`{"token":%q}`, strings.Repeat("a", 43)), h)
		}
		return Verdict{res.StatusCode == http.StatusForbidden || res.StatusCode == http.StatusUnauthorized, res.told()}
	}},
}

// fromBox makes the dev server answer the desktop's own page.
func fromBox(status int, contentType string, header http.Header, worked func(answer) bool) func(*testing.T) Verdict {
	return func(t *testing.T) Verdict {
		w := newWeb(t)
		w.mine.status, w.mine.header = status, header.Clone()
		if w.mine.header == nil {
			w.mine.header = http.Header{}
		}
		if contentType != "" {
			w.mine.header.Set("Content-Type", contentType)
		}
		res := w.own(t, "/src/thing")
		return Verdict{worked(res), fmt.Sprint(res.told(), " ", res.Header)}
	}
}

// viaPath requests a path as the desktop's own page does. The attack works if the dev server gets
// the request.
func viaPath(path string) func(*testing.T) Verdict {
	return func(t *testing.T) Verdict {
		w := newWeb(t)
		w.mine.header = http.Header{"Content-Type": {"text/javascript"}}
		res := w.own(t, path)
		return Verdict{w.mine.asked() > 0 && res.StatusCode == 200, res.told()}
	}
}

// earlyHints makes the dev server send a 103 before its answer, and returns whether the browser got
// it.
func earlyHints(t *testing.T) (hinted bool, res answer) {
	t.Helper()
	w := newWeb(t)
	w.mine.early = textproto.MIMEHeader{"Link": {"<" + evil + "/x.js>; rel=preload; as=script"}}
	w.mine.header = http.Header{"Content-Type": {"text/javascript"}}
	res = w.traced(t, w.desktop+"/app.js", func(code int, h textproto.MIMEHeader) error {
		hinted = hinted || code == http.StatusEarlyHints && h.Get("Link") != ""
		return nil
	})
	return hinted, res
}

// web is a control plane with two played computers, and a browser that is signed in to the console
// and to the first one's desktop.
type web struct {
	port                         int
	console, desktop             string
	token                        string
	consoleCookie, desktopCookie string
	given                        map[string]*http.Cookie // the same cookies as they were set, by the host that set them
	files                        *countedFiles           // the console's files
	mine, other                  *played
	client                       *http.Client
}

// played is a computer with only what the rows need.
type played struct {
	control.Computer
	cid contract.CID

	mu     sync.Mutex
	acts   int
	got    []http.Header
	status int
	header http.Header
	early  textproto.MIMEHeader
	// serve answers a request itself, or returns nil.
	serve   func(*http.Request) *http.Response
	paths   []string
	decided []view.Decision
}

// Frame shows a run whose approval waits for the user.
func (p *played) Frame(ctx context.Context) (view.Frame, error) {
	info, err := p.Info(ctx)
	run := contract.NewID()
	return view.Frame{Computer: info, Desktop: view.DesktopStatus{Mode: view.ModeLive}, Running: []view.Run{{ID: run, Approvals: []view.Approval{{
		ID: approvalID, Kind: contract.ApprovalEgress, Run: run, Prompt: "do it", Task: "t1", Attempt: 1, Host: "evil.example", Port: 443, Digest: "digest", Deadline: time.Now().Add(time.Hour),
	}}}}}, err
}

func (p *played) Follow(ctx context.Context, _ uint64) iter.Seq2[contract.Event, error] {
	return func(func(contract.Event, error) bool) { <-ctx.Done() }
}

// Methods are the methods that the rows call.
func (p *played) Methods() rpc.Table {
	t := rpc.Table{}
	rpc.Bind(t, rpc.ApprovalAnswer, func(_ context.Context, _ rpc.Caller, in rpc.DecideRequest) (view.Acted, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.decided = append(p.decided, in.Body)
		return view.Acted{}, nil
	})
	rpc.Bind(t, rpc.Action, func(ctx context.Context, _ rpc.Caller, _ rpc.ActionRequest) (view.Acted, error) {
		return p.Act(ctx, view.Action{})
	})
	return t
}

func (p *played) decisions() []view.Decision {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]view.Decision{}, p.decided...)
}

func (p *played) Heartbeat(context.Context, view.Heartbeat) error { return nil }

// approvalID is the id of the waiting approval.
var approvalID = contract.NewID()

// countedFiles are the console's files, with how often each was opened.
type countedFiles struct {
	fs.FS
	mu  sync.Mutex
	got map[string]int
}

func (c *countedFiles) Open(name string) (fs.File, error) {
	c.mu.Lock()
	c.got[name]++
	c.mu.Unlock()
	return c.FS.Open(name)
}

func (c *countedFiles) opened(name string) int { c.mu.Lock(); defer c.mu.Unlock(); return c.got[name] }

func (p *played) Info(context.Context) (view.Computer, error) {
	return view.Computer{ID: p.cid, Name: "Studio", State: view.StateAwake}, nil
}

func (p *played) Act(context.Context, view.Action) (view.Acted, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acts++
	return view.Acted{}, nil
}

func (p *played) Live(context.Context) (http.RoundTripper, error) { return p, nil }
func (p *played) AddViewer(context.Context) func()                { return func() {} }
func (p *played) Appended(context.Context, time.Time) (int, int64, error) {
	return 0, 0, nil
}
func (p *played) Last() uint64 { return 1 }
func (p *played) Build(context.Context) (fs.FS, error) {
	return fstest.MapFS{"index.html": {Data: []byte("<!doctype html>")}}, nil
}

// RoundTrip answers as a dev server that an attacker has taken over.
func (p *played) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.got = append(p.got, r.Header.Clone())
	p.paths = append(p.paths, r.URL.Path)
	if trace := httptrace.ContextClientTrace(r.Context()); trace != nil && p.early != nil {
		if err := trace.Got1xxResponse(http.StatusEarlyHints, p.early); err != nil {
			return nil, err
		}
	}
	if p.serve != nil {
		if res := p.serve(r); res != nil {
			return res, nil
		}
	}
	status := p.status
	if status == 0 {
		status = 200
	}
	return &http.Response{StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: p.header.Clone(), Body: io.NopCloser(strings.NewReader("content")), Request: r}, nil
}

func (p *played) asked() int { p.mu.Lock(); defer p.mu.Unlock(); return len(p.got) }
func (p *played) acted() int { p.mu.Lock(); defer p.mu.Unlock(); return p.acts }
func (p *played) saw(name string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.got {
		if v := h.Get(name); v != "" {
			return v
		}
	}
	return ""
}

type playedComputers []*played

func (c playedComputers) List(ctx context.Context) (out []view.Computer, err error) {
	for _, p := range c {
		info, _ := p.Info(ctx)
		out = append(out, info)
	}
	return out, nil
}

func (c playedComputers) Health(context.Context, []contract.CID) ([]view.ComputerHealth, error) {
	return nil, nil
}

func (playedComputers) Waiting(context.Context, []contract.CID) ([]view.Waiting, error) {
	return nil, nil
}

func (c playedComputers) IDs() (out []contract.CID) {
	for _, p := range c {
		out = append(out, p.cid)
	}
	return out
}

// Create makes nothing: the rows have the computers that they need.
func (c playedComputers) Create(ctx context.Context, cid contract.CID, _ string) (view.Computer, error) {
	p, err := c.Get(ctx, cid)
	if err != nil {
		return view.Computer{}, err
	}
	return p.Info(ctx)
}

func (c playedComputers) Fork(ctx context.Context, _ contract.Actor, _, cid contract.CID, name, _ string) (view.Computer, error) {
	return c.Create(ctx, cid, name)
}

func (playedComputers) Asleep(context.Context, contract.CID) (view.Computer, bool, error) {
	return view.Computer{}, false, nil
}

func (playedComputers) Wake(context.Context, contract.CID, view.WakeRequest) error { return nil }

func (playedComputers) Remove(context.Context, contract.CID, string) (view.Computer, error) {
	return view.Computer{}, fault.New("", fault.Missing, "", errors.New("none is removed here"))
}

func (playedComputers) PutBack(context.Context, contract.CID) (view.Computer, error) {
	return view.Computer{}, fault.New("", fault.Missing, "", errors.New("none is removed here"))
}

func (playedComputers) Removed(context.Context) ([]view.Computer, error) { return nil, nil }

func (playedComputers) Recover(context.Context, contract.CID) error { return nil }

func (playedComputers) Export(context.Context, contract.CID, io.Writer) error { return nil }

func (c playedComputers) History(ctx context.Context, cid contract.CID) (control.History, error) {
	return c.Get(ctx, cid)
}

func (c playedComputers) Get(_ context.Context, cid contract.CID) (control.Computer, error) {
	for _, p := range c {
		if p.cid == cid {
			return p, nil
		}
	}
	return nil, fault.New("", fault.NotFound, "", nil)
}

func newWeb(t *testing.T) *web {
	t.Helper()
	dir, quiet := t.TempDir(), slog.New(slog.DiscardHandler)
	w := &web{given: map[string]*http.Cookie{}, files: &countedFiles{FS: console.Files(), got: map[string]int{}}, mine: &played{cid: contract.NewCID(), header: http.Header{}}, other: &played{cid: contract.NewCID(), header: http.Header{}}}
	ids, err := identity.Open(t.Context(), filepath.Join(dir, "control.sqlite"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := bus.Open(t.Context(), bus.Options{Dir: filepath.Join(dir, "nats"), KeysDir: filepath.Join(dir, "keys"), Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.port = ln.Addr().(*net.TCPAddr).Port
	w.console = fmt.Sprintf("http://console.choir.localhost:%d", w.port)
	srv, err := control.New(control.Options{
		Identity: ids, Computers: playedComputers{w.mine, w.other}, System: struct{ control.System }{}, Bus: b, Console: w.files,
		Host: "choir.localhost", Port: w.port, Version: "test", Logger: quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	ctx, stop := context.WithCancel(context.Background())
	go func() { served <- srv.Serve(ctx, ln) }()
	t.Cleanup(func() {
		stop()
		for _, err := range []error{<-served, srv.Close(), b.Close(), ids.Close()} {
			if err != nil {
				t.Error(err)
			}
		}
	})
	w.client = &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, ln.Addr().String())
		}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       20 * time.Second,
	}
	owner, err := ids.Owner(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if w.token, err = ids.MachineToken(t.Context(), filepath.Join(dir, "token"), ""); err != nil {
		t.Fatal(err)
	}
	link, _, err := ids.NewLink(t.Context(), owner.ID)
	if err != nil {
		t.Fatal(err)
	}
	h := origin(w.console, "same-origin", "cors", "empty")
	h.Set("Content-Type", "application/json")
	signedIn := w.ask(t, "POST", w.console+"/api/claim", fmt.Sprintf(`{"token":%q}`, link), h)
	w.consoleCookie, w.given[w.console] = signedIn.cookie(t), signedIn.Cookies()[0]
	var ticket string
	w.desktop, ticket = w.ticket(t, string(w.mine.cid))
	h = origin(w.console, "same-site", "navigate", "iframe")
	h.Set("Content-Type", "application/x-www-form-urlencoded")
	entered := w.ask(t, "POST", w.desktop+"/_choir/enter", "ticket="+ticket, h)
	w.desktopCookie, w.given[w.desktop] = entered.cookie(t), entered.Cookies()[0]
	return w
}

// ticket asks for a ticket as the console's page does.
func (w *web) ticket(t *testing.T, cid string) (desktop, ticket string) {
	t.Helper()
	h := origin(w.console, "same-origin", "cors", "empty")
	h.Set("Cookie", w.consoleCookie)
	res := w.ask(t, "POST", w.console+"/api/computers/"+cid+"/ticket", "", h)
	var out struct{ Action, Ticket string }
	if err := json.Unmarshal(res.body, &out); err != nil || out.Ticket == "" {
		t.Fatalf("no ticket: %s", res.told())
	}
	return strings.TrimSuffix(out.Action, "/_choir/enter"), out.Ticket
}

// own sends a request as the desktop's own page does.
func (w *web) own(t *testing.T, path string) answer {
	t.Helper()
	h := origin("", "same-origin", "no-cors", "script")
	h.Set("Cookie", w.desktopCookie)
	return w.ask(t, "GET", w.desktop+path, "", h)
}

// traced is own with a function that is called for informational answers.
func (w *web) traced(t *testing.T, url string, got1xx func(int, textproto.MIMEHeader) error) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: got1xx}), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = origin("", "same-origin", "no-cors", "script")
	req.Header.Set("Cookie", w.desktopCookie)
	return w.do(t, req)
}

type answer struct {
	*http.Response
	body []byte
}

func (a answer) told() string { return clip(fmt.Sprintf("%d %s", a.StatusCode, a.body)) }

func (a answer) cookie(t *testing.T) string {
	t.Helper()
	for _, c := range a.Cookies() {
		return c.Name + "=" + c.Value
	}
	t.Fatalf("no cookie was set: %s", a.told())
	return ""
}

func (w *web) ask(t *testing.T, method, url, body string, h http.Header) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = h
	return w.do(t, req)
}

func (w *web) do(t *testing.T, req *http.Request) answer {
	t.Helper()
	res, err := w.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	return answer{res, b}
}
