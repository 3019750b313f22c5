package control_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing/fstest"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/control"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

// memory is the computers of a control plane, in memory.
type memory struct {
	mu    sync.Mutex
	list  []*machine
	early error // the error for a computer that is not awake, while none is
	laid  error // the error of a fork once it is laid out
	looks int   // how often all of them were listed
}

// say makes every computer not awake, for this reason, or awake again.
func (m *memory) say(early error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.early = early
}

// full makes every fork fail, for this reason, or none.
func (m *memory) full(why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.laid = why
}

func (m *memory) IDs() []contract.CID {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []contract.CID
	for _, c := range m.list {
		out = append(out, c.cid)
	}
	return out
}

func (m *memory) List(context.Context) ([]view.Computer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.looks++
	var out []view.Computer
	for _, c := range m.list {
		out = append(out, c.info())
	}
	return out, nil
}

func (m *memory) History(ctx context.Context, cid contract.CID) (control.History, error) {
	return m.Get(ctx, cid)
}

func (m *memory) Get(_ context.Context, cid contract.CID) (control.Computer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.list {
		if c.cid == cid && m.early != nil {
			return nil, m.early
		}
		if c.cid == cid {
			return c, nil
		}
	}
	return nil, fault.New("memory.Get", fault.NotFound, "", errors.New("there is no such computer"))
}

func (m *memory) Create(_ context.Context, cid contract.CID, name string) (view.Computer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.list {
		if c.cid == cid {
			return c.info(), nil
		}
	}
	c := newMachine(name)
	c.cid = cid
	m.list = append(m.list, c)
	return c.info(), nil
}

func (m *memory) Fork(ctx context.Context, _ contract.Actor, from, cid contract.CID, name, _ string) (view.Computer, error) {
	if _, err := m.Get(ctx, from); err != nil {
		return view.Computer{}, err
	}
	m.mu.Lock()
	err := m.laid
	m.mu.Unlock()
	if err != nil {
		return view.Computer{}, err
	}
	return m.Create(ctx, cid, name)
}

// Asleep describes a machine that sleeps.
func (m *memory) Asleep(_ context.Context, cid contract.CID) (view.Computer, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.list {
		if c.cid == cid && c.asleep {
			info := c.info()
			info.State = view.StateAsleep
			return info, true, nil
		}
	}
	return view.Computer{}, false, nil
}

func (m *memory) Health(_ context.Context, cids []contract.CID) (out []view.ComputerHealth, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.list {
		if slices.Contains(cids, c.cid) {
			info := c.info()
			out = append(out, view.ComputerHealth{ID: info.ID, Name: info.Name, State: info.State})
		}
	}
	return out, nil
}

// Waiting lists what the test put there.
func (m *memory) Waiting(_ context.Context, cids []contract.CID) (out []view.Waiting, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.list {
		if slices.Contains(cids, c.cid) {
			out = append(out, c.waits...)
		}
	}
	return out, nil
}

func (m *memory) Wake(context.Context, contract.CID, view.WakeRequest) error { return nil }

func (m *memory) Remove(context.Context, contract.CID, string) (view.Computer, error) {
	return view.Computer{}, fault.New("", fault.Missing, "", errors.New("none is removed here"))
}

func (m *memory) PutBack(context.Context, contract.CID) (view.Computer, error) {
	return view.Computer{}, fault.New("", fault.Missing, "", errors.New("none is removed here"))
}

func (m *memory) Removed(context.Context) ([]view.Computer, error) { return nil, nil }

func (m *memory) Recover(context.Context, contract.CID) error { return nil }

func (m *memory) Export(_ context.Context, cid contract.CID, w io.Writer) error {
	_, err := io.WriteString(w, "the archive of "+string(cid))
	return err
}

