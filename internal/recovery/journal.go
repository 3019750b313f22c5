package recovery

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
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
	"choir.dev/choiros/internal/durable"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/ledger"
)

// What becomes of one computer's recovery is that computer's alone: it has a
// store of its own where its log is made anew, and a journal of its own. Those
// of "" are for what all share.
func freshStore(of contract.CID) string  { return scoped("nats.new", of) }
func journalFile(of contract.CID) string { return scoped("recovering", of) }

func scoped(name string, of contract.CID) string {
	if of == "" {
		return name
	}
	return name + "." + string(of)
}

// journal is what is left to do when the logs have been made anew: it is written
// when the fresh store is whole and on disk, and whoever finds it does it to its
// end. Each step may be done again.
type journal struct {
	computer contract.CID // whose it is; empty: of what all share
	Aside    string       `json:"aside"` // where what was there goes
	// Store: the whole store is replaced, and not only the streams in the fresh one.
	Store     bool                         `json:"store,omitempty"`
	States    []contract.CID               `json:"states,omitempty"`    // whose state knows of events that the log has not
	Heads     map[contract.CID]ledger.Head `json:"heads,omitempty"`     // what each log's head says from now on
	Told      map[contract.CID]string      `json:"told,omitempty"`      // the newest commit of a history that its log knows; empty: none
	Histories []contract.CID               `json:"histories,omitempty"` // whose history begins anew
	Gone      []string                     `json:"gone,omitempty"`      // parts that are not missed any more
}

func newAside() string {
	return filepath.Join("aside", time.Now().UTC().Format("20060102T150405.000000"))
}

// freshBus opens an empty store beside the one that is there.
func freshBus(ctx context.Context, dir *datadir.Dir, of contract.CID, logger *slog.Logger) (*bus.Bus, error) {
	if err := os.RemoveAll(dir.Path(freshStore(of))); err != nil {
		return nil, err
	}
	return bus.Open(ctx, bus.Options{Dir: dir.Path(freshStore(of)), KeysDir: dir.Path("keys"), Logger: logger})
}

