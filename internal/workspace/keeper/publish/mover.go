package publish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/scan"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// MoverOptions say what a mover works with.
type MoverOptions struct {
	Store   *gitstore.Store
	Scanner *scan.Scanner
	Now     func() time.Time
	Logger  *slog.Logger
	Crash   func(point string)
	// May returns an error that says why the tree may not be changed now, or nil.
	May func() error
	// Heal restores what is damaged of an entry and says from which copy, "" when there is
	// no other copy.
	Heal func(ctx context.Context, en gitstore.Entry, p string) (string, error)
	// Boot identifies the machine's boot; disk.BootID when nil.
	Boot func() (string, error)
}

// Mover moves files of one live tree and journals each move before it is made. Its caller
// ensures that one change is under way at a time.
type Mover struct {
	store   *gitstore.Store
	scanner *scan.Scanner
	now     func() time.Time
	logger  *slog.Logger
	crash   func(point string)
	may     func() error
	heal    func(ctx context.Context, en gitstore.Entry, p string) (string, error)
	boot    func() (string, error)

	// Head is the newest commit, "" before the first, and Tree its tree: the next plan
	// starts from them, and a finished plan replaces them.
	Head, Tree string

	unsettled []unsettled // acts whose names may not be on disk, in their order
	turn      uint64      // number of the last act
	inOrder   bool        // whether changes of names come to the disk in their order
	restarted int64       // of acts that are done again: what was written later is newer than all; 0 if nothing is known

	agenda       agenda
	trashAge     trashAge
	trashThere   bool // the trash's folder is on disk
	intentsThere bool // the intents' folder is on disk
}

// NewMover returns the mover of a tree.
func NewMover(o MoverOptions) *Mover {
	if o.Boot == nil {
		o.Boot = disk.BootID
	}
	return &Mover{store: o.Store, scanner: o.Scanner, now: o.Now, logger: o.Logger, crash: o.Crash, may: o.May, heal: o.Heal, boot: o.Boot}
}

// Advance moves HEAD to a commit on top of it.
func (mv *Mover) Advance(c wire.Commit) error {
	if err := mv.store.MoveMain(c.Commit); err != nil {
		return err
	}
	mv.Head, mv.Tree = c.Commit, c.Tree
	mv.crash("commit.done")
	return nil
}

// MakeCommit makes a commit of a tree, dated now; no ref names it yet.
func (mv *Mover) MakeCommit(ctx context.Context, tree, parent string, note wire.Note, pushed ...string) (wire.Commit, error) {
	return mv.store.MakeCommit(ctx, tree, parent, note, mv.now().UnixMilli(), pushed...)
}

// MaterializeAt is materialize for an entry of a path; what is damaged of the entry is
// restored if there is another copy.
func (mv *Mover) MaterializeAt(ctx context.Context, name string, en gitstore.Entry, p wire.Path, sync bool) error {
	err := mv.store.Materialize(ctx, name, en, sync)
	if err == nil || ctx.Err() != nil || fault.NoSpace(err) {
		return err
	}
	if from, herr := mv.heal(ctx, en, string(p)); herr != nil || from == "" {
		return fmt.Errorf("%s: %w", p.Shown(), errors.Join(err, herr))
	}
	if err := disk.RemoveIfThere(name); err != nil {
		return err
	}
	return mv.store.Materialize(ctx, name, en, sync)
}