// machine is one computer in memory.
type machine struct {
	cid    contract.CID
	asleep bool // as the test set it; asking for the computer does not change it

	putting atomic.Int32 // how many files are being put

	mu       sync.Mutex
	name     string
	events   []contract.Event
	grown    chan struct{}
	runs     map[string]*view.Run
	files    map[string][]byte
	build    fs.FS
	live     http.RoundTripper
	looks    int
	beats    chan view.Heartbeat
	restored []view.RestoreRequest
	decided  []view.Decision
	before   struct { // what the log holds of the current day
		events int
		bytes  int64
	}
	killed chan struct{} // receives when a command's context ended
	fail   error         // the error of Info, if set
	waits  []view.Waiting
}

func newMachine(name string) *machine {
	return &machine{
		cid: contract.NewCID(), name: name, grown: make(chan struct{}), runs: map[string]*view.Run{}, files: map[string][]byte{},
		beats: make(chan view.Heartbeat, 16), killed: make(chan struct{}, 1),
		build: fstest.MapFS{
			"index.html":       {Data: []byte(`<!doctype html><html><head><meta property="csp-nonce" nonce="CHOIR_NONCE"><script type="module" nonce="CHOIR_NONCE" src="/assets/app-1.js"></script></head><body><div id="root"></div></body></html>`)},
			"assets/app-1.js":  {Data: []byte("export {}")},
			"mark.svg":         {Data: []byte("<svg/>")},
			"sneaky.html":      {Data: []byte("<script>alert(1)</script>")},
			"assets/evil.html": {Data: []byte("<script>alert(1)</script>")},

			"assets/app-2.js":     {Data: []byte("export {two}")},
			"assets/app-2.js.br":  {Data: []byte("two, pressed")},
			"assets/evil.html.br": {Data: []byte("<script>alert(1)</script>")},
		},
	}
}

// fatal is a revision that makes the machine panic.
const fatal = 666

func (m *machine) info() view.Computer {
	m.mu.Lock()
	defer m.mu.Unlock()
	return view.Computer{ID: m.cid, Name: m.name, State: view.StateAwake, Driver: "memory", Isolation: "none", Sequence: uint64(len(m.events))}
}

func (m *machine) append(d contract.Draft) contract.Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.events {
		if d.ID != "" && e.ID == d.ID {
			return e
		}
	}
	if d.ID == "" {
		d.ID = contract.NewID()
	}
	data, err := contract.EncodeData(d.Type, d.Data)
	if err != nil {
		panic(err)
	}
	e := contract.Event{
		SpecVersion: "1.0", ID: d.ID, Source: contract.Source(m.cid, d.Actor.Kind), Type: d.Type, Subject: d.Subject, Time: time.Now().UTC(),
		DataContentType: "application/json", Data: data, Sequence: uint64(len(m.events) + 1), Epoch: 1, Computer: m.cid, Actor: d.Actor.Name(), User: d.Actor.Account(), Run: d.Run,
	}
	m.events = append(m.events, e)
	close(m.grown)
	m.grown = make(chan struct{})
	return e
}

func (m *machine) Info(context.Context) (view.Computer, error) {
	m.mu.Lock()
	err := m.fail
	m.mu.Unlock()
	if err != nil {
		return view.Computer{}, err
	}
	return m.info(), nil
}

func (m *machine) Frame(context.Context) (view.Frame, error) {
	f := view.Frame{Computer: m.info(), Provider: view.Provider{Name: "rehearsal", Model: "rehearsal", Rehearsal: true}}
	f.Desktop = view.DesktopStatus{Mode: view.ModeBuild, LastGood: strings.Repeat("a", 40)}
	return f, nil
}

func (m *machine) Snapshot(context.Context) (view.Snapshot, error) {
	return view.Snapshot{Sequence: m.Last(), Computer: m.info().Head(), Runs: []view.RunHead{{Run: contract.NewID(), Prompt: "p", Status: contract.RunDone}}}, nil
}

func (m *machine) Document(_ context.Context, id string, revision int) (view.Document, error) {
	if revision == fatal {
		panic("a fault of ours")
	}
	return view.Document{ID: id, Title: "Doc", Path: "artifacts/doc.md", Revision: max(revision, 1), Author: "user", Body: "# Doc\n"}, nil
}

