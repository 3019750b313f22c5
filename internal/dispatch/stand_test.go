package dispatch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/associate"
	"choir.dev/choiros/internal/blob"
	"choir.dev/choiros/internal/blob/disk"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/director"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/ledger"
	story "choir.dev/choiros/internal/run"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/tool/boxtools"
	"choir.dev/choiros/internal/turnlines"
)

// These are the stand-ins of these tests. Boxes are HTTP servers in this process that serve the
// same handlers as a guest, the workspace is plain folders, and the model is scripted at the wire.
// The log, the bus and the blobs are real.

// boxes stands in for a driver.
type boxes struct {
	t      *testing.T
	mu     sync.Mutex
	open   map[string]*box
	kinds  []contract.BoxKind
	break_ func(ports.BoxRequest) error
	evil   func(host *http.Client) http.Handler // replaces our Associate
	liar   http.Handler                         // replaces our Director
	rogue  func(host *http.Client) http.Handler // the same, with its way to the host
	dies   string                               // a task's box is killed when this tool is called
	checks func(tool string) (dies bool)        // the same for the box of a check
}

type box struct {
	id   string
	srv  *httptest.Server
	host *httptest.Server
	once sync.Once
	done chan struct{}
	end  func()

	mu     sync.Mutex
	latest context.Context // the context of the newest request to the host
}

func (b *box) ID() string                   { return b.id }
func (b *box) Transport() http.RoundTripper { return rewrite{b.srv.URL, b.srv.Client().Transport} }
func (b *box) Done() <-chan struct{}        { return b.done }
func (b *box) Err() error                   { return errors.New("killed") }
func (b *box) Run(context.Context, ports.Process) (int, error) {
	return 0, errors.New("programs run in real boxes")
}
func (b *box) Kill() error {
	b.once.Do(func() {
		// A call that arrives while the box is being killed ends with it.
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			b.end()
		}()
		for {
			b.srv.CloseClientConnections()
			b.host.CloseClientConnections()
			select {
			case <-ended:
				close(b.done)
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	return nil
}

// rewrite sends requests for http://box and http://host to a real address.
type rewrite struct {
	base string
	rt   http.RoundTripper
}

func (r rewrite) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.URL.Host = strings.TrimPrefix(r.base, "http://")
	return r.rt.RoundTrip(req)
}

func (bs *boxes) Open(_ context.Context, r ports.BoxRequest) (ports.Box, error) {
	if bs.break_ != nil {
		if err := bs.break_(r); err != nil {
			return nil, err
		}
	}
	host := r.Handler
	if host == nil {
		host = http.NotFoundHandler()
	}
	b := &box{id: r.ID, done: make(chan struct{})}
	b.host = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		b.mu.Lock()
		b.latest = req.Context()
		b.mu.Unlock()
		host.ServeHTTP(w, req)
	}))
	client := &http.Client{Transport: rewrite{b.host.URL, b.host.Client().Transport}}
	fast := func(int) time.Duration { return time.Millisecond }
	var inside http.Handler
	var tools *boxtools.Box
	var tmp string
	switch r.Kind {
	case contract.BoxDirector:
		inside = director.Handler(director.Options{Client: client, Backoff: fast})
		if bs.liar != nil {
			inside = bs.liar
		}
		if bs.rogue != nil {
			inside = bs.rogue(client)
		}
	case contract.BoxAssociate:
		if bs.evil != nil {
			inside = bs.evil(client)
			break
		}
		inside = associate.Handler(associate.Options{Client: client, Backoff: fast})
	case contract.BoxTask:
		tools = must(boxtools.New(boxtools.Options{Root: r.Overlay.(*overlay).dir}))
		inside = tools
		if bs.dies != "" {
			inside = b.dying(inside, func(tool string) bool { return tool == bs.dies })
		}
	case contract.BoxVerify:
		if r.Commit == "" || r.Overlay.Base() == "" {
			return nil, errors.New("no commit is named")
		}
		tmp = must(os.MkdirTemp("", "verify"))
		copyTree(filepath.Join(r.Overlay.(*overlay).ws.dir, "commits", r.Commit), tmp)
		inside = must(boxtools.New(boxtools.Options{Root: tmp, Base: filepath.Join(r.Overlay.(*overlay).ws.dir, "commits", r.Overlay.Base())}))
	}
	if bs.checks != nil && r.Kind == contract.BoxVerify {
		inside = b.dying(inside, bs.checks)
	}
	b.srv = httptest.NewServer(inside)
	bs.mu.Lock()
	bs.open[b.id] = b
	bs.kinds = append(bs.kinds, r.Kind)
	bs.mu.Unlock()
	b.end = func() {
		if r.Kind == contract.BoxTask {
			b.srv.Close()     // this returns when the calls, and so their processes, have ended
			_ = tools.Close() // and this when those in the background have
		} else {
			go b.srv.Close()
		}
		go b.host.Close()
		bs.mu.Lock()
		delete(bs.open, b.id)
		bs.mu.Unlock()
		if tmp != "" {
			os.RemoveAll(tmp)
		}
	}
	return b, nil
}

