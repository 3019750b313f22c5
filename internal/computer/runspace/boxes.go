package runspace

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer/boxes"
	"choir.dev/choiros/internal/computer/mounts"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/egress"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/sandbox"
)

// Boxes opens the boxes of runs.
type Boxes struct {
	Boxes  *boxes.Boxes
	Mounts *mounts.Mounts
	// Awake ends when the computer falls asleep.
	Awake context.Context
	// Once runs a function in the background that ends by itself.
	Once   func(what string, f func(context.Context) error)
	Logger *slog.Logger
	// Pool has the boxes of our own loops.
	Pool *Pool
}

// runBox is a sandbox.Box as the dispatcher sees it.
type runBox struct{ sandbox.Box }

func (b runBox) Transport() http.RoundTripper { return b.Tether().Transport() }

// Run implements ports.Box.
func (b runBox) Run(ctx context.Context, p ports.Process) (int, error) {
	exit, err := boxes.Client(b.Box).Exec(ctx, guest.ExecRequest{Argv: p.Argv, Env: p.Env}, guest.Streams{Stdin: p.Stdin, Stdout: p.Out, Stderr: p.Stderr})
	return exit.Code, err
}

// Open implements ports.Boxes.
func (b Boxes) Open(ctx context.Context, r ports.BoxRequest) (ports.Box, error) {
	spec := sandbox.BoxSpec{ID: r.ID, Kind: r.Kind, Handler: r.Handler, Proxy: r.Network, ModelToken: r.ModelToken, Limits: b.Boxes.Limits()}
	switch r.Kind {
	case contract.BoxDirector, contract.BoxAssociate:
		// Only our own loops run in it: it has no tree, and nothing that could fill a disk.
		return asRunBox(b.Pool.Take(ctx, spec))
	case contract.BoxTask:
		o, ok := r.Overlay.(*Overlay)
		if !ok {
			return nil, fault.New("runspace.Open", fault.Invalid, "", errors.New("a task box needs an overlay"))
		}
		mounts, err := b.Mounts.Task(ctx, o.Overlay)
		if err != nil {
			return nil, err
		}
		spec.Mounts, spec.Lock = mounts, o.Upper
	case contract.BoxVerify:
		o, ok := r.Overlay.(*Overlay)
		if !ok {
			return nil, fault.New("runspace.Open", fault.Invalid, "", errors.New("a verify box needs an overlay"))
		}
		if r.Go {
			if err := b.Boxes.Warm(ctx); err != nil && ctx.Err() == nil {
				b.Logger.Warn("Go's own library could not be built ahead; its checks take longer", "error", err)
			}
		}
		mounts, release, err := b.Mounts.Verify(ctx, o.Overlay, r.Commit, r.Shell)
		if err != nil {
			return nil, err
		}
		spec.Mounts, spec.Env = boxes.WithDependencies(mounts, r.Dependencies)
		box, err := b.Pool.Run(func() (sandbox.Box, error) { return b.Boxes.Open(ctx, spec) })
		if err != nil {
			release()
			return nil, err
		}
		b.Once("the release of a snapshot", func(context.Context) error { <-box.Done(); release(); return nil })
		return runBox{box}, nil
	default:
		return nil, fault.New("runspace.Open", fault.Invalid, "", errors.New("runs have no box of kind "+string(r.Kind)))
	}
	return asRunBox(b.Pool.Run(func() (sandbox.Box, error) { return b.Boxes.Open(ctx, spec) }))
}

func asRunBox(b sandbox.Box, err error) (ports.Box, error) {
	if err != nil {
		return nil, err
	}
	return runBox{b}, nil
}

// Way implements ports.Egress: it is a run's box's access to the network.
func (b Boxes) Way(s ports.EgressScope, spec contract.EgressSpec, decided func(string, bool)) (http.Handler, error) {
	approved, err := egress.ParseRules(s.Approved)
	if err != nil {
		return nil, err
	}
	return b.Boxes.Way(b.Awake, egress.Scope{Run: s.Run, Task: s.Task, Box: s.Box, Kind: s.Kind}, spec, decided, approved...), nil
}
