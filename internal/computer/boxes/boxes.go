package boxes

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/config"
	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/egress"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/lockfile"
	"choir.dev/choiros/internal/sandbox"
)

// Machine is what the boxes of all computers of one machine share. It is filled in before
// the first of them is opened and not changed afterwards.
type Machine struct {
	Path    string // what boxes have in PATH; empty: the guest's default
	Runtime config.Runtime
	Storage config.Storage
	Proxy   *egress.Proxy
	Policy  *egress.Sources
	Reserve *datadir.Reserve
	Reader  Reader

	warmth  homeWarmer
	known   toolFacts
	watches watches
	lent    lent
	shared  struct {
		once  sync.Once
		trees *trees
	}
	watch sync.Map // box id → func(hostport string, allowed bool): who else is told of its decisions
}

// Reader is the program that reads pages of the web; without a Name there is none.
type Reader struct {
	Name   string // identifies its content
	Binary func() ([]byte, error)
}

// Decided passes a decision of the network policy to whoever runs the box.
func (m *Machine) Decided(box, hostport string, allowed bool) {
	if f, ok := m.watch.Load(box); ok {
		f.(func(string, bool))(hostport, allowed)
	}
}

// sharedTrees are the dependencies that are installed for all computers.
func (m *Machine) sharedTrees() *trees {
	m.shared.once.Do(func() {
		m.shared.trees = newTrees(sandbox.SharedCache(DependenciesDir), m.dependenciesMost(), true)
	})
	return m.shared.trees
}

// dependenciesMost bounds the installed dependencies in one place, in bytes.
func (m *Machine) dependenciesMost() int64 { return int64(m.Storage.DependenciesMB) << 20 }

// Options are the parts that one computer's boxes use.
type Options struct {
	CID     contract.CID
	Machine *Machine
	On      sandbox.Computer // the computer as its driver opened it
	Append  func(ctx context.Context, drafts ...contract.Draft) ([]contract.Event, error)
	// Awake ends when the computer falls asleep.
	Awake context.Context
	// Once runs something in the background that ends by itself.
	Once func(what string, f func(context.Context) error)
	// Remotes are the git remotes that the user has added.
	Remotes func(ctx context.Context) ([]string, error)
	// Read reads a file of a commit, at most most bytes of it.
	Read   func(ctx context.Context, commit, path string, most int64) (io.ReadCloser, error)
	Logger *slog.Logger
}

// Boxes opens the boxes of one computer that is awake.
type Boxes struct {
	options   Options
	living    living
	writers   writers
	kept      keptTerminals
	installed *dependencies
	// install runs an installation's command in a box of its own.
	install func(ctx context.Context, spec sandbox.BoxSpec, lock lockfile.Lock, argv []string) error
}

// New makes a Boxes; no box is open.
func New(o Options) *Boxes {
	b := &Boxes{options: o}
	b.installed, b.install = newDependencies(b), b.installing
	return b
}

// Volumes are the computer's, as its driver keeps them.
func (c *Boxes) Volumes() sandbox.Volumes { return c.options.On.Volumes() }

// Notes are what the driver found that the machine lacks.
func (c *Boxes) Notes() []sandbox.Finding { return c.options.On.Notes() }

// FindNotes starts to find out what Notes says, as texts. The driver tries whether files can
// be watched, and the kernel takes 10 to 20 ms to end that.
func (c *Boxes) FindNotes() <-chan []string {
	found := make(chan []string, 1)
	c.options.Once("finding out what boxes lack", func(context.Context) error {
		defer close(found)
		var notes []string
		for _, f := range c.Notes() {
			notes = append(notes, f.Text)
		}
		found <- notes
		return nil
	})
	return found
}

// Close ends what the driver has open for the computer, the keeper's box included.
func (c *Boxes) Close() error { return c.options.On.Close() }

// EndAll ends all boxes except the keeper's, and lets no other begin.
func (c *Boxes) EndAll() error { return c.living.close() }

// Sweep removes installations that an earlier process did not complete.
func (c *Boxes) Sweep(ctx context.Context) error { return c.installed.sweep(ctx) }

// Limits are the configured limits of a box.
func (c *Boxes) Limits() sandbox.Limits {
	r := c.options.Machine.Runtime
	return sandbox.Limits{
		MemoryBytes: int64(r.MemoryMB) << 20, Pids: r.Pids, CPUPercent: r.CPU,
		DiskBytes: int64(r.DiskMB) << 20, DiskInodes: int64(r.DiskFiles), DiskFree: datadir.DiskFloor,
	}
}

// Way is a box's network access. A policy that can't be loaded denies everything. decided
// is told of each decision about the box; it may be nil.
func (c *Boxes) Way(ctx context.Context, s egress.Scope, spec contract.EgressSpec, decided func(hostport string, allowed bool), approved ...egress.Rule) http.Handler {
	if decided != nil {
		c.options.Machine.watch.Store(s.Box, decided)
	}
	return c.way(s, c.policy(ctx, spec, approved...))
}

// policy is the network policy of a box that is opened now.
func (c *Boxes) policy(ctx context.Context, spec contract.EgressSpec, approved ...egress.Rule) egress.Policy {
	sources := *c.options.Machine.Policy
	sources.Remotes = c.options.Remotes
	return sources.Policy(ctx, spec, approved...)
}

func (c *Boxes) way(s egress.Scope, policy egress.Policy) http.Handler {
	s.CID = c.options.CID
	return c.options.Machine.Proxy.Handler(s, policy)
}

