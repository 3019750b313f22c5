package computer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// HurtHistory reports whether an error is damage of the history: recovering from
// it may give it up, which no other damage is a reason for.
func HurtHistory(err error) bool { return errors.As(err, new(ofHistory)) }

// ofHistory marks damage of the history.
type ofHistory struct{ error }

func (e ofHistory) Unwrap() error { return e.error }

// compareHistory holds the git history against the log before anything is
// written to either: the newest checkpoint that the log knows must be in it, and
// it may know of no event that the log does not have.
func (c *Computer) compareHistory(ctx context.Context) error {
	c.keeper = c.boxes.NewKeeper()
	if defence.Off(defence.HistoryLog) {
		return nil
	}
	known, err := c.state.Checkpoints(ctx, 0, 1)
	if err != nil {
		return err
	}
	since, continues, err := c.recoveredHistory(ctx)
	if err != nil {
		return err
	}
	if len(known) > 0 && known[0].Seq < since {
		known = nil // given up by a recovery
	}
	damaged := func(format string, args ...any) error {
		hint := fmt.Sprintf("Press Recover on the console, run choir recover --history %s with choir up stopped, or restore the data directory from a backup.", c.cid)
		return fault.New("computer.compareHistory", fault.Damaged, hint, ofHistory{fmt.Errorf(format, args...)})
	}
	for _, part := range []string{"workspace", "workspace/.git"} {
		_, err := os.Lstat(c.path(part))
		if errors.Is(err, os.ErrNotExist) {
			if len(known) > 0 {
				return damaged("%s is gone, and the log knows %s as its newest checkpoint", part, known[0].ID)
			}
			return nil // a new computer: openWorkspace makes it
		}
		if err != nil {
			return fault.Wrap("computer.compareHistory", err)
		}
	}
	at, err := c.branch()
	if err == nil && len(known) > 0 && at != known[0].ID {
		given, err := c.wasGivenUp(known[0].ID)
		if err != nil {
			return err
		}
		if given {
			known = nil // a repair was under way; it is gone on with
		}
	}
	switch {
	case fault.Is(err, fault.Unavailable):
		return err // it was not looked at
	case err != nil:
		return damaged("the branch of the history in workspace/.git can't be read: %s", fault.Text(err))
	case at == "" && len(known) > 0:
		return damaged("the history in workspace/.git has no branch; the newest checkpoint that the log knows is %s", known[0].ID)
	case at == "" || len(known) > 0 && at == known[0].ID:
		return nil
	default:
		older, err := c.state.Checkpoint(ctx, at)
		if err == nil && len(known) > 0 && older.Seq < known[0].Seq {
			return damaged("the history in workspace/.git ends at %s, made at event %d; the newest checkpoint that the log knows is %s", at, older.Seq, known[0].ID)
		}
		if err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
	}
	if has, err := c.holds(at); fault.Is(err, fault.Unavailable) {
		return err
	} else if err != nil || !has {
		return errors.Join(err, damaged("the history in workspace/.git ends at %s, which is not in it", at))
	}
	// Only now, for a box leaves events: a crash may have kept the log from
	// hearing of the newest commits.
	var commits []wire.Commit
	look := historyLook
	if at == continues {
		look = historyMost // the log is to be told of all of them
	}
	if err := c.keeper.Call(ctx, "list", wire.ListRequest{Limit: look}, &commits); err != nil {
		if ctx.Err() != nil || fault.Is(err, fault.DiskFull) || fault.Is(err, fault.Unavailable) && !c.keeper.Ended() {
			return err
		}
		return damaged("the history in workspace/.git can't be read: %s", fault.Text(err))
	}
	if len(commits) > 0 && commits[0].Seq > c.log.Last() && at != continues {
		return damaged("the newest checkpoint %s was made at event %d; the log ends at event %d", commits[0].Commit, commits[0].Seq, c.log.Last())
	}
	if len(known) == 0 || slices.ContainsFunc(commits, func(k wire.Commit) bool { return k.Commit == known[0].ID }) {
		return nil
	}
	newest := "nothing"
	if len(commits) > 0 {
		newest = commits[0].Commit
	}
	return damaged("the history in workspace/.git ends at %s and does not hold %s, the newest checkpoint that the log knows", newest, known[0].ID)
}

// branch reads where the history ends, without git. "" means that it has not
// begun.
func (c *Computer) branch() (string, error) {
	// Beneath the workspace, where boxes write.
	root, err := os.OpenRoot(c.path("workspace"))
	if err != nil {
		return "", err
	}
	defer root.Close() // only read from
	b, err := readRegular(root, ".git/refs/heads/main")
	if errors.Is(err, os.ErrNotExist) {
		packed, perr := readRegular(root, ".git/packed-refs")
		if perr != nil && !errors.Is(perr, os.ErrNotExist) {
			return "", perr
		}
		for line := range strings.Lines(string(packed)) {
			if id, ok := strings.CutSuffix(strings.TrimSpace(line), " refs/heads/main"); ok {
				b, err = []byte(id), nil
			}
		}
	}
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	id := strings.TrimSpace(string(b))
	if err == nil && (len(id) != 40 || strings.Trim(id, "0123456789abcdef") != "") {
		err = fmt.Errorf("it holds %.60q, which is no commit", id)
	}
	return id, err
}

// wasGivenUp reports whether a repair found a checkpoint damaged and went back
// behind it. A copy of the history that is older than the log knows nothing of
// that checkpoint, so it can't say so.
func (c *Computer) wasGivenUp(id string) (bool, error) {
	// Beneath the workspace, where boxes write.
	root, err := os.OpenRoot(c.path("workspace"))
	if err != nil {
		return false, fault.Wrap("computer.compareHistory", err)
	}
	defer root.Close() // only read from
	info, err := root.Lstat(wire.DamagedFile(id))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil && info.Mode().IsRegular(), fault.Wrap("computer.compareHistory", err)
}

// recoveredHistory is what recoveries said of the history: the sequence of the
// newest that gave it up, 0 when none did, and the commit at which it stood at
// the newest that could not have the events of its checkpoints.
func (c *Computer) recoveredHistory(ctx context.Context) (begins uint64, continues string, err error) {
	for after := uint64(0); ; {
		page, err := c.state.Events(ctx, state.EventFilter{After: after, Types: []string{"log.recovered"}, Limit: 100})
		if err != nil || len(page) == 0 {
			return begins, continues, err
		}
		for _, e := range page {
			after = e.Sequence
			p, err := c.log.Payload(ctx, e.Event)
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

// historyLook is how far back the newest checkpoint of the log is looked for:
// only what a crash left without an event is newer.
// historyMost is so after a recovery that could not have the events of checkpoints.
const (
	historyLook = 100
	historyMost = 10_000 // the keeper lists no more
)

// setAside moves what tasks left out of the way, unread.
func (c *Computer) setAside() error {
	boxes := c.path("boxes")
	if _, err := os.Lstat(boxes); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return fault.Wrap("computer.setAside", os.Rename(boxes, c.path(fmt.Sprintf("boxes.aside-%d", time.Now().UnixNano()))))
}

// giveUpTasks has every run that was interrupted cancelled when it is taken up.
func (c *Computer) giveUpTasks(ctx context.Context) error {
	open, err := runPast{c}.Unfinished(ctx)
	if err != nil {
		return err
	}
	for _, run := range open {
		_, err := c.log.Append(ctx, contract.Draft{
			Actor: contract.Person(""), Type: "run.commanded", Run: run, Data: contract.RunCommanded{Command: contract.CommandCancel},
		})
		if err != nil {
			return err
		}
	}
	return nil
}
