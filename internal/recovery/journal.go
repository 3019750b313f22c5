package recovery

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/crash"
	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/ledger"
)

const (
	freshStore  = "nats.new"   // where logs are made anew
	journalFile = "recovering" // what is done with them once they are
)

// journal is what is left to do when the logs have been made anew: it is written
// when freshStore is whole and on disk, and whoever finds it does it to its end.
// Each step may be done again.
type journal struct {
	Aside string `json:"aside"` // where what was there goes
	// Store: the whole store is replaced, and not only the streams in freshStore.
	Store     bool                         `json:"store,omitempty"`
	States    []contract.CID               `json:"states,omitempty"`    // whose state knows of events that the log has not
	Heads     map[contract.CID]ledger.Head `json:"heads,omitempty"`     // what each log's head says from now on
	Branches  map[contract.CID]string      `json:"branches,omitempty"`  // the commit that a history goes on from
	Histories []contract.CID               `json:"histories,omitempty"` // whose history begins anew
	Gone      []string                     `json:"gone,omitempty"`      // parts that are not missed any more
}

func newAside() string {
	return filepath.Join("aside", time.Now().UTC().Format("20060102T150405.000000"))
}

// freshBus opens an empty store beside the one that is there.
func freshBus(ctx context.Context, dir *datadir.Dir, logger *slog.Logger) (*bus.Bus, error) {
	if err := os.RemoveAll(dir.Path(freshStore)); err != nil {
		return nil, err
	}
	return bus.Open(ctx, bus.Options{Dir: dir.Path(freshStore), KeysDir: dir.Path("keys"), Logger: logger})
}

// swap commits to a journal and does it.
func swap(dir *datadir.Dir, j journal) error {
	if err := syncTree(dir.Path(freshStore)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(dir.Path(j.Aside), 0o700); err != nil {
		return err
	}
	b, err := json.Marshal(j)
	if err != nil {
		return err
	}
	crash.At("recovery.refilled")
	if err := datadir.WriteFile(dir.Path(journalFile), append(b, '\n'), 0o600); err != nil {
		return err
	}
	crash.At("recovery.journaled")
	return Finish(dir)
}

// syncTree makes a tree durable.
func syncTree(path string) error {
	return filepath.WalkDir(path, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})
}

// Unfinished says whether a recovery ended between the decision and its end.
func Unfinished(dir *datadir.Dir) (bool, error) {
	_, err := os.Lstat(dir.Path(journalFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, fault.Wrap("recovery.Unfinished", err)
}

// Finish completes a recovery that ended between the decision and its end.
func Finish(dir *datadir.Dir) error {
	const op = "recovery.Finish"
	b, err := os.ReadFile(dir.Path(journalFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fault.Wrap(op, err)
	}
	var j journal
	if err := json.Unmarshal(b, &j); err != nil || !filepath.IsLocal(j.Aside) || !valid(j) {
		return fault.New(op, fault.Damaged, "Move "+journalFile+" and "+freshStore+" out of the data directory and run choir recover.",
			errors.Join(errors.New(journalFile+", which says what a recovery had left to do, does not hold together"), err))
	}
	return fault.Wrap(op, j.finish(dir))
}

func valid(j journal) bool {
	bad := func(cid contract.CID) bool { return cid.Validate() != nil }
	for cid := range j.Heads {
		if bad(cid) {
			return false
		}
	}
	for cid, commit := range j.Branches {
		if bad(cid) || len(commit) != 40 || strings.Trim(commit, "0123456789abcdef") != "" {
			return false
		}
	}
	return !slices.ContainsFunc(j.States, bad) && !slices.ContainsFunc(j.Histories, bad)
}

func (j journal) finish(dir *datadir.Dir) error {
	if err := j.place(dir); err != nil {
		return err
	}
	for _, cid := range j.States {
		for _, name := range []string{"state.sqlite", "state.sqlite-wal", "state.sqlite-shm"} {
			if err := moveAside(dir, j.Aside, rel(cid, name)); err != nil {
				return err
			}
		}
		crash.At("recovery.state.moved")
	}
	for cid, head := range j.Heads {
		if err := os.MkdirAll(dir.Computer(cid), 0o700); err != nil {
			return err
		}
		if err := ledger.WriteHead(dir.Computer(cid, "log.head"), head); err != nil {
			return err
		}
		crash.At("recovery.head.written")
	}
	for cid, commit := range j.Branches {
		if err := setBranch(dir, cid, commit); err != nil {
			return err
		}
	}
	for _, cid := range j.Histories {
		if err := moveAside(dir, j.Aside, rel(cid, "workspace", ".git")); err != nil {
			return err
		}
	}
	if err := dir.Forget(j.Gone); err != nil {
		return err
	}
	crash.At("recovery.done")
	return errors.Join(os.Remove(dir.Path(journalFile)), datadir.SyncDir(dir.Path()))
}

// place puts what was made anew in the place of what was there.
func (j journal) place(dir *datadir.Dir) error {
	if _, err := os.Lstat(dir.Path(freshStore)); errors.Is(err, fs.ErrNotExist) {
		return nil // there was nothing, or it is done
	} else if err != nil {
		return err
	}
	if j.Store {
		if err := moveAside(dir, j.Aside, "nats"); err != nil {
			return err
		}
		crash.At("recovery.old.moved")
		if err := os.Rename(dir.Path(freshStore), dir.Path("nats")); err != nil {
			return err
		}
		return datadir.SyncDir(dir.Path())
	}
	fresh, err := bus.Streams(dir.Path(freshStore))
	if err != nil {
		return err
	}
	old, err := bus.Streams(dir.Path("nats"))
	if err != nil {
		return err
	}
	for _, s := range fresh {
		for _, o := range old {
			if o.Of != s.Of {
				continue
			}
			if err := moveAside(dir, j.Aside, filepath.Join("nats", o.Path)); err != nil {
				return err
			}
		}
		crash.At("recovery.old.moved")
		if err := move(dir.Path(freshStore, s.Path), dir.Path("nats", s.Path)); err != nil {
			return err
		}
		crash.At("recovery.new.placed")
	}
	return os.RemoveAll(dir.Path(freshStore))
}

// moveAside moves a path of the data directory below aside; one that is not there
// has gone before.
func moveAside(dir *datadir.Dir, aside, name string) error {
	to := dir.Path(aside, name)
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	err := os.Rename(dir.Path(name), to)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, datadir.SyncDir(filepath.Dir(to)), datadir.SyncDir(filepath.Dir(dir.Path(name))))
}