// dying kills the box when a tool is called for which dies returns true.
func (b *box) dying(h http.Handler, dies func(tool string) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if dies(req.URL.Path[strings.LastIndex(req.URL.Path, "/")+1:]) {
			go b.Kill()
			panic(http.ErrAbortHandler)
		}
		h.ServeHTTP(w, req)
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// script is a model at the wire. It answers by the role, and by how many answers the request
// already holds.
type script struct {
	mu        sync.Mutex
	director  func(n int, req contract.TurnRequest) []contract.Part
	associate func(n int, req contract.TurnRequest) []contract.Part
	seen      []contract.TurnRequest
	forgotten sync.Map
	gate      func(role contract.ActorKind, n int) // called before each answer
	window    int                                  // tokens that the model reads at once
	waits     func(ports.ModelScope)               // called with each request, before it is answered
	judge     func(ask string) string              // answers whether an excerpt supports a claim; nil: nobody does
}

func (s *script) Ask(_ context.Context, _ ports.ModelScope, req contract.TurnRequest) (contract.Turn, error) {
	if s.judge == nil {
		return contract.Turn{}, &contract.TurnError{Code: "unavailable", Message: "nobody judges here"}
	}
	return contract.Turn{Provider: "script", Model: "judge", Message: contract.Message{Role: contract.MessageAssistant, Parts: []contract.Part{{Text: s.judge(req.Messages[0].Parts[0].Text)}}}, Stop: contract.StopEnd}, nil
}

func (s *script) Forget(run string)                                      { s.forgotten.Store(run, true) }
func (s *script) Window(context.Context, contract.ActorKind, string) int { return s.window }

func (s *script) Resolve(context.Context, contract.ActorKind, string) (string, string, error) {
	return "script", "one", nil
}

func (s *script) Usable(_ context.Context, m ports.ModelScope) (string, string, error) {
	if m.Model == "without-price" || m.Budget.WallS == 0 {
		return "", "", fault.New("script.Usable", fault.Missing, "", fmt.Errorf("%s can't be used under %+v", m.Model, m.Budget))
	}
	return "script", "one", nil
}

// Inward answers with whose token it was made for.
func (s *script) Inward(_ ports.ModelScope, g ports.ModelGrant) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := g.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "the model answers "+r.URL.Path+" for "+g.Token)
	})
}

func (s *script) Handler(scope ports.ModelScope) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b := must(io.ReadAll(r.Body))
		req, err := turnlines.Decode(b)
		if err != nil {
			http.Error(w, err.Error(), 400)
			return
		}
		if s.waits != nil {
			s.waits(scope)
		}
		n := 0
		for _, m := range req.Messages {
			if m.Role == contract.MessageAssistant {
				n++
			}
		}
		if s.gate != nil {
			passed := make(chan struct{})
			go func() {
				defer close(passed)
				s.gate(scope.Role, n)
			}()
			select {
			case <-passed:
			case <-r.Context().Done(): // a gateway ends a request too when its context ends, whatever the model is doing
			}
		}
		if r.Context().Err() != nil {
			return
		}
		s.mu.Lock()
		s.seen = append(s.seen, req)
		f := s.director
		if scope.Role == contract.KindAssociate {
			f = s.associate
		}
		s.mu.Unlock()
		_ = json.NewEncoder(w).Encode(contract.TurnChunk{Delta: "word by word"})
		_ = json.NewEncoder(w).Encode(contract.TurnChunk{Turn: &contract.Turn{Provider: "script", Model: "one", Stop: contract.StopToolUse,
			Message: contract.Message{Role: contract.MessageAssistant, Parts: f(n, req)}, Usage: contract.Usage{TokensIn: 3, TokensOut: 2}}})
	})
}

func use(id, name string, args any) contract.Part {
	return contract.Part{Call: &contract.ToolCall{ID: id, Name: name, Args: must(json.Marshal(args))}}
}

func parts(p ...contract.Part) []contract.Part { return p }

type m map[string]any

// plan makes a Director that delegates once and then reports done.
func plan(tasks ...m) func(int, contract.TurnRequest) []contract.Part {
	return func(n int, _ contract.TurnRequest) []contract.Part {
		if n == 0 {
			return parts(use("d0", "delegate", m{"tasks": tasks}))
		}
		return parts(use("d1", "report", m{"status": "done", "summary": "It is done."}))
	}
}

