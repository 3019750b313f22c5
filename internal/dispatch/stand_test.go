package dispatch_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/associate"
	"choir.dev/choiros/internal/associate/tools"
	"choir.dev/choiros/internal/blob"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/director"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/document"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/ledger"
)

// The stand-ins of these tests: boxes are HTTP servers in this process that
// serve the same handlers as a guest, the workspace is plain folders, the model
// is scripted at the wire. The log, the bus and the blobs are real.

// boxes stands in for a driver.
type boxes struct {
	t      *testing.T
	mu     sync.Mutex
	open   map[string]*box
	kinds  []contract.BoxKind
	break_ func(dispatch.BoxRequest) error
	evil   func(host *http.Client) http.Handler // instead of our Associate
	liar   http.Handler                         // instead of our Director
}

type box struct {
	id   string
	srv  *httptest.Server
	host *httptest.Server
	once sync.Once
	done chan struct{}
	end  func()

	mu     sync.Mutex
	latest context.Context // of the newest request to the host
}

func (b *box) ID() string                   { return b.id }
func (b *box) Transport() http.RoundTripper { return rewrite{b.srv.URL, b.srv.Client().Transport} }
func (b *box) Done() <-chan struct{}        { return b.done }
func (b *box) Err() error                   { return errors.New("killed") }
func (b *box) Kill() error {
	b.once.Do(func() {
		b.srv.CloseClientConnections()
		b.host.CloseClientConnections()
		b.end()
		close(b.done)
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

func (bs *boxes) Open(_ context.Context, r dispatch.BoxRequest) (dispatch.Box, error) {
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
	var tmp string
	switch r.Kind {
	case contract.BoxDirector:
		inside = director.Handler(director.Options{Client: client, Backoff: fast})
		if bs.liar != nil {
			inside = bs.liar
		}
	case contract.BoxAssociate:
		if bs.evil != nil {
			inside = bs.evil(client)
			break
		}
		inside = associate.Handler(associate.Options{Client: client, Backoff: fast})
	case contract.BoxTask:
		inside = must(tools.New(tools.Options{Root: r.Overlay.(*overlay).dir}))
	case contract.BoxVerify:
		tmp = must(os.MkdirTemp("", "verify"))
		copyTree(filepath.Join(r.Overlay.(*overlay).ws.dir, "commits", r.Commit), tmp)
		inside = must(tools.New(tools.Options{Root: tmp, Base: filepath.Join(r.Overlay.(*overlay).ws.dir, "commits", r.Overlay.Base())}))
	}
	b.srv = httptest.NewServer(inside)
	bs.mu.Lock()
	bs.open[b.id] = b
	bs.kinds = append(bs.kinds, r.Kind)
	bs.mu.Unlock()
	b.end = func() {
		if r.Kind == contract.BoxTask {
			b.srv.Close() // returns when its calls, and so their processes, have ended
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

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// folders stands in for the workspace.
type folders struct {
	t                                     *testing.T
	dir                                   string
	mu                                    sync.Mutex
	n                                     int
	race                                  func() // called when a publish begins
	shown, inverted, dropped, checkpoints int
	verified                              []contract.VerificationStatus
}

type overlay struct {
	ws   *folders
	dir  string
	base string
}

func (o *overlay) Base() string { return o.base }

func (w *folders) live() string { return filepath.Join(w.dir, "live") }

func (w *folders) commit(from string) string {
	w.n++
	id := fmt.Sprintf("%040x", w.n)
	copyTree(from, filepath.Join(w.dir, "commits", id))
	return id
}

func (w *folders) Checkpoint(context.Context, dispatch.CheckpointRequest) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checkpoints++
	return w.commit(w.live()), nil
}

func (w *folders) path(t dispatch.TaskRef) string {
	return filepath.Join(w.dir, "boxes", fmt.Sprintf("%s-%d", t.Task, t.Attempt))
}

func (w *folders) Begin(_ context.Context, t dispatch.TaskRef, base string) (dispatch.Overlay, error) {
	o := &overlay{ws: w, dir: w.path(t), base: base}
	copyTree(filepath.Join(w.dir, "commits", base), o.dir)
	return o, nil
}

func (w *folders) Reopen(_ context.Context, t dispatch.TaskRef, base string) (dispatch.Overlay, error) {
	if _, err := os.Stat(w.path(t)); err != nil {
		return nil, fault.New("reopen", fault.NotFound, "", err)
	}
	return &overlay{ws: w, dir: w.path(t), base: base}, nil
}

func (w *folders) Settle(context.Context, dispatch.Overlay) error { return nil }

func (w *folders) PublishLive(_ context.Context, o dispatch.Overlay) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ov := o.(*overlay)
	n := 0
	for p, c := range changes(filepath.Join(w.dir, "commits", ov.base), ov.dir) {
		if strings.HasPrefix(p, "choiros/") && c != contract.ChangeDeleted && !bytes.Equal(slurp(w.live(), p), slurp(ov.dir, p)) {
			put(w.live(), p, slurp(ov.dir, p))
			n++
		}
	}
	w.shown += n
	return n, nil
}

func (w *folders) Merge(_ context.Context, o dispatch.Overlay) (dispatch.Merged, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.merge(o.(*overlay)), nil
}

func (w *folders) merge(ov *overlay) dispatch.Merged {
	base := filepath.Join(w.dir, "commits", ov.base)
	merged := must(os.MkdirTemp(w.dir, "merge"))
	copyTree(w.live(), merged)
	var m dispatch.Merged
	for p, op := range changes(base, ov.dir) {
		m.Changes = append(m.Changes, contract.Change{Path: p, Op: op})
		if op == contract.ChangeDeleted {
			os.Remove(filepath.Join(merged, p))
		} else {
			put(merged, p, slurp(ov.dir, p))
		}
	}
	sort.Slice(m.Changes, func(i, j int) bool { return m.Changes[i].Path < m.Changes[j].Path })
	m.Commit = w.commit(merged)
	m.Tree = digest(merged)
	return m
}

func (w *folders) Publish(_ context.Context, o dispatch.Overlay, m dispatch.Merged, v contract.VerificationStatus, force bool) (dispatch.Published, error) {
	if w.race != nil {
		w.race()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.merge(o.(*overlay))
	if now.Tree != m.Tree && !force {
		return dispatch.Published{}, fault.New("publish", fault.Conflict, "", errors.New("the live tree moved"))
	}
	os.RemoveAll(w.live())
	copyTree(filepath.Join(w.dir, "commits", now.Commit), w.live())
	w.verified = append(w.verified, v)
	return dispatch.Published{Checkpoint: now.Commit, Tree: now.Tree}, nil
}

func (w *folders) Invert(_ context.Context, o dispatch.Overlay) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inverted++
	ov := o.(*overlay)
	for p := range changes(filepath.Join(w.dir, "commits", ov.base), ov.dir) {
		if strings.HasPrefix(p, "choiros/") {
			put(w.live(), p, slurp(filepath.Join(w.dir, "commits", ov.base), p))
		}
	}
	return nil
}

func (w *folders) Drop(_ context.Context, o dispatch.Overlay, _ bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dropped++
	return os.RemoveAll(o.(*overlay).dir)
}

func (w *folders) Git(_ context.Context, r dispatch.GitRequest) (dispatch.GitReply, error) {
	return dispatch.GitReply{Output: "did " + string(r.Step.Op), Checkpoint: fmt.Sprintf("%040x", 77)}, nil
}

func (w *folders) ReadFile(_ context.Context, p string, _ int) ([]byte, error) {
	return os.ReadFile(filepath.Join(w.live(), p))
}
func (w *folders) Folders(context.Context) ([]string, error) { return []string{"workspace/"}, nil }
func (w *folders) Artifact(_ context.Context, c, p string) (io.ReadCloser, error) {
	return os.Open(filepath.Join(w.dir, "commits", c, p))
}

func copyTree(from, to string) {
	must(0, os.MkdirAll(to, 0o755))
	must(0, filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(from, p)
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		}
		return os.WriteFile(filepath.Join(to, rel), must(os.ReadFile(p)), 0o755)
	}))
}

func files(dir string) map[string]string {
	out := map[string]string{}
	must(0, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dir, p)
			out[rel] = string(must(os.ReadFile(p)))
		}
		return err
	}))
	return out
}