// proposed is the only proposal of every document.
var proposed = view.Proposal{ID: contract.DeriveID("test", "proposal"), Base: 1, Author: "associate", Role: contract.KindAssociate, Sequence: 9, Status: "open"}

func (m *machine) Proposals(_ context.Context, document string, all bool, before uint64, limit int) ([]view.Proposal, bool, error) {
	p := proposed
	p.Document = document
	if all {
		p.Status = "dismissed"
	}
	if before > 0 && before <= p.Sequence || limit == 0 {
		return nil, false, nil
	}
	return []view.Proposal{p}, all, nil
}

func (m *machine) Proposal(_ context.Context, document, id string) (view.Proposal, error) {
	if id != proposed.ID {
		return view.Proposal{}, fault.New("memory.Proposal", fault.NotFound, "", errors.New("there is no such proposal"))
	}
	p := proposed
	p.Document, p.On, p.Overlaps, p.Diff, p.Body = document, 2, 1, strings.Repeat("+more\n", 200_000), "# Doc, as proposed\n"
	return p, nil
}

func (m *machine) Resolve(ctx context.Context, by contract.Actor, document, id string, accept bool) (view.Resolved, error) {
	if _, err := m.Proposal(ctx, document, id); err != nil {
		return view.Resolved{}, err
	}
	d := &contract.ProposalResolved{Proposal: id, Document: document, Resolution: contract.ProposalDismissed, By: by.Account()}
	if accept {
		d.Resolution, d.Revision = contract.ProposalAccepted, 3
	}
	e := m.append(contract.Draft{ID: contract.DeriveID(id, "resolved"), Actor: by, Type: "proposal.resolved", Data: d})
	return view.Resolved{ID: id, Resolution: d.Resolution, Revision: d.Revision, Sequence: e.Sequence}, nil
}

func (m *machine) Act(_ context.Context, a view.Action) (view.Acted, error) {
	e := m.append(contract.Draft{ID: a.ID, Actor: a.By, Type: a.Type, Subject: a.Subject, Run: a.Run, Data: a.Data})
	done := view.Acted{Sequence: e.Sequence}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch d := a.Data.(type) {
	case *contract.PromptSubmitted:
		done.Run = contract.DeriveID(e.ID, "run")
		if m.runs[done.Run] == nil {
			m.runs[done.Run] = &view.Run{ID: done.Run, Prompt: d.Text, Status: contract.RunWorking, Sequence: e.Sequence}
		}
	case *contract.ComputerRenamed:
		m.name = d.Name
	}
	return done, nil
}

// report ends a run.
func (m *machine) report(run string) {
	m.mu.Lock()
	m.runs[run].Status, m.runs[run].Summary = contract.RunDone, "Done."
	m.mu.Unlock()
	m.append(contract.Draft{Actor: contract.System(), Type: "run.reported", Run: run,
		Data: &contract.RunReported{Status: contract.RunDone, Summary: "Done.", Verified: contract.VerificationPass}})
}

func (m *machine) Events(_ context.Context, q view.EventQuery) (view.EventPage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := view.EventPage{Next: q.After, Last: uint64(len(m.events))}
	for _, e := range m.events {
		if p.More = len(p.Events) == q.Limit; p.More {
			break
		}
		if q.Selects(e) {
			p.Events = append(p.Events, e)
		}
		p.Next = max(p.Next, e.Sequence)
	}
	return p, nil
}

func (m *machine) Follow(ctx context.Context, after uint64) iter.Seq2[contract.Event, error] {
	return func(yield func(contract.Event, error) bool) {
		for {
			m.mu.Lock()
			grown := m.grown
			m.mu.Unlock()
			page, _ := m.Events(ctx, view.EventQuery{After: after, Limit: 100})
			for _, e := range page.Events {
				if !yield(e, nil) {
					return
				}
				after = e.Sequence
			}
			if len(page.Events) > 0 {
				continue
			}
			select {
			case <-grown:
			case <-ctx.Done():
				yield(contract.Event{}, ctx.Err())
				return
			}
		}
	}
}