// steps makes an Associate that makes one call in each turn and then finishes with ok.
func steps(calls ...contract.Part) func(int, contract.TurnRequest) []contract.Part {
	return func(n int, _ contract.TurnRequest) []contract.Part {
		if n < len(calls) {
			return parts(calls[n])
		}
		return parts(use("fin", "finish", m{"status": "ok", "summary": "Did it."}))
	}
}

// testOfA is the project's test. It tests that the project's script can be parsed.
const testOfA = `import subprocess, unittest

class A(unittest.TestCase):
    def test_it_parses(self):
        self.assertEqual(subprocess.run(["bash", "-n", "a.sh"]).returncode, 0)
`

type house struct {
	t     *testing.T
	cid   contract.CID
	dir   string
	bus   *bus.Bus
	log   *ledger.Log
	blobs *disk.Store
	boxes *boxes
	ws    *folders
	docs  *keptDocuments
	model *script
	d     *dispatch.Dispatcher
	sent  chan string
	wrap  func(ports.Log) ports.Log
	// looks is the user who looks at work before it is published; nil: nobody does.
	looks func(d *dispatch.Dispatcher, l *ledger.Log, run string, r contract.ReviewRequested) contract.ReviewAnswered
	tune  func(*dispatch.Options)
	// ahead is by how much the log's clock goes before this process's.
	ahead atomic.Int64
}