func digest(dir string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(fmt.Sprint(files(dir)))))
}

func changes(base, now string) map[string]contract.ChangeOp {
	a, b, out := files(base), files(now), map[string]contract.ChangeOp{}
	for p, c := range b {
		if old, ok := a[p]; !ok {
			out[p] = contract.ChangeAdded
		} else if old != c {
			out[p] = contract.ChangeModified
		}
	}
	for p := range a {
		if _, ok := b[p]; !ok {
			out[p] = contract.ChangeDeleted
		}
	}
	return out
}

func slurp(dir, p string) []byte { b, _ := os.ReadFile(filepath.Join(dir, p)); return b }

func put(dir, p string, b []byte) {
	must(0, os.MkdirAll(filepath.Dir(filepath.Join(dir, p)), 0o755))
	must(0, os.WriteFile(filepath.Join(dir, p), b, 0o755))
}

// papers stands in for the log that documents are kept in; what a run's
// document says is rendered as always.
type papers struct {
	mu   sync.Mutex
	docs map[string]dispatch.Document
}

func (d *papers) StartRun(_ context.Context, id, _, title, _ string, v document.RunView) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.docs[id]; !ok {
		d.docs[id] = dispatch.Document{Title: title, Body: document.RenderRun(title, v), Revision: 1}
	}
	return nil
}