// swap commits to a journal and does it.
func swap(dir *datadir.Dir, j journal) error {
	if err := syncTree(dir.Path(freshStore(j.computer))); err != nil && !errors.Is(err, fs.ErrNotExist) {
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
	b = append(b, '\n')
	if err := datadir.WriteFile(dir.Path(journalFile(j.computer)), append(b, journalSum(b)...), 0o600); err != nil {
		return err
	}
	crash.At("recovery.journaled")
	return finish(dir, j.computer)
}

// journalSum is the line that a journal ends with.
func journalSum(body []byte) string { return fmt.Sprintf("sum %x\n", sha256.Sum256(body)) }

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

// Unfinished lists whose recoveries ended between the decision and their end;
// "" is that of what all share, and comes first.
func Unfinished(dir *datadir.Dir) ([]contract.CID, error) {
	const op = "recovery.Unfinished"
	entries, err := os.ReadDir(dir.Path())
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	var out []contract.CID
	for _, e := range entries {
		of, one := strings.CutPrefix(e.Name(), journalFile("")+".")
		if e.Name() == journalFile("") || one && contract.CID(of).Validate() == nil {
			out = append(out, contract.CID(strings.TrimPrefix(of, journalFile(""))))
		}
	}
	slices.Sort(out)
	return out, nil
}

// Finish completes the recoveries that ended between the decision and their end,
// and says of whom one could not be.
func Finish(dir *datadir.Dir) (map[contract.CID]error, error) {
	open, err := Unfinished(dir)
	if err != nil {
		return nil, err
	}
	stuck := map[contract.CID]error{}
	for _, of := range open {
		if stuck[""] != nil {
			break // it comes first, for it is about all of them
		}
		err := finish(dir, of)
		if fault.Is(err, fault.DiskFull) && dir.ReleaseReserve() == nil {
			err = finish(dir, of) // in what was kept for the log
		}
		if err != nil {
			stuck[of] = err
		}
	}
	return stuck, nil
}

// finish completes one.
func finish(dir *datadir.Dir, of contract.CID) error {
	j, err := readJournal(dir, of)
	if err != nil || j == nil {
		return err
	}
	if err = j.finish(dir); err != nil {
		hint := fault.HintOf(err)
		if hint == "" {
			hint = "Look at the disk that holds the data directory, then try again."
		}
		return fault.New("recovery.Finish", fault.CodeOf(err), hint, fmt.Errorf("a recovery that was begun could not be brought to its end: %w", err))
	}
	return nil
}

// readJournal returns nil when there is none.
func readJournal(dir *datadir.Dir, of contract.CID) (*journal, error) {
	const op = "recovery.Finish"
	b, err := os.ReadFile(dir.Path(journalFile(of)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	j := journal{computer: of}
	body, sum, _ := bytes.Cut(b, []byte("\n"))
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields() // a step that is not known here can't be left out
	err = dec.Decode(&j)
	// One that an earlier version left has no sum.
	if err == nil && len(sum) > 0 && string(sum) != journalSum(append(body[:len(body):len(body)], '\n')) {
		err = errors.New("its sum does not fit it")
	}
	if err == nil && (!filepath.IsLocal(j.Aside) || !j.valid()) {
		err = errors.New("it names what can't be meant")
	}
	if err != nil {
		return nil, fault.New(op, fault.Damaged, "Recover it: what the journal was about is looked at anew.",
			fmt.Errorf("%s, which says what a recovery had left to do, does not hold together: %w", journalFile(of), err))
	}
	return &j, nil
}

// giveUp keeps a journal aside that can't be read. What had been made anew by
// then is put beside what is there, as a second copy of the same log, for
// nobody knows how far it had come.
func giveUp(dir *datadir.Dir, of contract.CID) error {
	fresh, err := bus.Streams(dir.Path(freshStore(of)))
	if err != nil {
		return err
	}
	for _, s := range fresh {
		if of != "" && s.Of != of {
			continue
		}
		n := 0
		for exists(dir.Path("nats", s.Beside(n))) {
			n++
		}
		if err := move(dir.Path(freshStore(of), s.Path), dir.Path("nats", s.Beside(n))); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(dir.Path(freshStore(of))); err != nil {
		return err
	}
	return moveAside(dir, newAside(), journalFile(of))
}

func (j journal) valid() bool {
	bad := func(cid contract.CID) bool { return cid.Validate() != nil || j.computer != "" && cid != j.computer }
	if j.computer != "" && j.Store {
		return false
	}
	for cid := range j.Heads {
		if bad(cid) {
			return false
		}
	}
	for cid, commit := range j.Told {
		if bad(cid) || commit != "" && !isCommit(commit) {
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
	for cid, commit := range j.Told {
		if err := setTold(dir, j.Aside, cid, commit); err != nil {
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
	return errors.Join(os.Remove(dir.Path(journalFile(j.computer))), durable.SyncDir(dir.Path()))
}

// place puts what was made anew in the place of what was there.
func (j journal) place(dir *datadir.Dir) error {
	if _, err := os.Lstat(dir.Path(freshStore(j.computer))); errors.Is(err, fs.ErrNotExist) {
		return nil // there was nothing, or it is done
	} else if err != nil {
		return err
	}
	if j.Store {
		if err := moveAside(dir, j.Aside, "nats"); err != nil {
			return err
		}
		crash.At("recovery.old.moved")
		if err := os.Rename(dir.Path(freshStore(j.computer)), dir.Path("nats")); err != nil {
			return err
		}
		return durable.SyncDir(dir.Path())
	}
	fresh, err := bus.Streams(dir.Path(freshStore(j.computer)))
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
		if err := move(dir.Path(freshStore(j.computer), s.Path), dir.Path("nats", s.Path)); err != nil {
			return err
		}
		crash.At("recovery.new.placed")
	}
	return os.RemoveAll(dir.Path(freshStore(j.computer)))
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
	return errors.Join(err, durable.SyncDir(filepath.Dir(to)), durable.SyncDir(filepath.Dir(dir.Path(name))))
}
