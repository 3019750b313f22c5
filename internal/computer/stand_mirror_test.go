package computer

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/blob"
	"choir.dev/choiros/internal/blob/disk"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/computer/boxes"
	"choir.dev/choiros/internal/computer/history"
	"choir.dev/choiros/internal/computer/parts"
	"choir.dev/choiros/internal/computer/past"
	"choir.dev/choiros/internal/computer/proposals"
	"choir.dev/choiros/internal/computer/upkeep"
	"choir.dev/choiros/internal/document"
	"choir.dev/choiros/internal/document/mirror"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/shell"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/workspace"
	"choir.dev/choiros/internal/workspace/keeper/engine"
	"choir.dev/choiros/internal/workspace/keeper/httpapi"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// desk is the part of a computer that the mirror needs, with a real log, projection and keeper, but
// without boxes.
type desk struct {
	*Computer
	t       testing.TB
	dir     string
	bus     *bus.Bus
	blobs   *disk.Store
	engine  *engine.Engine
	server  *httptest.Server
	volumes onlyVolumes
	busy    atomic.Bool
	dies    atomic.Bool // before the system's file.written is appended
	synced  atomic.Bool // whether a file was synced since the last file.written
	id      string

	beforeWrite func()
}

// mortal is the log of a process that dies before it records that a file was mirrored.
type mortal struct {
	*ledger.Log
	d *desk
}

func (l mortal) Append(ctx context.Context, drafts ...contract.Draft) ([]contract.Event, error) {
	if drafts[0].Type == "file.written" && l.d.dies.Load() {
		return nil, errDied
	}
	if drafts[0].Type == "file.written" && !l.d.synced.Swap(false) {
		l.d.t.Error("the log is told that a revision is in its file, which is not on disk")
	}
	return l.Log.Append(ctx, drafts...)
}

// toKeeper sends to the keeper; before is called before each write.
type toKeeper struct {
	server *httptest.Server
	before func()
	synced *atomic.Bool
}

func (k toKeeper) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/write") {
		k.before()
	}
	if strings.HasSuffix(r.URL.Path, "/sync") {
		k.synced.Store(true)
	}
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host = "http", k.server.Listener.Addr().String()
	return http.DefaultTransport.RoundTrip(r)
}

