package workspace_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/local"
	"choir.dev/choiros/internal/workspace"
	"choir.dev/choiros/internal/workspace/keeper/engine"
	"choir.dev/choiros/internal/workspace/keeper/httpapi"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// log keeps a computer's events in memory by the appender's rules: every event is valid, an id is
// stored once, and the same id is never stored with other content.
type log struct {
	mu     sync.Mutex
	events []contract.Event
	byID   map[string]contract.Event
	fail   func(contract.Draft) error
}

func (l *log) AppendEach(ctx context.Context, drafts ...contract.Draft) ([]contract.Event, error) {
	return l.Append(ctx, drafts...)
}

func (l *log) Append(_ context.Context, drafts ...contract.Draft) ([]contract.Event, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []contract.Event
	for _, d := range drafts {
		if l.fail != nil {
			if err := l.fail(d); err != nil {
				return out, err
			}
		}
		if d.ID == "" {
			d.ID = contract.NewID()
		}
		if d.Time.IsZero() {
			d.Time = time.Now()
		}
		data, err := contract.EncodeData(d.Type, d.Data)
		if err != nil {
			return out, err
		}
		e := contract.Event{
			SpecVersion: "1.0", ID: d.ID, Source: "/computers/" + string(cid) + "/" + string(d.Actor.Kind), Type: d.Type, Subject: d.Subject, Time: d.Time,
			DataContentType: "application/json", Data: data, Sequence: uint64(len(l.events) + 1), Epoch: 1, Computer: cid, Actor: d.Actor.Name(), User: d.Actor.Account(), Run: d.Run, Task: d.Task, Causation: d.Causation,
		}
		if err := e.Validate(); err != nil {
			return out, err
		}
		if old, ok := l.byID[e.Source+e.ID]; ok {
			if contract.Digest(old) != contract.Digest(e) {
				return out, errors.New("the id " + e.ID + " of " + e.Type + " is taken by other content")
			}
			out = append(out, old)
			continue
		}
		if l.byID == nil {
			l.byID = map[string]contract.Event{}
		}
		l.byID[e.Source+e.ID] = e
		l.events = append(l.events, e)
		out = append(out, e)
	}
	return out, nil
}

func (l *log) types() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var names []string
	for _, e := range l.events {
		names = append(names, e.Type)
	}
	return strings.Join(names, " ")
}

func (l *log) all() []contract.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

func (l *log) reset() { l.mu.Lock(); l.events = nil; l.mu.Unlock() }

// host is a workspace over a real engine behind real HTTP.
type host struct {
	*workspace.Workspace
	t       testing.TB
	dir     string
	log     *log
	engine  *engine.Engine
	server  *httptest.Server
	volumes *local.Volumes
	wrap    func(wire.Keeper) wire.Keeper // wraps the keeper's client, when set
	bound   int                           // how many kept trees there may be, when set
}

func newHost(t testing.TB) *host {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Fatal("these tests need git: install it with the system's package manager")
	}
	h := &host{t: t, dir: t.TempDir(), log: &log{}}
	for _, d := range []string{"workspace/workspace", "workspace/choiros", "workspace/artifacts/system", "snapshots", "boxes"} {
		if err := os.MkdirAll(filepath.Join(h.dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h.write("workspace/a", "a\n")
	h.write("choiros/app.tsx", "1\n")
	h.start()
	t.Cleanup(h.end)
	return h
}

func (h *host) start() {
	h.t.Helper()
	var err error
	h.engine, err = engine.Open(h.t.Context(), engine.Options{Root: filepath.Join(h.dir, "workspace"), Snapshots: filepath.Join(h.dir, "snapshots"), Uppers: filepath.Join(h.dir, "boxes")})
	if err != nil {
		h.t.Fatal(err)
	}
	h.server = httptest.NewServer(httpapi.Handler(h.engine))
	k := wire.NewClient(toServer{h.server}, nil)
	if h.wrap != nil {
		k = h.wrap(k)
	}
	if h.volumes, err = local.OpenVolumes(local.VolumesOptions{Dir: h.dir}); err != nil {
		h.t.Fatal(err)
	}
	h.Workspace, err = workspace.Open(h.t.Context(), workspace.Options{
		CID: cid, Keeper: k, Log: h.log, Volumes: h.volumes, Seq: func() uint64 { return 7 }, AutoInterval: -1, KeptTrees: h.bound,
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) end() {
	if h.Workspace != nil {
		if err := h.Workspace.Close(); err != nil {
			h.t.Error(err)
		}
	}
	if err := h.volumes.Close(); err != nil {
		h.t.Error(err)
	}
	h.server.Close()
	if err := h.engine.Close(); err != nil {
		h.t.Error(err)
	}
}

// at returns the directory of a volume.
func (h *host) at(v sandbox.Volume) string {
	h.t.Helper()
	p, err := h.volumes.Path(v)
	if err != nil {
		h.t.Fatal(err)
	}
	return p
}

func (h *host) restart() { h.t.Helper(); h.end(); h.start() }

func (h *host) write(p, content string) { write(h.t, filepath.Join(h.dir, "workspace", p), content) }

func write(t testing.TB, name, content string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(content), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func (h *host) live(p string) string {
	h.t.Helper()
	b, err := os.ReadFile(filepath.Join(h.dir, "workspace", p))
	if err != nil {
		h.t.Fatal(err)
	}
	return string(b)
}

// toServer sends requests for http://keeper/… to a test server.
type toServer struct{ s *httptest.Server }

func (r toServer) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.URL.Host = strings.TrimPrefix(r.s.URL, "http://")
	return http.DefaultTransport.RoundTrip(req)
}

// inLayers returns where a path is in layers, of which the topmost comes first.
func inLayers(at func(sandbox.Volume) string, layers []sandbox.Volume, p string) string {
	for _, l := range layers {
		if _, err := os.Lstat(filepath.Join(at(l), p)); err == nil {
			return filepath.Join(at(l), p)
		}
	}
	return filepath.Join(at(layers[0]), p)
}