func (m *machine) Appended(context.Context, time.Time) (int, int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.before.events, m.before.bytes, nil
}

func (m *machine) Last() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return uint64(len(m.events))
}

func (m *machine) Runs(_ context.Context, before uint64, limit int) ([]view.Run, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []view.Run
	for _, r := range m.runs {
		if before == 0 || r.Sequence < before {
			out = append(out, *r)
		}
	}
	slices.SortFunc(out, func(a, b view.Run) int { return int(b.Sequence) - int(a.Sequence) })
	return out[:min(len(out), limit)], nil
}

func (m *machine) Run(_ context.Context, id string) (view.Run, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.runs[id]; r != nil {
		return *r, nil
	}
	return view.Run{}, fault.New("memory.Run", fault.NotFound, "List them with choir runs.", errors.New("there is no such run"))
}

func (m *machine) Checkpoints(_ context.Context, before uint64, limit int) ([]view.Checkpoint, bool, error) {
	return []view.Checkpoint{{ID: strings.Repeat("a", 40), Tree: strings.Repeat("b", 40), Kind: contract.CheckpointInitial, Message: "first", Verified: contract.VerificationUnknown, Sequence: 1}}, false, nil
}

func (m *machine) ShowCheckpoint(_ context.Context, id string) (view.Checkpoint, error) {
	return view.Checkpoint{ID: id, Kind: contract.CheckpointInitial, Message: "first", Verified: contract.VerificationUnknown}, nil
}

func (m *machine) Checkpoint(_ context.Context, by contract.Actor, message string) (view.Checkpointed, error) {
	return view.Checkpointed{ID: strings.Repeat("c", 40), Sequence: 2, Created: message != ""}, nil
}

func (m *machine) Diff(_ context.Context, r view.DiffRequest) (view.Diff, error) {
	return view.Diff{From: r.From, To: r.To, Diff: "--- a\n"}, nil
}

func (m *machine) Restore(_ context.Context, r view.RestoreRequest) (view.Restored, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.restored = append(m.restored, r)
	return view.Restored{To: r.To, DryRun: r.DryRun, Changes: []contract.Change{}}, nil
}

func (m *machine) ListFiles(_ context.Context, path, after string, limit int) ([]view.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []view.File
	for name, b := range m.files {
		if name[strings.LastIndex(name, "/")+1:] > after {
			out = append(out, view.File{ID: name, Kind: view.FileRegular, Size: int64(len(b)), Mode: "0644"})
		}
	}
	if _, ok := m.files[path]; path != "" && !ok && !slices.ContainsFunc(out, func(f view.File) bool { return strings.HasPrefix(f.ID, path+"/") }) {
		return nil, fault.New("memory.ListFiles", fault.NotFound, "", errors.New("there is no "+path))
	}
	slices.SortFunc(out, func(a, b view.File) int { return strings.Compare(a.ID, b.ID) })
	return out[:min(len(out), limit)], nil
}

func (m *machine) OpenFile(_ context.Context, path string) (io.ReadCloser, view.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, ok := m.files[path]
	if !ok {
		return nil, view.File{}, fault.New("memory.OpenFile", fault.NotFound, "", fmt.Errorf("%s: there is no such file", path))
	}
	return io.NopCloser(bytes.NewReader(b)), view.File{ID: path, Kind: view.FileRegular, Size: int64(len(b)), Mode: "0644", Version: fmt.Sprintf("%x", b)}, nil
}

func (m *machine) ReadFile(_ context.Context, f view.File, offset int64) (io.ReadCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return io.NopCloser(bytes.NewReader(m.files[f.ID][offset:])), nil
}

func (m *machine) RemoveFile(_ context.Context, by contract.Actor, path string, recursive bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.files, path)
	return nil
}