func (d *papers) Get(_ context.Context, id string) (dispatch.Document, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	doc, ok := d.docs[id]
	if !ok {
		return doc, fault.New("get", fault.NotFound, "", errors.New("no document"))
	}
	return doc, nil
}

func (d *papers) UpdateRun(_ context.Context, id, _ string, v document.RunView) error {
	d.edit(id, func(body string) string { return document.UpdateRun(body, v) })
	return nil
}

// edit changes a document as somebody would who is never disturbed.
func (d *papers) edit(id string, f func(string) string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	doc := d.docs[id]
	doc.Revision, doc.Body = doc.Revision+1, f(doc.Body)
	d.docs[id] = doc
}

// script is a model at the wire: it answers by role and by how many answers
// the request already holds.
type script struct {
	mu        sync.Mutex
	director  func(n int, req contract.TurnRequest) []contract.Part
	associate func(n int, req contract.TurnRequest) []contract.Part
	seen      []contract.TurnRequest
	forgotten sync.Map
	gate      func(role contract.Role, n int) // called before an answer
}

func (s *script) Forget(run string) { s.forgotten.Store(run, true) }
func (s *script) Resolve(context.Context, contract.Role, string) (string, string, error) {
	return "script", "one", nil
}

func (s *script) Handler(scope dispatch.ModelScope) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b := must(io.ReadAll(r.Body))
		req, err := contract.DecodeTurnRequest(b)
		if err != nil {
			http.Error(w, err.Error(), 400)
			return
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
			case <-r.Context().Done(): // as a gateway does, whatever its model is at
			}
		}
		if r.Context().Err() != nil {
			return
		}
		s.mu.Lock()
		s.seen = append(s.seen, req)
		f := s.director
		if scope.Role == contract.RoleAssociate {
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

// steps makes an Associate that makes one call a turn, then finishes ok.
func steps(calls ...contract.Part) func(int, contract.TurnRequest) []contract.Part {
	return func(n int, _ contract.TurnRequest) []contract.Part {
		if n < len(calls) {
			return parts(calls[n])
		}
		return parts(use("fin", "finish", m{"status": "ok", "summary": "Did it."}))
	}
}

// testOfA is the project's test: that its script can be parsed.
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
	blobs *blob.Disk
	boxes *boxes
	ws    *folders
	docs  *papers
	model *script
	d     *dispatch.Dispatcher
	sent  chan string
	wrap  func(dispatch.Log) dispatch.Log
	tune  func(*dispatch.Options)
}

func newHouse(t *testing.T) *house {
	t.Helper()
	h := &house{t: t, cid: contract.NewCID(), dir: t.TempDir(), model: &script{}, docs: &papers{docs: map[string]dispatch.Document{}}, sent: make(chan string, 1000)}
	logger := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	b, err := bus.Open(t.Context(), bus.Options{Dir: filepath.Join(h.dir, "nats"), Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	h.bus = b
	t.Cleanup(func() { b.Close() })
	h.blobs = must(blob.OpenDisk(filepath.Join(h.dir, "blobs"), blob.Quota{}))
	h.ws = &folders{t: t, dir: filepath.Join(h.dir, "ws")}
	put(h.ws.live(), "workspace/a.sh", []byte("echo one\n"))
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
	h.log, err = ledger.Open(h.t.Context(), h.bus.JetStream(), ledger.Options{CID: h.cid, Blobs: h.blobs})
	if err != nil {
		h.t.Fatal(err)
	}
	var l dispatch.Log = h.log
	if h.wrap != nil {
		l = h.wrap(l)
	}
	o := dispatch.Options{CID: h.cid, Log: l, Blobs: h.blobs, Boxes: h.boxes, Workspace: h.ws, Documents: h.docs, Models: h.model,
		Egress: func(dispatch.EgressScope, contract.EgressSpec, func(string, bool)) (http.Handler, error) {
			return http.NotFoundHandler(), nil
		},
		Logger: slog.New(slog.NewTextHandler(h.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
		Publish: func(_ context.Context, subject string, data []byte) error {
			h.sent <- subject + " " + string(data)
			return nil
		},
		Turns: 12,
		Times: dispatch.Times{Beat: 50 * time.Millisecond, Silence: 5 * time.Second, CleanUp: 2 * time.Second}}
	if h.tune != nil {
		h.tune(&o)
	}
	h.d, err = dispatch.New(o)
	if err != nil {
		h.t.Fatal(err)
	}
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
	id, seq, err := h.d.Submit(h.t.Context(), dispatch.Prompt{User: "u", Text: text})
	if err != nil || seq == 0 {
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