func newHouse(t *testing.T) *house {
	t.Helper()
	h := &house{t: t, cid: contract.NewCID(), dir: t.TempDir(), model: &script{}, docs: &keptDocuments{docs: map[string]state.Revision{}}, sent: make(chan string, 1000)}
	logger := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	b, err := bus.Open(t.Context(), bus.Options{Dir: filepath.Join(h.dir, "nats"), Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	h.bus = b
	t.Cleanup(func() { b.Close() })
	h.blobs = must(disk.Open(filepath.Join(h.dir, "blobs"), blob.Quota{}))
	h.ws = &folders{t: t, dir: filepath.Join(h.dir, "ws")}
	put(h.ws.live(), "workspace/a.sh", []byte("echo one\n"))
	put(h.ws.live(), "requirements.txt", nil) // this makes all of it one project
	put(h.ws.live(), "workspace/requirements.txt", nil)
	put(h.ws.live(), "workspace/test_a.py", []byte(testOfA))
	put(h.ws.live(), "choiros/x.css", []byte("red\n"))
	h.boxes = &boxes{t: t, open: map[string]*box{}}
	h.wake()
	t.Cleanup(func() { h.sleep() })
	return h
}

// wake opens the log and a dispatcher, as a process that starts would.
func (h *house) wake() {
	h.t.Helper()
	var err error
	h.log, err = ledger.Open(h.t.Context(), h.bus.JetStream(), ledger.Options{CID: h.cid, Blobs: h.blobs, Now: h.logsClock})
	if err != nil {
		h.t.Fatal(err)
	}
	if h.d, err = dispatch.New(h.options()); err != nil {
		h.t.Fatal(err)
	}
	if h.looks != nil {
		h.looking(h.d, h.log)
	}
}

// logsClock stamps the log's events, so that time passes in the log without passing in the test.
func (h *house) logsClock() time.Time { return time.Now().Add(time.Duration(h.ahead.Load())) }

func (h *house) options() dispatch.Options {
	var l ports.Log = h.log
	if h.wrap != nil {
		l = h.wrap(l)
	}
	o := dispatch.Options{CID: h.cid, Log: l, Past: scanned{l}, Blobs: h.blobs, Boxes: h.boxes, Workspace: h.ws, Documents: h.docs, Models: h.model,
		Egress: func(ports.EgressScope, contract.EgressSpec, func(string, bool)) (http.Handler, error) {
			return http.NotFoundHandler(), nil
		},
		Logger: slog.New(slog.NewTextHandler(h.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
		Publish: func(_ context.Context, subject string, data []byte) error {
			h.sent <- subject + " " + string(data)
			return nil
		},
		Turns: 12, Repairs: 3,
		Times: ports.Times{Heartbeat: 50 * time.Millisecond, Silence: 5 * time.Second, CleanUp: 2 * time.Second}}
	if h.tune != nil {
		h.tune(&o)
	}
	return o
}

// scanned answers questions about past events by reading the whole log.
type scanned struct{ ports.Log }

func (s scanned) all(ctx context.Context, each func(contract.Event)) error {
	for after, last := uint64(0), s.Last(); after < last; {
		events, err := s.Read(ctx, after, 500)
		if err != nil {
			return err
		}
		for _, e := range events {
			after = e.Sequence
			each(e)
		}
	}
	return nil
}

func (s scanned) Recent(ctx context.Context, most int) ([]state.Run, error) {
	prompts, ended := map[string]string{}, []state.Run{}
	var bad error
	err := s.all(ctx, func(e contract.Event) {
		p, err := s.Payload(ctx, e)
		switch p := p.(type) {
		case *contract.PromptSubmitted:
			prompts[e.Run] = p.Text
		case *contract.RunReported:
			ended = append([]state.Run{{ID: e.Run, Prompt: prompts[e.Run], Head: story.Head{Status: p.Status, Verified: p.Verified, Summary: p.Summary, Ended: e.Time}}}, ended...)
		}
		if (e.Type == "prompt.submitted" || e.Type == "run.reported") && err != nil {
			bad = err
		}
	})
	return ended[:min(len(ended), most)], errors.Join(err, bad)
}

func (s scanned) Unfinished(ctx context.Context) (open []string, err error) {
	err = s.all(ctx, func(e contract.Event) {
		switch e.Type {
		case "prompt.submitted":
			open = append(open, e.Run)
		case "run.reported":
			open = slices.DeleteFunc(open, func(run string) bool { return run == e.Run })
		}
	})
	return open, err
}

func (s scanned) RunEvents(ctx context.Context, run string, after uint64) (events []contract.Event, next uint64, more bool, err error) {
	next = after
	err = s.all(ctx, func(e contract.Event) {
		if e.Sequence > after {
			next = e.Sequence
			if e.Run == run {
				events = append(events, e)
			}
		}
	})
	return events, next, false, err
}

func (h *house) sleep() {
	if h.d != nil {
		h.d.Close()
		h.log.Close()
		h.d = nil
	}
}

func (h *house) submit(text string) string {
	h.t.Helper()
	id, seq, err := h.d.Submit(h.t.Context(), dispatch.Prompt{By: contract.Person("u"), Text: text})
	if err != nil || seq == 0 {
		h.t.Fatalf("submit: %v", err)
	}
	return id
}

// submitWithin is submit of a prompt with a budget.
func (h *house) submitWithin(b contract.Budget) string {
	h.t.Helper()
	id, _, err := h.d.Submit(h.t.Context(), dispatch.Prompt{By: contract.Person("u"), Text: "go", Budget: b})
	if err != nil {
		h.t.Fatalf("submit: %v", err)
	}
	return id
}

// told waits for an event of the run that match accepts.
func (h *house) told(run, eventType string, match func(contract.Payload) bool) contract.Payload {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), 40*time.Second)
	defer cancel()
	for e, err := range h.log.Follow(ctx, 0) {
		if err != nil {
			h.t.Fatalf("waiting for %s: %v\n%s", eventType, err, h.story())
		}
		if e.Run == run && e.Type == eventType {
			if p := must(h.log.Payload(ctx, e)); match == nil || match(p) {
				return p
			}
		}
	}
	h.t.Fatalf("the log ended before %s", eventType)
	return nil
}

func (h *house) report(run string) *contract.RunReported {
	h.t.Helper()
	return h.told(run, "run.reported", nil).(*contract.RunReported)
}

func (h *house) events(eventType string) []contract.Payload {
	h.t.Helper()
	var out []contract.Payload
	for _, e := range must(h.log.Read(h.t.Context(), 0, 1000)) {
		if e.Type == eventType {
			out = append(out, must(h.log.Payload(h.t.Context(), e)))
		}
	}
	return out
}

func (h *house) results() []contract.AssociateResult {
	var out []contract.AssociateResult
	for _, p := range h.events("task.finished") {
		out = append(out, p.(*contract.TaskFinished).Result)
	}
	return out
}

func (h *house) story() string {
	var b strings.Builder
	es, _ := h.log.Read(context.Background(), 0, 1000)
	for _, e := range es {
		fmt.Fprintf(&b, "%d %s %.200s\n", e.Sequence, e.Type, e.Data)
	}
	return b.String()
}

// quiet waits until nothing is under way and no box is left.
func (h *house) quiet() {
	h.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for h.d.Busy() {
		if time.Now().After(deadline) {
			h.t.Fatal("a run stays under way")
		}
		time.Sleep(5 * time.Millisecond)
	}
	h.boxes.mu.Lock()
	defer h.boxes.mu.Unlock()
	if len(h.boxes.open) > 0 {
		h.t.Errorf("%d boxes are left", len(h.boxes.open))
	}
	left, err := os.ReadDir(filepath.Join(h.ws.dir, "boxes"))
	if err == nil && len(left) > 0 {
		h.t.Errorf("%d overlays are left", len(left))
	}
}

// textOf is all text of a request.
func textOf(req contract.TurnRequest) string {
	var b strings.Builder
	for _, m := range req.Messages {
		for _, p := range m.Parts {
			b.WriteString(p.Text + "\n")
		}
	}
	return b.String()
}
