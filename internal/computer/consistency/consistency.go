package consistency

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Check compares the parts of one computer with each other, before any of its boxes is
// opened.
type Check struct {
	CID     contract.CID
	Volumes Volumes
	State   *state.Store
	Log     Log
	Keeper  Keeper // opens its box at the first call, after all checks that need none
}

// Volumes is what Check needs of the place where the files and their history are.
type Volumes interface {
	Exists(ctx context.Context, v sandbox.Volume) (bool, error)
	History(ctx context.Context) (fs.FS, error)
}

// Log is what Check needs of the computer's log.
type Log interface {
	Last() uint64
	Payload(ctx context.Context, e contract.Event) (contract.Payload, error)
}

// Keeper is what Check needs of the keeper.
type Keeper interface {
	Call(ctx context.Context, verb string, in, out any) error
	// Ended reports whether its box ended by itself.
	Ended() bool
}

// IsHistoryDamage reports whether an error is damage of the history: only such an error
// justifies a recovery that gives the history up.
func IsHistoryDamage(err error) bool { return errors.As(err, new(ofHistory)) }

// OfHistory marks an error as damage of the history.
func OfHistory(err error) error { return ofHistory{err} }

// OfOpening classifies why a tree can't be opened by its keeper: an error that is not the
// disk's, the box's or the caller's is the tree's.
func OfOpening(err error) error {
	if !fault.Is(err, fault.Internal) {
		return err
	}
	return fault.New("consistency.OfOpening", fault.Damaged, "Recover it: if the history can't be had, it begins anew with the files as they are, and the old one is kept aside.",
		OfHistory(fmt.Errorf("the files or their history can't be opened: %w", err)))
}

type ofHistory struct{ error }

func (e ofHistory) Unwrap() error { return e.error }

// Run compares the git history with the log before anything is written to either: the
// newest checkpoint in the log must be in the history, and the history may not refer to an
// event that the log does not have.
func (c Check) Run(ctx context.Context) error {
	if defence.Off(defence.HistoryLog) {
		return nil
	}
	known, err := c.State.Checkpoints(ctx, 0, 1)
	if err != nil {
		return err
	}
	since, continues, err := c.recoveredHistory(ctx)
	if err != nil {
		return err
	}
	if len(known) > 0 && known[0].Sequence < since {
		known = nil // a recovery has given it up
	}
	damaged := c.damaged
	history, new, err := c.history(ctx, known)
	if err != nil || new {
		return err
	}
	at, err := branch(history)
	if err == nil && len(known) > 0 && at != known[0].Commit {
		given, err := wasGivenUp(history, known[0].Commit)
		if err != nil {
			return err
		}
		if given {
			known = nil // a repair was under way, and is continued
		}
	}
	switch {
	case fault.Is(err, fault.Unavailable):
		return err // it could not be checked
	case err != nil:
		return damaged("the branch of the history in workspace/.git can't be read: %s", fault.Text(err))
	case at == "" && len(known) > 0:
		return damaged("the history in workspace/.git has no branch; the newest checkpoint that the log knows is %s", known[0].Commit)
	case at == "" || len(known) > 0 && at == known[0].Commit:
		return nil
	default:
		older, err := c.State.Checkpoint(ctx, at)
		if err == nil && len(known) > 0 && older.Sequence < known[0].Sequence {
			return damaged("the history in workspace/.git ends at %s, made at event %d; the newest checkpoint that the log knows is %s", at, older.Sequence, known[0].Commit)
		}
		if err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
	}
	if has, err := holds(history, at); fault.Is(err, fault.Unavailable) {
		return err
	} else if err != nil || !has {
		return errors.Join(err, damaged("the history in workspace/.git ends at %s, which is not in it", at))
	}
	return c.compareCommits(ctx, known, at, continues)
}

// damaged makes the error for a damaged history.
func (c Check) damaged(format string, args ...any) error {
	hint := fmt.Sprintf("Press Recover on the console, run choir recover --history %s with choir up stopped, or restore the data directory from a backup.", c.CID)
	return fault.New("consistency.Check", fault.Damaged, hint, ofHistory{fmt.Errorf(format, args...)})
}

