// Package look is how the Director sees the files: by a box of its run with a copy of the
// tree, in which only calls that read are made. Nothing of it is ever published.
package look

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/dispatch/loops"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/supervise"
	"choir.dev/choiros/internal/tool"
)

// Options of a Box.
type Options struct {
	Boxes     ports.Boxes
	Workspace ports.Workspace
	Logger    *slog.Logger
	Run       string
	Times     ports.Times
	// Go calls f in a goroutine that the end of the run waits for.
	Go func(f func())
}

// Box is the box in which a run's Director looks. It is opened at the first call, on the tree
// as it is then. It is safe for concurrent use; calls are made one after another.
type Box struct {
	Options
	mu      sync.Mutex
	open    ports.Box
	overlay ports.Overlay
	at      string // the checkpoint that the tree is of
	opened  int
	stale   bool // whether the next call looks at a newer tree
}

// New opens nothing.
func New(o Options) *Box { return &Box{Options: o} }

// Call makes one call of a tool that only reads.
func (b *Box) Call(ctx context.Context, t tool.Tool, args json.RawMessage) (tool.Result, error) {
	if !t.ReadOnly() || t.Executor != tool.Box {
		return tool.Result{}, fault.New("dispatch.look", fault.Denied, "", fmt.Errorf("the Director looks and never writes or runs; %s is for tasks", t.Name))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for try := 1; ; try++ {
		if err := b.ready(ctx); err != nil {
			return tool.Result{}, err
		}
		res, err := t.Within(b.Times.Grace).Do(ctx, args, func(ctx context.Context) (tool.Result, error) {
			return loops.CallTool(ctx, b.open, t.Name, args, b.at)
		})
		if err == nil || ctx.Err() != nil || try == 2 {
			return res, err
		}
		// The box died under the call, or hangs. Reading again harms nothing.
		b.end()
	}
}

// ref names the overlay. It is no task's, so the sweep at a start removes what a death left.
func (b *Box) ref() ports.TaskRef {
	return ports.TaskRef{Run: b.Run, Task: contract.DeriveID(b.Run, "look"), Attempt: b.opened}
}

// ready opens the box on the tree as it is now, unless it is open and nothing has changed.
func (b *Box) ready(ctx context.Context) error {
	if b.open != nil && !b.stale && !ended(b.open) {
		return nil
	}
	commit, err := b.Workspace.Checkpoint(ctx, ports.TaskRef{Run: b.Run}, "As the Director looks at it")
	if err != nil {
		return err
	}
	b.end()
	b.opened, b.stale = b.opened+1, false
	if b.overlay, err = b.Workspace.Begin(ctx, b.ref(), ports.Start{Base: commit}); err != nil {
		b.overlay = nil
		return err
	}
	b.at = commit
	b.open, err = b.Boxes.Open(ctx, ports.BoxRequest{ID: loops.BoxID("l"), Kind: contract.BoxTask, Run: b.Run, Overlay: b.overlay})
	if err != nil {
		b.open = nil
		b.end()
	}
	return err
}

func ended(box ports.Box) bool {
	select {
	case <-box.Done():
		return true
	default:
		return false
	}
}

// end ends the box, and has its copy of the tree removed, which nobody waits for but the end of the run.
func (b *Box) end() {
	if b.open != nil {
		loops.Kill(b.Logger, b.Run, b.open)
		b.open = nil
	}
	if b.overlay == nil {
		return
	}
	overlay := b.overlay
	b.overlay, b.at = nil, ""
	b.Go(func() {
		ctx, cancel := awake.WithTimeout(context.Background(), b.Times.CleanUp)
		defer cancel()
		err := supervise.Safely(func() error { return b.Workspace.Drop(ctx, overlay) })
		if err != nil && !fault.Is(err, fault.NotFound) {
			b.Logger.Warn("the copy of the tree that a Director looked at could not be removed; it takes up space until the next start", "run", b.Run, "error", err)
		}
	})
}

// Changed says that the tree has changed: the next call looks at it as it is then.
func (b *Box) Changed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stale = true
}

// Close ends the box. It may be called more than once.
func (b *Box) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.end()
}
