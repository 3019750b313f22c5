package computer

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/sandbox"
)

// box opens a box and keeps the log's account of it.
func (c *Computer) box(ctx context.Context, spec sandbox.BoxSpec) (sandbox.Box, error) {
	env := map[string]string{}
	if c.machine.Path != "" {
		env["PATH"] = c.machine.Path
	}
	if slices.ContainsFunc(spec.Mounts, func(m sandbox.Mount) bool { return m.Target == homeInside }) {
		env["GOTMPDIR"] = homeInside // what Go links does not fit into memory either
	}
	maps.Copy(env, spec.Env)
	spec.Env = env
	start := time.Now()
	var b sandbox.Box
	err := c.machine.Reserve.Spaced(ctx, func() (err error) { b, err = c.boxes.Box(ctx, spec); return err })
	if err != nil {
		return nil, err
	}
	if err := c.note(ctx, "box.opened", contract.BoxOpened{Box: spec.ID, Kind: spec.Kind}); err != nil {
		return nil, errors.Join(err, b.Kill())
	}
	if err := c.living.add(b); err != nil {
		return nil, errors.Join(err, b.Kill())
	}
	c.once("the watch of a box", func(ctx context.Context) error {
		<-b.Done() // Close kills every box, so this ends before the computer has closed
		c.machine.Proxy.CloseBox(spec.ID)
		c.machine.watch.Delete(spec.ID)
		c.living.remove(b)
		closed := contract.BoxClosed{Box: spec.ID, Kind: spec.Kind, DurationMS: time.Since(start).Milliseconds()}
		var ended *sandbox.Ended
		if errors.As(b.Err(), &ended) && ended.Reason != sandbox.Killed {
			closed.Reason, closed.Detail = string(ended.Reason), contract.Clip(ended.Detail, 4096)
		}
		if ctx.Err() != nil {
			return nil // the log closes as well; a box that isn't closed in it ended with its computer
		}
		return c.note(ctx, "box.closed", closed)
	})
	return b, nil
}

// livingBoxes are a computer's boxes that may write to its files: all but the
// keeper's.
type livingBoxes struct {
	mu     sync.Mutex
	boxes  map[sandbox.Box]bool
	closed bool
}

func (l *livingBoxes) add(b sandbox.Box) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b.Kind() == contract.BoxKeeper {
		return nil
	}
	if l.closed {
		return fault.New("computer.box", fault.Unavailable, "The computer is going to sleep.", nil)
	}
	if l.boxes == nil {
		l.boxes = map[sandbox.Box]bool{}
	}
	l.boxes[b] = true
	return nil
}

func (l *livingBoxes) remove(b sandbox.Box) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.boxes, b)
}

// close ends them, and lets none begin: then nothing but the keeper writes to
// the files, and it can say goodbye.
func (l *livingBoxes) close() error {
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

// note appends one event of the system's.
func (c *Computer) note(ctx context.Context, eventType string, data contract.Payload) error {
	_, err := c.log.Append(ctx, contract.Draft{Role: contract.RoleSystem, Type: eventType, Data: data})
	return err
}

// discard takes away what no longer belongs to anybody. It is removed later.
func (c *Computer) discard(ctx context.Context, v sandbox.Volume) {
	if err := c.boxes.Volumes().Discard(context.WithoutCancel(ctx), v); err != nil {
		c.logger.Warn("what is no longer needed could not be moved aside", "volume", v.String(), "error", err)
	}
}

// taskBoxes opens the boxes of runs.
type taskBoxes struct{ c *Computer }

// runBox is a sandbox.Box as the dispatcher sees it.
type runBox struct{ sandbox.Box }

func (b runBox) Transport() http.RoundTripper { return b.Tether().Transport() }

// Open implements dispatch.Boxes.
func (t taskBoxes) Open(ctx context.Context, r dispatch.BoxRequest) (dispatch.Box, error) {
	c := t.c
	spec := sandbox.BoxSpec{ID: r.ID, Kind: r.Kind, Handler: r.Handler, Proxy: r.Network, Limits: c.limits()}
	switch r.Kind {
	case contract.BoxDirector, contract.BoxAssociate:
		// Our own loops: no tree, and nothing to fill a disk with.
	case contract.BoxTask:
		o, ok := r.Overlay.(*overlay)
		if !ok {
			return nil, fault.New("computer.boxes", fault.Invalid, "", errors.New("a task box needs an overlay"))
		}
		mounts, err := c.taskMounts(ctx, o)
		if err != nil {
			return nil, err
		}
		spec.Mounts, spec.Lock = mounts, o.Upper
	case contract.BoxVerify:
		o, ok := r.Overlay.(*overlay)
		if !ok {
			return nil, fault.New("computer.boxes", fault.Invalid, "", errors.New("a verify box needs an overlay"))
		}
		if r.Go {
			if err := c.warm(ctx); err != nil && ctx.Err() == nil {
				c.logger.Warn("Go's own library could not be built ahead; its checks take longer", "error", err)
			}
		}
		mounts, release, err := c.verifyMounts(ctx, o, r.Commit, r.Shell)
		if err != nil {
			return nil, err
		}
		spec.Mounts, spec.Env = withDependencies(mounts, r.Dependencies)
		b, err := c.box(ctx, spec)
		if err != nil {
			release()
			return nil, err
		}
		c.once("the release of a snapshot", func(context.Context) error { <-b.Done(); release(); return nil })
		return runBox{b}, nil
	default:
		return nil, fault.New("computer.boxes", fault.Invalid, "", errors.New("runs have no box of kind "+string(r.Kind)))
	}
	b, err := c.box(ctx, spec)
	if err != nil {
		return nil, err
	}
	return runBox{b}, nil
}

// gitMount shows the history, read-only.
func (c *Computer) gitMount() sandbox.Mount {
	return sandbox.Mount{Source: sandbox.Live(".git"), Target: "/computer/.git", Mode: sandbox.ReadOnly}
}

// shellModules shows the shell's dependencies where it expects them. With wait
// they are installed first when they are missing; where that fails, and without
// wait, they are left out.
func (c *Computer) shellModules(ctx context.Context, wait bool) ([]sandbox.Mount, error) {
	tree, ok := c.machine.Modules.Ready(ctx, c.boxes.Volumes())
	if !ok && wait {
		var err error
		tree, err = c.shell.Modules(ctx)
		if err != nil && !fault.Is(err, fault.Missing) && !fault.Is(err, fault.Unavailable) {
			return nil, err
		}
		ok = err == nil // else the check that needs them fails, and says what is missing
	}
	if !ok {
		return nil, nil
	}
	// Where the tree has a link in its place, it goes without.
	return []sandbox.Mount{{Source: tree, Target: "/computer/choiros/node_modules", Mode: sandbox.ReadOnly, Optional: true}}, nil
}

// client reaches a box's guest.
func client(b sandbox.Box) *guest.Client { return guest.NewClient(b.Tether().Transport()) }
