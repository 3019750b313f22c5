package engine

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/process"
	"choir.dev/choiros/internal/workspace/keeper/collect"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/gitindex"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/heal"
	"choir.dev/choiros/internal/workspace/keeper/layers"
	"choir.dev/choiros/internal/workspace/keeper/outage"
	"choir.dev/choiros/internal/workspace/keeper/publish"
	"choir.dev/choiros/internal/workspace/keeper/pushed"
	"choir.dev/choiros/internal/workspace/keeper/scan"
	"choir.dev/choiros/internal/workspace/keeper/scrub"
	"choir.dev/choiros/internal/workspace/keeper/uppers"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Options say where an engine works and within what bounds.
type Options struct {
	Root      string // the live tree; .git is made in it
	Snapshots string // immutable checkouts, in layers
	Uppers    string // what tasks wrote: {task's path}/…, read-only
	Limits    wire.Limits
	Git       string           // git program; "git" when empty
	Now       func() time.Time // time.Now when nil
	Logger    *slog.Logger     // discards when nil
	Crash     func(point string)
	Boot      func() (string, error) // identifies the machine's boot; disk.BootID when nil
	Watched   int                    // how many directories of the tree may be watched if no request says it; negative: none, 0: untold
}

// untold is how many directories are watched if neither options nor requests say it.
const untold = 8192

// Engine works on one tree. Its methods may be called concurrently; those that
// change the tree or its history take turns.
type Engine struct {
	opts     Options
	store    *gitstore.Store
	scanner  *scan.Scanner
	moves    *publish.Mover
	gitIndex *gitindex.Index // for people's own git in a terminal
	layers   *layers.Layers
	uppers   *uppers.Uppers
	heal     *heal.Healer
	scrubs   *scrub.Scrubber
	pushes   *pushed.Receiver
	collects *collect.Collector
	lock     *os.File

	end    outage.Ending   // how the engine before this one ended, until Heal has checked
	shut   bool            // whether Shutdown was called
	onDisk map[string]bool // paths that the publish under way put in place durably

	mu      sync.Mutex   // one change at a time; guards what follows
	damaged *damagedHead // set if the newest commit can't be read

	suspects *outage.Suspects // new files that a power cut may have emptied; nil before they are read
	puts     []put            // those that no checkpoint is known to contain, oldest first
	keptPuts []wire.Commit    // commits that were made for such puts, and were not reported yet
	unseen   []wire.Path      // paths that the tree's watches missed, and that were not reported yet

}

// Open opens the engine on a live tree, making the repository if there is none, and locks
// it until Close.
func Open(ctx context.Context, opts Options) (_ *Engine, err error) {
	const op = "keeper.Open"
	if opts.Git == "" {
		opts.Git = "git"
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	opts.Limits = opts.Limits.WithDefaults()
	root, err := filepath.Abs(opts.Root)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	opts.Root = root
	e := &Engine{opts: opts, uppers: uppers.New(opts.Uppers, opts.Limits.WalkEntries)}
	e.store = gitstore.NewStore(gitstore.StoreOptions{Root: root, Git: opts.Git, Limits: opts.Limits, Crash: e.crash})
	e.scanner = scan.NewScanner(scan.ScannerOptions{Store: e.store, Limits: opts.Limits, May: e.whole, Without: func(cap *scan.Capture, cands []scan.Candidate, write bool) ([]scan.Candidate, error) {
		return e.suspects.Without(cap, cands, write)
	}, Watched: cmp.Or(opts.Watched, untold), WatchFault: func(paths []wire.Path) { e.unseen = paths }})
	e.gitIndex = gitindex.Open(e.store)
	e.openCare()
	e.moves = publish.NewMover(publish.MoverOptions{Store: e.store, Scanner: e.scanner, Now: opts.Now, Logger: opts.Logger, Crash: e.crash, May: e.whole, Heal: e.heal.Entry, Boot: opts.Boot})
	e.collects = collect.New(collect.Options{Store: e.store, Moves: e.moves, Alone: e.alone})
	e.pushes = pushed.New(pushed.Options{Store: e.store, Scanner: e.scanner, Moves: e.moves, Alone: e.alone, Limits: opts.Limits, Crash: e.crash})
	e.layers = layers.New(layers.Options{Dir: opts.Snapshots, Store: e.store, Put: e.moves.MaterializeAt, Crash: e.crash})
	defer func() {
		if err != nil {
			err = errors.Join(fault.Wrap(op, err), e.Close())
		}
	}()
	if e.scanner.Root, err = unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return nil, &os.PathError{Op: "open", Path: root, Err: err}
	}
	if err := e.prepareGitDir(ctx); err != nil {
		return nil, err
	}
	if e.end, err = outage.Begin(e.store.Work("open")); err != nil {
		return nil, err
	}
	if e.end != outage.Clean {
		if err := e.store.Chunks.SyncNames(); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(e.moves.LoadTrashAge(), e.moves.RecoverTrash(), e.loadPuts()); err != nil {
		return nil, err
	}
	if err := e.loadHead(ctx); err != nil {
		return nil, err
	}
	if err := e.heal.Newest(ctx, e.captured()); err != nil {
		return nil, err
	}
	if e.end == outage.Unknown && e.moves.Head == "" && e.damaged == nil {
		e.end = outage.Clean // it is new
	}
	if e.end != outage.Unknown { // otherwise what was not synced may differ from what it was
		e.loadStats()
	}
	e.suspects, err = outage.LoadSuspects(e.store.Work("doubted.json"), opts.Logger)
	return e, err
}

// Close ends the engine and its helper processes.
func (e *Engine) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var errs []error
	if e.scanner.Index != nil {
		errs = append(errs, e.shutdown(context.Background()))
		e.scanner.Index = nil
	}
	errs = append(errs, e.store.Close(), e.scanner.Close())
	if e.lock != nil {
		errs = append(errs, process.Unlock(e.lock))
		e.lock = nil
	}
	if e.scanner.Root >= 0 {
		errs = append(errs, unix.Close(e.scanner.Root))
		e.scanner.Root = -1
	}
	return fault.Wrap("keeper.Close", errors.Join(errs...))
}

func (e *Engine) crash(point string) {
	if e.opts.Crash != nil {
		e.opts.Crash(point)
	}
}

// prepareGitDir makes .git what the engine relies on, whatever it was before: an imported
// or restored one could have configuration, alternates or grafts chosen by somebody else.
func (e *Engine) prepareGitDir(ctx context.Context) error {
	fresh, err := e.store.Prepare(ctx)
	if err != nil {
		return err
	}
	if e.lock, err = disk.Lock(e.store.Work("lock")); err != nil {
		return err
	}
	if err := e.store.OpenJournal(); err != nil {
		return err
	}
	if fresh || !defence.Off(defence.GitOwn) {
		if err := e.store.Own(); err != nil {
			return err
		}
	}
	// This comes before the records that it needs are cleared away.
	restarted, err := outage.Restarted(e.store.Work("open"))
	if err = errors.Join(err, e.moves.DropUndone(), e.moves.RecoverReceived()); err == nil {
		err = e.moves.RedoActs(ctx, restarted)
	}
	if err != nil {
		return err
	}
	return e.store.RemoveStale()
}