// Registries is the network access of a box of the host's own that fills caches: the
// registries that this machine's package managers use, wherever they are.
func (c *Boxes) Registries(ctx context.Context, box string) http.Handler {
	rules, err := c.options.Machine.Policy.Registries(ctx)
	return c.options.Machine.Proxy.Handler(egress.Scope{CID: c.options.CID, Box: box, Kind: contract.BoxScratch},
		egress.Policy{Profile: contract.EgressDefault, Rules: rules, Err: err, Anywhere: true})
}

// BeyondGrant lists the hosts that a task wants beyond what the computer was granted.
func (c *Boxes) BeyondGrant(ctx context.Context, spec contract.EgressSpec) ([]string, error) {
	sources := *c.options.Machine.Policy
	sources.Remotes = c.options.Remotes
	return sources.BeyondGrant(ctx, spec)
}

// Open opens a box and records it in the log. If the machine can open no other box, those that wait for a run
// are ended, of all its computers, and it is tried once more.
func (c *Boxes) Open(ctx context.Context, spec sandbox.BoxSpec) (sandbox.Box, error) {
	b, err := c.Ahead(ctx, spec)
	if fault.Is(err, fault.Unavailable) && ctx.Err() == nil && c.options.Awake.Err() == nil && c.options.Machine.lent.end() {
		return c.Ahead(ctx, spec)
	}
	return b, err
}

// Ahead is Open for a box that nobody needs yet: for it no other is ended.
func (c *Boxes) Ahead(ctx context.Context, spec sandbox.BoxSpec) (sandbox.Box, error) {
	env := map[string]string{}
	if c.options.Machine.Path != "" {
		env["PATH"] = c.options.Machine.Path
	}
	if slices.ContainsFunc(spec.Mounts, func(m sandbox.Mount) bool { return m.Target == HomeInside }) {
		env["GOTMPDIR"] = HomeInside // what Go links does not fit into memory either
	}
	maps.Copy(env, spec.Env)
	spec.Env = env
	start := time.Now()
	// If it can't be opened, or its end is not seen, nobody knows that nothing of it is
	// left.
	ended := c.writers.begin(spec)
	var b sandbox.Box
	err := c.options.Machine.Reserve.RetryWithRoom(ctx, func() (err error) { b, err = c.options.On.Box(ctx, spec); return err })
	if err != nil {
		return nil, err
	}
	if err := c.note(ctx, "box.opened", contract.BoxOpened{Box: spec.ID, Kind: spec.Kind}); err != nil {
		return nil, errors.Join(err, b.Kill())
	}
	if err := c.living.add(b); err != nil {
		return nil, errors.Join(err, b.Kill())
	}
	c.options.Once("the watch of a box", func(ctx context.Context) error {
		<-b.Done() // Close kills every box, so this ends before the computer has closed
		ended()
		c.options.Machine.Proxy.CloseBox(spec.ID)
		c.options.Machine.watch.Delete(spec.ID)
		c.living.remove(b)
		closed := contract.BoxClosed{Box: spec.ID, Kind: spec.Kind, DurationMS: time.Since(start).Milliseconds()}
		var why *sandbox.EndedError
		if errors.As(b.Err(), &why) && why.Reason != sandbox.Killed {
			closed.Reason, closed.Detail = string(why.Reason), contract.Clip(why.Detail, 4096)
		}
		if ctx.Err() != nil {
			return nil // the log closes as well; a box without a box.closed event ended with its computer
		}
		return c.note(ctx, "box.closed", closed)
	})
	return b, nil
}

// living are a computer's boxes that may write to its files: all except the keeper's.
type living struct {
	mu     sync.Mutex
	boxes  map[sandbox.Box]bool
	closed bool
}

func (l *living) add(b sandbox.Box) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b.Kind() == contract.BoxKeeper {
		return nil
	}
	if l.closed {
		return fault.New("boxes.Open", fault.Unavailable, "The computer is going to sleep.", nil)
	}
	if l.boxes == nil {
		l.boxes = map[sandbox.Box]bool{}
	}
	l.boxes[b] = true
	return nil
}

func (l *living) remove(b sandbox.Box) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.boxes, b)
}

// close ends them, and lets no other begin. Then only the keeper writes to the files, and
// it can record that the tree is as it left it.
func (l *living) close() error {
	l.mu.Lock()
	l.closed = true
	boxes := slices.Collect(maps.Keys(l.boxes))
	l.mu.Unlock()
	var g errgroup.Group
	for _, b := range boxes {
		g.Go(b.Kill)
	}
	return g.Wait()
}

// Discard moves a volume away that nobody needs any more. It is removed later.
func (c *Boxes) Discard(ctx context.Context, v sandbox.Volume) {
	if err := c.Volumes().Discard(context.WithoutCancel(ctx), v); err != nil {
		c.options.Logger.Warn("what is no longer needed could not be moved aside", "volume", v.String(), "error", err)
	}
}

// note appends one event of the system's.
func (c *Boxes) note(ctx context.Context, eventType string, data contract.Payload) error {
	_, err := c.options.Append(ctx, contract.Draft{Actor: contract.System(), Type: eventType, Data: data})
	return err
}

// Git shows the history, read-only.
func Git() sandbox.Mount {
	return sandbox.Mount{Source: sandbox.Live(".git"), Target: "/computer/.git", Mode: sandbox.ReadOnly}
}

// Client reaches a box's guest.
func Client(b sandbox.Box) *guest.Client { return guest.NewClient(b.Tether().Transport()) }

// Ended reports whether a box has ended, or does so within moments: its connection breaks
// first.
func Ended(b sandbox.Box) bool {
	select {
	case <-b.Done():
		return true
	case <-time.After(2 * time.Second):
		return false
	}
}

// Reader is the program that reads pages of the web.
func (c *Boxes) Reader() Reader { return c.options.Machine.Reader }