func (m *machine) MoveFile(_ context.Context, by contract.Actor, from, to string) (view.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, ok := m.files[from]
	if !ok {
		return view.File{}, fault.New("memory.MoveFile", fault.NotFound, "", errors.New("there is no "+from))
	}
	delete(m.files, from)
	m.files[to] = b
	return view.File{ID: to, Kind: view.FileRegular, Size: int64(len(b)), Mode: "0644"}, nil
}

func (m *machine) AddTar(_ context.Context, by contract.Actor, name, origin string, tar io.Reader) (view.Added, error) {
	n, err := io.Copy(io.Discard, tar)
	return view.Added{ID: "workspace/" + name, Origin: origin, Bytes: n}, err
}

func (m *machine) AddURL(_ context.Context, by contract.Actor, r view.AddRequest) (view.Added, error) {
	return view.Added{ID: "workspace/x", Origin: r.URL}, nil
}

// Repository knows one repository, and one folder that is none.
func (m *machine) Repository(_ context.Context, name string) (string, error) {
	switch strings.TrimSuffix(name, ".git") {
	case "":
		return "", nil
	case "workspace/app":
		return "workspace/app", nil
	case "workspace/folder":
		return "workspace/folder", nil
	}
	return "", fault.New("memory.Repository", fault.NotFound, "", errors.New("there is no such repository"))
}

// Git writes its arguments, and then what it was sent.
func (m *machine) Git(_ context.Context, c view.GitCall, in io.Reader, out io.Writer) error {
	if c.Repository == "workspace/folder" {
		return fault.New("memory.Git", fault.NotFound, "", errors.New("there is no such repository"))
	}
	b, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s of %q, version %d, by %s: %s", c.Service(), c.Repository, c.Protocol, c.By.Account(), b)
	return err
}

// Exec knows three commands: echo, cat and sleep, which lasts until it is ended.
func (m *machine) Exec(ctx context.Context, r view.ExecRequest, streams view.ExecIO) (view.Exit, error) {
	if r.Argv[0] == "panic" {
		panic("a fault of ours")
	}
	if r.Argv[0] == "missing" {
		return view.Exit{}, fault.New("memory.Exec", fault.Unavailable, "Try again.", errors.New("no box could be opened"))
	}
	e := m.append(contract.Draft{Actor: r.By, Type: "command.started", Data: &contract.CommandStarted{Command: r.ID, Argv: r.Argv}})
	if streams.Started != nil {
		streams.Started(r.ID, e.Sequence)
	}
	exit := view.Exit{Command: r.ID}
	switch r.Argv[0] {
	case "echo":
		fmt.Fprintln(streams.Stdout, strings.Join(r.Argv[1:], " "))
		fmt.Fprint(streams.Stderr, "to stderr")
		exit.Code = 3
	case "cat":
		if _, err := io.Copy(streams.Stdout, streams.Stdin); err != nil {
			return view.Exit{}, err
		}
	case "sleep":
		<-ctx.Done()
		m.killed <- struct{}{}
		exit.Code, exit.Reason = 137, "killed"
	}
	return exit, nil
}

func (m *machine) Provider(context.Context) (view.Provider, error) {
	return view.Provider{Name: "rehearsal", Model: "rehearsal", Rehearsal: true, Network: "none", BudgetUSD: 1}, nil
}

func (m *machine) Build(context.Context) (fs.FS, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.build, nil
}

func (m *machine) AddViewer(context.Context) func() {
	m.mu.Lock()
	m.looks++
	m.mu.Unlock()
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.looks--
	}
}

func (m *machine) Live(context.Context) (http.RoundTripper, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.live == nil {
		return nil, fault.New("memory.Live", fault.Unavailable, "", errors.New("the dev server is not up"))
	}
	return m.live, nil
}

func (m *machine) StopCommand(_ context.Context, id string) error {
	return fault.New("memory.StopCommand", fault.NotFound, "", errors.New("no such command is running"))
}

func (m *machine) Heartbeat(_ context.Context, b view.Heartbeat) error {
	m.beats <- b
	return nil
}
