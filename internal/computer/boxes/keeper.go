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
	"choir.dev/choiros/internal/supervise"
	"choir.dev/choiros/internal/tether"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Keeper keeps the keeper's box running: it is opened when it is first needed and again
// when it has ended, as a part of the computer. A call that was interrupted by its end is
// completed before the next call (see workspace.Recover).
type Keeper struct {
	boxes  *Boxes
	wanted chan struct{} // closed once it is needed
	want   func()        // closes it

	mu sync.Mutex
	// recover completes what an interrupted call left unfinished. It may be set after the
	// first box was opened.
	recover func(context.Context) error
	box     sandbox.Box
	keeper  wire.Keeper
	count   int
	ended   bool          // a box ended by itself
	tries   int           // how often opening a box came to an end
	err     error         // why the last of them failed
	tried   chan struct{} // closed and replaced when one came to an end
	givenUp error         // why it is not opened again
}

// NewKeeper makes a Keeper, whose Part has to run.
func (c *Boxes) NewKeeper() *Keeper {
	k := &Keeper{boxes: c, wanted: make(chan struct{}), tried: make(chan struct{})}
	k.want = sync.OnceFunc(func() { close(k.wanted) })
	return k
}

// Part is the keeper as a part of its computer, which can't do without.
func (k *Keeper) Part() supervise.Part {
	return supervise.Part{Name: "keeper", Run: k.run, GaveUp: k.giveUp, Waits: k.waits, PID: k.pid}
}

// Recover sets the function that is called, in the background, when a box was opened
// because the one before had ended.
func (k *Keeper) Recover(f func(context.Context) error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.recover = f
}

// Ended reports whether a box has ended by itself.
func (k *Keeper) Ended() bool {
	k.mu.Lock()
	box, ended := k.box, k.ended
	k.mu.Unlock()
	return ended || box != nil && Ended(box)
}

// run opens a box once it is needed, and returns when that has ended, or leaves it to Close
// of the driver's computer when the computer falls asleep.
func (k *Keeper) run(ctx context.Context) error {
	select {
	case <-k.wanted:
	case <-ctx.Done():
		return nil
	}
	box, err := k.open(ctx)
	if err != nil {
		return err
	}
	select {
	case <-box.Done():
	case <-ctx.Done():
		return nil
	}
	k.mu.Lock()
	k.ended = true
	k.mu.Unlock()
	return fmt.Errorf("the keeper's box ended: %w", box.Err())
}

// open opens a box, and tells those who wait for it how that ended.
func (k *Keeper) open(ctx context.Context) (_ sandbox.Box, err error) {
	k.mu.Lock()
	k.count++
	n, recover := k.count, k.recover
	k.mu.Unlock()
	var box sandbox.Box
	var keeper wire.Keeper
	err = supervise.Safely(func() (err error) { box, keeper, err = k.begin(ctx, n); return err })
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tries, k.err = k.tries+1, err
	close(k.tried)
	k.tried = make(chan struct{})
	if err != nil {
		return nil, err
	}
	k.box, k.keeper = box, keeper
	if n > 1 && recover != nil {
		// The engine rolls forward by itself; Recover appends the events that belong to it,
		// and waits for the call that found the box ended.
		k.boxes.options.Once("the recovery of the workspace", recover)
	}
	return box, nil
}

// giveUp ends the calls that wait for a box: there will be none.
func (k *Keeper) giveUp(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.givenUp = err
	close(k.tried)
	k.tried = make(chan struct{})
}

func (k *Keeper) waits() string {
	select {
	case <-k.wanted:
		return ""
	default:
		return "to be needed"
	}
}

func (k *Keeper) pid() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.box == nil {
		return 0
	}
	return k.box.PID()
}

// current returns the client of the running box, and the box. It waits for one that is being opened.
func (k *Keeper) current(ctx context.Context) (wire.Keeper, sandbox.Box, error) {
	const op = "boxes.keeper"
	k.want()
	k.mu.Lock()
	defer k.mu.Unlock()
	for began := k.tries; ; {
		if k.box != nil {
			select {
			case <-k.box.Done():
			default:
				return k.keeper, k.box, nil
			}
		}
		switch {
		case k.boxes.options.Awake.Err() != nil:
			return nil, nil, fault.New(op, fault.Unavailable, "The computer is going to sleep.", nil)
		case k.givenUp != nil:
			return nil, nil, fault.New(op, fault.Unavailable, "Wake the computer again.", k.givenUp)
		case k.tries > began && k.err != nil:
			return nil, nil, k.err
		}
		tried := k.tried
		k.mu.Unlock()
		select {
		case <-tried:
		case <-ctx.Done():
		case <-k.boxes.options.Awake.Done():
		}
		k.mu.Lock()
		if ctx.Err() != nil {
			return nil, nil, fault.Wrap(op, context.Cause(ctx))
		}
	}
}

// begin opens the n-th box.
func (k *Keeper) begin(ctx context.Context, n int) (sandbox.Box, wire.Keeper, error) {
	storage := k.boxes.options.Machine.Storage
	box, err := k.boxes.Open(ctx, sandbox.BoxSpec{
		ID: fmt.Sprintf("keeper-%d", n), Kind: contract.BoxKeeper, Root: "/computer",
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
		return nil, nil, err
	}
	watches := k.boxes.options.Machine.watches.keeper(box.Tether().Transport())
	k.boxes.options.Once("the count of a keeper's watches", func(context.Context) error {
		<-box.Done() // Close kills every box
		watches.end()
		return nil
	})
	return box, wire.NewClient(watches, k.boxes.writers.still), nil
}

// Call implements wire.Keeper.
func (k *Keeper) Call(ctx context.Context, verb string, req, reply any) error {
	in, box, err := k.current(ctx)
	if err != nil {
		return err
	}
	return explain(box, in.Call(ctx, verb, req, reply))
}

// explain adds why a box ended to the error of a call that it did not answer.
func explain(box sandbox.Box, err error) error {
	if fault.Is(err, fault.Unavailable) && Ended(box) {
		return errors.Join(err, box.Err())
	}
	return err
}

// Stream implements wire.Keeper.
func (k *Keeper) Stream(ctx context.Context, verb string, query any, body io.Reader) (*http.Response, error) {
	in, box, err := k.current(ctx)
	if err != nil {
		return nil, err
	}
	resp, err := in.Stream(ctx, verb, query, body)
	return resp, explain(box, err)
}
