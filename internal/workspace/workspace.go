package workspace

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/supervise"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Log appends to the computer's log. A draft whose id is stored already, with
// the same content, is a no-op.
type Log interface {
	Append(ctx context.Context, drafts ...contract.Draft) ([]contract.Event, error)
	// AppendEach may store the first of them without the rest if it does not
	// return, and adds the rest when it is called again.
	AppendEach(ctx context.Context, drafts ...contract.Draft) ([]contract.Event, error)
}

// Options say what a workspace works with.
type Options struct {
	CID    contract.CID
	Keeper wire.Keeper
	Log    Log
	// Volumes are the computer's; overlays are made in them.
	Volumes sandbox.Volumes
	// Seq returns the last sequence that is projected and mirrored; 0 when nil.
	Seq func() uint64
	Now func() time.Time
	// Unseen says that what was at work in the tree last was a command that nobody
	// saw end: the first checkpoint is the one behind it.
	Unseen bool
	// Whole says that the files are those of another's checkpoint: where there is no
	// history yet, the first checkpoint has all of them, also what is ignored now.
	Whole bool
	// AutoTasks and AutoInterval say after how many tasks, and how often, a
	// checkpoint is made by itself when something changed; 50 and 5 minutes
	// when zero, never when negative.
	AutoTasks    int
	AutoInterval time.Duration
	// KeptTrees and KeptFor bound how many trees of unpublished tasks are kept, and for how
	// long; 20 and 30 days when zero.
	KeptTrees int
	KeptFor   time.Duration
	Logger    *slog.Logger
}

// Workspace is one computer's files and history. Its methods may be called
// concurrently; those that change something take turns.
type Workspace struct {
	opts  Options
	turn  chan struct{} // held by whoever changes something
	puts  chan struct{} // holds one for each put that is received
	reads chan struct{} // holds one for each file that OpenFile opened and nobody closed
	tasks int           // finished since the last checkpoint

	unlogged int  // checkpoints logged since the keeper was told
	behind   bool // something failed since the log was told all that the keeper did

	mu        sync.Mutex
	unwatched string              // why the keeper watches nothing
	held      map[string][]string // the layers that overlays and snapshots have, by whose they are
	live      map[string]bool     // overlays that published something while their task worked
	said      []string            // operations that the log has and the keeper was not told of yet

	saying chan struct{} // has one when said has the first

	stop context.CancelFunc
	done sync.WaitGroup
}

