package boxes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/tether"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Keeper keeps the keeper's box running: it is opened when it is first needed and again
// when it has ended. A call that was interrupted by its end is completed before the next
// call (see workspace.Recover).
type Keeper struct {
	boxes *Boxes
	// recover completes what an interrupted call left unfinished. It may be set after the
	// first box was opened.
	recover func(context.Context) error

	mu     sync.Mutex // held while a box is being opened
	box    sandbox.Box
	keeper wire.Keeper
	count  int
}

// NewKeeper makes a Keeper; its box is opened when it is first needed.
func (c *Boxes) NewKeeper() *Keeper { return &Keeper{boxes: c} }

// Recover sets the function that is called, in the background, when a box was opened
// because the one before had ended.
func (k *Keeper) Recover(f func(context.Context) error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.recover = f
}

// Ended reports whether the box has ended.
func (k *Keeper) Ended() bool {
	k.mu.Lock()
	box := k.box
	k.mu.Unlock()
	return box != nil && Ended(box)
}

// current returns the client of the running box, opening one if there is none.
func (k *Keeper) current(ctx context.Context) (wire.Keeper, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.box != nil {
		select {
		case <-k.box.Done():
			if k.boxes.options.Awake.Err() != nil {
				break
			}
			k.boxes.options.Logger.Warn("the keeper's box ended; opening another", "error", k.box.Err())
		default:
			return k.keeper, nil
		}
	}
	if k.boxes.options.Awake.Err() != nil {
		return nil, fault.New("boxes.keeper", fault.Unavailable, "The computer is going to sleep.", nil)
	}
	k.count++
	storage := k.boxes.options.Machine.Storage
	box, err := k.boxes.Open(ctx, sandbox.BoxSpec{
		ID: fmt.Sprintf("keeper-%d", k.count), Kind: contract.BoxKeeper, Root: "/computer",
		Mounts: []sandbox.Mount{
			{Source: sandbox.Live(""), Target: "/computer", Mode: sandbox.ReadWrite},
			{Source: sandbox.Snapshot(""), Target: "/snapshots", Mode: sandbox.ReadWrite},
			{Source: sandbox.Written(""), Target: "/uppers", Mode: sandbox.ReadOnly},
		},
		Env:    wire.Limits{LargestFile: int64(storage.LargeFileMB) << 20, ChunkBytes: int64(storage.LargeFilesMB) << 20, Files: storage.Files}.Env(),
		Lock:   sandbox.Live(""),
		Limits: sandbox.Limits{MemoryBytes: int64(k.boxes.options.Machine.Runtime.MemoryMB) << 20, Pids: k.boxes.options.Machine.Runtime.Pids},
		// Files are read through it, of which more than one frame shall be under way. It asks
		// the host for nothing, so a quarter of the streams is enough, and what it can make the
		// host hold is what any box can.
		TetherLimits: tether.Limits{Window: 1 << 20, Streams: 64},
	})
	if err != nil {
		return nil, err
	}
	watches := k.boxes.options.Machine.watches.keeper(box.Tether().Transport())
	k.boxes.options.Once("the count of a keeper's watches", func(context.Context) error {
		<-box.Done() // Close kills every box
		watches.end()
		return nil
	})
	k.box, k.keeper = box, wire.NewClient(watches, k.boxes.writers.still)
	if k.count > 1 && k.recover != nil {
		// The engine rolls forward by itself; Recover appends the events that belong to it,
		// and waits for the call that found the box ended.
		k.boxes.options.Once("the recovery of the workspace", k.recover)
	}
	return k.keeper, nil
}

// Call implements wire.Keeper.
func (k *Keeper) Call(ctx context.Context, verb string, req, reply any) error {
	in, err := k.current(ctx)
	if err != nil {
		return err
	}
	return k.explain(in.Call(ctx, verb, req, reply))
}

// explain adds why the box ended to the error of a call that it did not answer.
func (k *Keeper) explain(err error) error {
	if !fault.Is(err, fault.Unavailable) {
		return err
	}
	k.mu.Lock()
	box := k.box
	k.mu.Unlock()
	if Ended(box) {
		return errors.Join(err, box.Err())
	}
	return err
}

// Stream implements wire.Keeper.
func (k *Keeper) Stream(ctx context.Context, verb string, query any, body io.Reader) (*http.Response, error) {
	in, err := k.current(ctx)
	if err != nil {
		return nil, err
	}
	resp, err := in.Stream(ctx, verb, query, body)
	return resp, k.explain(err)
}