func newBus(t testing.TB) (*bus.Bus, *disk.Store) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Fatal("these tests need git: install it with the system's package manager")
	}
	dir := t.TempDir()
	b, err := bus.Open(t.Context(), bus.Options{Dir: filepath.Join(dir, "nats"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	blobs, err := disk.Open(filepath.Join(dir, "blobs"), blob.Quota{})
	if err != nil {
		t.Fatal(err)
	}
	return b, blobs
}

func newDesk(t testing.TB, b *bus.Bus, blobs *disk.Store) *desk {
	t.Helper()
	d := &desk{t: t, dir: t.TempDir(), bus: b, blobs: blobs, beforeWrite: func() {}}
	for _, name := range []string{"workspace/artifacts", "snapshots", "boxes"} {
		if err := os.MkdirAll(filepath.Join(d.dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	d.Computer = &Computer{cid: contract.NewCID()}
	d.start()
	return d
}

// start opens everything, as a process does that starts.
func (d *desk) start() {
	d.t.Helper()
	c := &Computer{cid: d.cid, logger: slog.New(slog.DiscardHandler)}
	c.parts = parts.New(d.t.Context(), parts.Options{CID: d.cid, Logger: c.logger, Backoff: time.Millisecond, Escalate: func(err error) { c.machine.PartsFailed(c, err) }})
	c.ctx = c.parts.Context()
	d.Computer = c
	check := func(err error) {
		if err != nil {
			d.t.Helper()
			d.t.Fatal(err)
		}
	}
	var err error
	c.state, err = state.Open(d.t.Context(), filepath.Join(d.dir, "state.sqlite"), state.WithBlobs(d.blobs))
	check(err)
	c.log, err = ledger.Open(d.t.Context(), d.bus.JetStream(), ledger.Options{CID: d.cid, Blobs: d.blobs, Index: c.state, Live: d.bus})
	check(err)
	c.Past = past.New(d.cid, c.log, c.state, d.blobs, c.Info)
	check(c.state.Recover(d.t.Context(), c.log))
	_, err = c.log.Append(d.t.Context(), contract.Draft{Actor: contract.System(), Type: "computer.woken", Data: contract.ComputerWoken{Version: "0", Driver: "local", Isolation: "none"}})
	check(err)
	c.parts.Own("projection", func(ctx context.Context) error { return c.state.Project(ctx, c.log) })
	c.parts.RecordWith(c.note)
	check(c.state.CaughtUp(d.t.Context(), c.log))
	c.documents = document.New(c.log, c.state)
	c.mirror, err = mirror.New(d.t.Context(), mirror.Options{
		Log: mortal{c.log, d}, State: c.state, Documents: c.documents, Busy: d.busy.Load, Ended: func() bool { return c.ctx.Err() != nil }, Logger: c.logger,
	})
	check(err)
	c.parts.Own("revisions", c.mirror.Follow)
	d.engine, err = engine.Open(d.t.Context(), engine.Options{Root: filepath.Join(d.dir, "workspace"), Snapshots: filepath.Join(d.dir, "snapshots"), Uppers: filepath.Join(d.dir, "boxes")})
	check(err)
	d.server = httptest.NewServer(httpapi.Handler(d.engine))
	d.volumes = openVolumes(d.t, d.dir)
	c.boxes = boxes.New(boxes.Options{CID: d.cid, Machine: &boxes.Machine{}, On: d.volumes, Logger: c.logger})
	c.workspace, err = workspace.Open(d.t.Context(), workspace.Options{
		CID: d.cid, Keeper: wire.NewClient(toKeeper{d.server, func() { d.beforeWrite() }, &d.synced}, nil), Log: mortal{c.log, d}, Volumes: d.volumes.v, Seq: c.mirror.Seq, AutoInterval: -1,
	})
	check(err)
	c.mirror.Attach(c.workspace)
	c.shell = shell.New(shell.Options{Log: c.log, State: c.state, Workspace: c.workspace, Volumes: d.volumes.v, Logger: c.logger})
	c.History = history.New(history.Options{CID: d.cid, Log: c.log, State: c.state, Workspace: c.workspace, Documents: c.documents, Mirror: c.mirror, Shell: c.shell})
}

func (d *desk) proposals() proposals.Proposals {
	return proposals.Proposals{Log: d.log, State: d.state, Documents: d.documents}
}

// newUpkeep is the upkeep of the desk, whose parts are opened one by one.
func (d *desk) newUpkeep() *upkeep.Upkeep {
	o := upkeep.Options{
		CID: d.cid, Log: d.log, State: d.state, Workspace: d.workspace, Blobs: d.blobs, Busy: d.busy.Load, Logger: d.logger,
	}
	if d.machine != nil {
		o.Dir, o.Free = d.path(), d.machine.Dir.Free
	}
	return upkeep.New(o)
}

func (d *desk) end() {
	d.t.Helper()
	d.parts.Stop()
	err := errors.Join(d.workspace.Close(), d.log.Close())
	d.parts.Close()
	d.server.Close()
	if err = errors.Join(err, d.state.Close(), d.engine.Close(), d.volumes.v.Close()); err != nil {
		d.t.Error(err)
	}
}

func (d *desk) restart() { d.t.Helper(); d.end(); d.start() }

func (d *desk) file() string { return filepath.Join(d.dir, "workspace", mirrored) }

func (d *desk) text() string {
	d.t.Helper()
	b, err := os.ReadFile(d.file())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		d.t.Fatal(err)
	}
	return string(b)
}

// byHand edits the file as an unknown editor would. It adds a second to the time of the file with
// each edit, because listings show milliseconds.
func (d *desk) byHand(text string) {
	d.t.Helper()
	at := time.Now().Add(time.Duration(edits.Add(1)) * time.Second)
	if err := errors.Join(os.MkdirAll(filepath.Dir(d.file()), 0o755), os.WriteFile(d.file(), []byte(text), 0o644), os.Chtimes(d.file(), at, at)); err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) head() state.Revision {
	d.t.Helper()
	if err := d.state.CaughtUp(d.t.Context(), d.log); err != nil {
		d.t.Fatal(err)
	}
	r, err := d.documents.Get(d.t.Context(), d.id)
	if err != nil {
		d.t.Fatal(err)
	}
	return r
}

func (d *desk) create(body string) {
	d.t.Helper()
	d.id = contract.NewID()
	if _, err := d.documents.Create(d.t.Context(), d.id, "Plan", mirrored, body, director); err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) revise(body string, by document.Author) {
	d.t.Helper()
	if _, err := d.documents.Revise(d.t.Context(), d.id, d.head().Revision, body, by); err != nil {
		d.t.Fatal(err)
	}
}

// settle waits until every revision was noticed, then settles.
func (d *desk) settle() {
	d.t.Helper()
	last := d.log.Last()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if d.mirror.Followed() >= last {
			break
		}
		if time.Now().After(deadline) {
			d.t.Fatal("the log is not followed")
		}
	}
	d.mirror.Settle(d.t.Context(), document.By(document.Nobody), false)
}

func open(t *testing.T) *desk {
	t.Helper()
	b, blobs := newBus(t)
	d := newDesk(t, b, blobs)
	t.Cleanup(func() { d.end() })
	return d
}

func (d *desk) want(revision int, text string) {
	d.t.Helper()
	if r := d.head(); r.Revision != revision || r.Body != text || d.text() != text {
		d.t.Fatalf("revision %d says %q and the file %q; want revision %d and %q", r.Revision, r.Body, d.text(), revision, text)
	}
}
