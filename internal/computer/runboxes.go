package computer

import (
	"context"
	"errors"
	"net/http"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer/boxes"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/sandbox"
)

// note appends one event of the system's.
func (c *Computer) note(ctx context.Context, eventType string, data contract.Payload) error {
	_, err := c.log.Append(ctx, contract.Draft{Actor: contract.System(), Type: eventType, Data: data})
	return err
}

// taskBoxes opens the boxes of runs.
type taskBoxes struct{ c *Computer }

// runBox is a sandbox.Box as the dispatcher sees it.
type runBox struct{ sandbox.Box }

func (b runBox) Transport() http.RoundTripper { return b.Tether().Transport() }

// Open implements dispatch.Boxes.
func (t taskBoxes) Open(ctx context.Context, r dispatch.BoxRequest) (dispatch.Box, error) {
	c := t.c
	spec := sandbox.BoxSpec{ID: r.ID, Kind: r.Kind, Handler: r.Handler, Proxy: r.Network, Limits: c.boxes.Limits()}
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
			if err := c.boxes.Warm(ctx); err != nil && ctx.Err() == nil {
				c.logger.Warn("Go's own library could not be built ahead; its checks take longer", "error", err)
			}
		}
		mounts, release, err := c.verifyMounts(ctx, o, r.Commit, r.Shell)
		if err != nil {
			return nil, err
		}
		spec.Mounts, spec.Env = boxes.WithDependencies(mounts, r.Dependencies)
		b, err := c.boxes.Open(ctx, spec)
		if err != nil {
			release()
			return nil, err
		}
		c.once("the release of a snapshot", func(context.Context) error { <-b.Done(); release(); return nil })
		return runBox{b}, nil
	default:
		return nil, fault.New("computer.boxes", fault.Invalid, "", errors.New("runs have no box of kind "+string(r.Kind)))
	}
	b, err := c.boxes.Open(ctx, spec)
	if err != nil {
		return nil, err
	}
	return runBox{b}, nil
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