// Open returns the workspace behind a keeper. It recovers what a crash left
// half done before anything else can happen.
func Open(ctx context.Context, opts Options) (*Workspace, error) {
	const op = "workspace.Open"
	if err := opts.CID.Validate(); err != nil {
		return nil, fault.New(op, fault.Invalid, "", err)
	}
	if opts.Keeper == nil || opts.Log == nil || opts.Volumes == nil {
		return nil, fault.New(op, fault.Internal, "", errors.New("a keeper, a log and the computer's volumes are required"))
	}
	if opts.Seq == nil {
		opts.Seq = func() uint64 { return 0 }
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.AutoTasks == 0 {
		opts.AutoTasks = 50
	}
	if opts.AutoInterval == 0 {
		opts.AutoInterval = 5 * time.Minute
	}
	if opts.KeptTrees == 0 {
		opts.KeptTrees = defaultKeptTrees
	}
	if opts.KeptFor == 0 {
		opts.KeptFor = defaultKeptFor
	}
	w := &Workspace{opts: opts, turn: make(chan struct{}, 1), puts: make(chan struct{}, maxPuts), reads: make(chan struct{}, maxReads), held: map[string][]string{}, live: map[string]bool{}, saying: make(chan struct{}, 1)}
	if err := w.recover(ctx, true); err != nil {
		return nil, fault.Wrap(op, err)
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	w.stop = stop
	w.done.Go(func() { w.confirmLogged(run) })
	if opts.AutoInterval > 0 {
		w.done.Go(func() { w.auto(run) })
	}
	return w, nil
}

// Close ends the automatic checkpoints and removals, waits for those under way
// and has the keeper shut down. No program may be at work in the tree any more.
func (w *Workspace) Close() error {
	w.stop()
	w.done.Wait()
	// A keeper that does not answer has not shut down, and the next one looks
	// at the files: nothing is lost by that.
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTime)
	defer cancel()
	if err := w.shutdown(ctx); err != nil {
		w.opts.Logger.Info("the keeper did not shut down; the files are looked at when the computer wakes", "computer", w.opts.CID, "error", err)
	}
	return nil
}

// shutdownTime bounds how long a keeper may take to shut down.
const shutdownTime = 20 * time.Second

func (w *Workspace) shutdown(ctx context.Context) error {
	release, err := w.wait(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := w.tellKeeperLogged(ctx); err != nil {
		return err
	}
	return w.opts.Keeper.Call(ctx, "shutdown", wire.Empty{}, nil)
}

// wait waits for its turn to change something.
func (w *Workspace) wait(ctx context.Context) (release func(), err error) {
	select {
	case w.turn <- struct{}{}:
		return func() { <-w.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// take waits for its turn to change something; release is given what came of it.
// After a failure, as on a full disk, the keeper may have done what the log was
// not told of: that is told before anything else is done.
func (w *Workspace) take(ctx context.Context) (release func(*error), err error) {
	over, err := w.wait(ctx)
	if err != nil {
		return nil, err
	}
	if w.behind {
		if err := w.catchUp(ctx); err != nil {
			over()
			return nil, err
		}
	}
	return func(err *error) {
		w.behind = w.behind || *err != nil
		over()
	}, nil
}

// catchUp tells the log what the keeper did and the log does not have.
func (w *Workspace) catchUp(ctx context.Context) error {
	var applied []wire.Applied
	if err := w.opts.Keeper.Call(ctx, "unlogged", wire.Empty{}, &applied); err != nil {
		return err
	}
	return w.tellAll(ctx, applied)
}

// tellAll tells the log of all checkpoints, of what was applied, and of operations.
func (w *Workspace) tellAll(ctx context.Context, applied []wire.Applied) error {
	if err := w.logCheckpoints(ctx); err != nil {
		return err
	}
	for _, a := range applied {
		if err := w.logApplied(ctx, a); err != nil {
			return err
		}
	}
	var operations []wire.Operation
	if err := w.opts.Keeper.Call(ctx, "unlogged-operations", wire.Empty{}, &operations); err != nil {
		return err
	}
	if err := w.tell(ctx, operations...); err != nil {
		return err
	}
	w.behind = false
	return nil
}

// auto makes a checkpoint every AutoInterval when something changed.
func (w *Workspace) auto(ctx context.Context) {
	tick := time.NewTicker(w.opts.AutoInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := supervise.Safely(func() error {
			_, err := w.Checkpoint(ctx, CheckpointRequest{Kind: contract.CheckpointAuto, Message: "Automatic checkpoint"})
			return err
		})
		if err != nil && ctx.Err() == nil {
			w.opts.Logger.ErrorContext(ctx, "automatic checkpoint failed", "computer", w.opts.CID, "error", err, "stack", supervise.Stack(err))
		}
	}
}

// Recover finishes what a crash left half done: publishes and restores that had
// begun are rolled forward, and checkpoints, writes and removals that took effect
// without their event get it. It may
// be called again, such as after the keeper box was replaced.
func (w *Workspace) Recover(ctx context.Context) error { return w.recover(ctx, false) }

// recover does it; still says that no program can be at work in the tree, so
// that what an unclean end damaged may be put back.
func (w *Workspace) recover(ctx context.Context, still bool) error {
	const op = "workspace.Recover"
	release, err := w.wait(ctx)
	if err != nil {
		return fault.Wrap(op, err)
	}
	defer release()
	var applied []wire.Applied
	err = w.opts.Keeper.Call(ctx, "unlogged", wire.Empty{}, &applied)
	if fault.Is(err, fault.Damaged) && still {
		err = w.repair(ctx, err)
		if err == nil {
			err = w.opts.Keeper.Call(ctx, "unlogged", wire.Empty{}, &applied)
		}
	}
	if err != nil {
		return fault.Wrap(op, err)
	}
	if err := w.tellAll(ctx, applied); err != nil {
		return fault.Wrap(op, err)
	}
	// What the user edited while nobody looked becomes a checkpoint of its own;
	// on a new computer this is the initial one.
	start := CheckpointRequest{Kind: contract.CheckpointAuto, Message: "What was there at start-up", whole: w.opts.Whole}
	if still {
		if w.opts.Unseen {
			start.Kind, start.Message = contract.CheckpointAfter, "After a command that nobody saw end"
		}
		var healed wire.HealReply
		if err := w.opts.Keeper.Call(ctx, "heal", wire.Empty{}, &healed); err != nil {
			return fault.Wrap(op, err)
		}
		if text := healText(healed); text != "" {
			w.opts.Logger.WarnContext(ctx, "files were damaged by an unclean end", "computer", w.opts.CID, "healed", len(healed.Healed), "lost", len(healed.Lost), "suspect", len(healed.Suspect))
			start.Message, start.Force = text, true
		}
	}
	if _, err := w.checkpoint(ctx, start); err != nil {
		return fault.Wrap(op, err)
	}
	return fault.Wrap(op, w.logCheckpoints(ctx))
}

// healText says what was put back and what was left out, for the checkpoint that
// is made then.
func healText(h wire.HealReply) string {
	if len(h.Healed)+len(h.Lost)+len(h.Suspect) == 0 {
		return ""
	}
	said := []string{fmt.Sprintf("%d damaged files were put back as they were in checkpoint %.12s", len(h.Healed), h.Checkpoint)}
	if len(h.Lost) > 0 {
		said = append(said, fmt.Sprintf("%d could not be", len(h.Lost)))
	}
	if len(h.Suspect) > 0 {
		said = append(said, fmt.Sprintf("%d new ones are in no checkpoint until somebody writes or touches them, for they are as a power cut leaves files", len(h.Suspect)))
	}
	var lines []string
	for _, group := range []struct {
		files []wire.Healed
		what  string
	}{
		{h.Lost, "its copy is damaged too"}, {h.Suspect, "it is new, so there is nothing to put back: write it again, or touch it if that is how it should be"}, {h.Healed, "put back"},
	} {
		for _, f := range group.files {
			lines = append(lines, fmt.Sprintf("%s %s; %s", strings.ReplaceAll(f.Path.Shown(), "\x00", ""), f.Reason, group.what))
		}
	}
	if n := len(lines); n > 20 {
		lines = append(lines[:20], fmt.Sprintf("and %d more", n-20))
	}
	return "The machine stopped without shutting down: " + strings.Join(said, ", ") + "\n\n" + strings.Join(lines, "\n")
}

// SettleOverlay makes what a task has written durable. It reports whether PublishLive may have
// anything to publish of it.
func (w *Workspace) SettleOverlay(ctx context.Context, o Overlay) (live bool, err error) {
	var settled wire.SettleUpperReply
	err = w.settle(ctx, "settle-upper", wire.SettleUpperRequest{Upper: o.ID + "/upper", Paths: LivePaths}, &settled)
	return settled.Touched || w.isLive(o.ID), fault.Wrap("workspace.SettleOverlay", err)
}

// Settle makes what was written to the live tree since the newest checkpoint
// durable, so that it may be acknowledged.
func (w *Workspace) Settle(ctx context.Context) error {
	return fault.Wrap("workspace.Settle", w.settle(ctx, "settle", wire.Empty{}, nil))
}

// settle asks twice: the keeper may die under it, and the next one does it as well.
func (w *Workspace) settle(ctx context.Context, method string, req, reply any) error {
	err := w.opts.Keeper.Call(ctx, method, req, reply)
	if fault.Is(err, fault.Unavailable) {
		err = w.opts.Keeper.Call(ctx, method, req, reply)
	}
	return err
}

// logCheckpoints appends the event of every checkpoint that the keeper has not
// been told is logged. Ids derive from the commits, so repeating is harmless.
func (w *Workspace) logCheckpoints(ctx context.Context) error {
	var commits []wire.Commit
	if err := w.opts.Keeper.Call(ctx, "unmarked", wire.Empty{}, &commits); err != nil {
		return err
	}
	if len(commits) == 0 {
		return nil
	}
	for some := range slices.Chunk(commits, maxLogged) {
		if err := w.appendCheckpoints(ctx, some); err != nil {
			return err
		}
		if err := w.opts.Keeper.Call(ctx, "mark", wire.CommitRequest{Commit: some[len(some)-1].Commit}, nil); err != nil {
			return err
		}
	}
	w.unlogged = 0
	return nil
}