// compareCommits compares the history, which ends at a commit, with the newest checkpoints
// in the log, in a box.
func (c Check) compareCommits(ctx context.Context, known []state.Checkpoint, at, continues string) error {
	damaged := c.damaged
	// This comes last, for a box adds events: a crash may have kept the log from getting
	// the events of the newest commits.
	var commits []wire.Commit
	look := historyLook
	if at == continues {
		look = historyMost // the log needs the events of all of them
	}
	if err := c.Keeper.Call(ctx, "list", wire.ListRequest{Limit: look}, &commits); err != nil {
		if ctx.Err() != nil || fault.Is(err, fault.DiskFull) || fault.Is(err, fault.Unavailable) && !c.Keeper.Ended() {
			return err
		}
		return damaged("the history in workspace/.git can't be read: %s", fault.Text(err))
	}
	if len(commits) > 0 && commits[0].Seq > c.Log.Last() && at != continues {
		return damaged("the newest checkpoint %s was made at event %d; the log ends at event %d", commits[0].Commit, commits[0].Seq, c.Log.Last())
	}
	if len(known) == 0 || slices.ContainsFunc(commits, func(k wire.Commit) bool { return k.Commit == known[0].Commit }) {
		return nil
	}
	newest := "nothing"
	if len(commits) > 0 {
		newest = commits[0].Commit
	}
	return damaged("the history in workspace/.git ends at %s and does not hold %s, the newest checkpoint that the log knows", newest, known[0].Commit)
}

// history is the history on disk; new says that there is none and that no checkpoint is
// known.
func (c Check) history(ctx context.Context, known []state.Checkpoint) (_ fs.FS, new bool, err error) {
	for _, part := range []sandbox.Volume{sandbox.Live(""), sandbox.Live(".git")} {
		there, err := c.Volumes.Exists(ctx, part)
		switch name := path.Join("workspace", part.Path); {
		case fault.Is(err, fault.Denied):
			return nil, false, c.damaged("%s is no folder: %s", name, fault.Text(err))
		case err != nil:
			return nil, false, fault.Wrap("consistency.Check", err)
		case !there && len(known) > 0:
			return nil, false, c.damaged("%s is gone, and the log knows %s as its newest checkpoint", name, known[0].Commit)
		case !there:
			return nil, true, nil // openWorkspace will make it
		}
	}
	history, err := c.Volumes.History(ctx)
	return history, false, fault.Wrap("consistency.Check", err)
}

// branch reads where the history ends, without git; "" means that it has not begun.
func branch(history fs.FS) (string, error) {
	b, err := readRegular(history, "refs/heads/main")
	if errors.Is(err, fs.ErrNotExist) {
		packed, perr := readRegular(history, "packed-refs")
		if perr != nil && !errors.Is(perr, fs.ErrNotExist) {
			return "", perr
		}
		for line := range strings.Lines(string(packed)) {
			if id, ok := strings.CutSuffix(strings.TrimSpace(line), " refs/heads/main"); ok {
				b, err = []byte(id), nil
			}
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	id := strings.TrimSpace(string(b))
	if err == nil && (len(id) != 40 || strings.Trim(id, "0123456789abcdef") != "") {
		err = fmt.Errorf("it holds %.60q, which is no commit", id)
	}
	return id, err
}

// wasGivenUp reports whether a repair found a checkpoint damaged and went back before it. A
// copy of the history that is older than the log has no record of that checkpoint, so it
// can't claim that.
func wasGivenUp(history fs.FS, id string) (bool, error) {
	info, err := fs.Stat(history, strings.TrimPrefix(wire.DamagedFile(id), ".git/"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && info.Mode().IsRegular(), fault.Wrap("consistency.Check", err)
}

// recoveredHistory is what recoveries recorded about the history: the sequence of the
// newest that gave it up, 0 when none did, and the commit at which it stood at the newest
// that could not recover the events of its checkpoints.
func (c Check) recoveredHistory(ctx context.Context) (begins uint64, continues string, err error) {
	for after := uint64(0); ; {
		page, err := c.State.Events(ctx, state.EventFilter{After: after, Types: []string{"log.recovered"}, Limit: 100})
		if err != nil || len(page) == 0 {
			return begins, continues, err
		}
		for _, e := range page {
			after = e.Sequence
			p, err := c.Log.Payload(ctx, e.Event)
			if err != nil {
				return 0, "", err
			}
			r, ok := p.(*contract.LogRecovered)
			if ok && r.History {
				begins = e.Sequence
			}
			if ok && r.Continues != "" {
				continues = r.Continues
			}
		}
	}
}

// historyLook is how far back the newest checkpoint of the log is searched for: only what a
// crash left without an event is newer. historyMost is the same after a recovery that could
// not recover the events of checkpoints.
const (
	historyLook = 100
	historyMost = 10_000 // the keeper lists no more
)
