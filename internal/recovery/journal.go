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

// A recovery of one computer's log has a store of its own in which the log is made anew,
// and a journal of its own. The names for the id "" are those of a recovery of what all
// computers share.
func freshStore(of contract.CID) string  { return scoped("nats.new", of) }
func journalFile(of contract.CID) string { return scoped("recovering", of) }

func scoped(name string, of contract.CID) string {
	if of == "" {
		return name
	}
	return name + "." + string(of)
}

// journal lists the steps that are left when the logs have been made anew. It is written
// when the fresh store is complete and on disk. From then on the steps are carried out,
// also by the next process after a crash; each may be repeated.
type journal struct {
	computer contract.CID // the computer that is recovered; empty: what all share
	Aside    string       `json:"aside"` // where the replaced files go
	// Store says that the whole store is replaced, and not only the streams that are in
	// the fresh one.
	Store     bool                         `json:"store,omitempty"`
	States    []contract.CID               `json:"states,omitempty"`    // computers whose state has events that the log lacks
	Heads     map[contract.CID]ledger.Head `json:"heads,omitempty"`     // the new content of each log's head
	Logged    map[contract.CID]string      `json:"told,omitempty"`      // the newest commit of each history that its log names; empty: none
	Histories []contract.CID               `json:"histories,omitempty"` // computers whose history begins anew
	Gone      []string                     `json:"gone,omitempty"`      // parts that no longer count as missing
}

func newAside() string {
	return filepath.Join("aside", time.Now().UTC().Format("20060102T150405.000000"))
}

// freshBus opens an empty store beside the existing one.
func freshBus(ctx context.Context, dir *datadir.Dir, of contract.CID, logger *slog.Logger) (*bus.Bus, error) {
	if err := os.RemoveAll(dir.Path(freshStore(of))); err != nil {
		return nil, err
	}
	return bus.Open(ctx, bus.Options{Dir: dir.Path(freshStore(of)), KeysDir: dir.Path("keys"), Logger: logger})
}

// swap writes a journal and carries it out.
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

// journalSum returns the checksum line at the end of a journal.
func journalSum(body []byte) string { return fmt.Sprintf("sum %x\n", sha256.Sum256(body)) }

// syncTree syncs every file and directory of a tree.
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

// Unfinished lists the computers whose recoveries have a journal but were not finished; ""
// stands for what all share, and comes first.
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

// Finish finishes the recoveries that have a journal, and returns the errors of those that
// could not be finished.
func Finish(dir *datadir.Dir) (map[contract.CID]error, error) {
	open, err := Unfinished(dir)
	if err != nil {
		return nil, err
	}
	stuck := map[contract.CID]error{}
	for _, of := range open {
		if stuck[""] != nil {
			break // what all share comes first; the others depend on it
		}
		err := finish(dir, of)
		if fault.Is(err, fault.DiskFull) && dir.ReleaseReserve() == nil {
			err = finish(dir, of) // in the space that was reserved for the log
		}
		if err != nil {
			stuck[of] = err
		}
	}
	return stuck, nil
}

// finish finishes one recovery.
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

// readJournal returns nil when there is no journal.
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
	dec.DisallowUnknownFields() // steps that this version does not know must not be left out
	err = dec.Decode(&j)
	// Journals that earlier versions wrote have no checksum.
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

// giveUp moves a journal that can't be read aside. The streams that had been made anew are
// put beside the existing ones as second copies of the same logs, because nobody knows how
// far they had been made.
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
		for exists(dir.Path("nats", s.MovedPath(n))) {
			n++
		}
		if err := move(dir.Path(freshStore(of), s.Path), dir.Path("nats", s.MovedPath(n))); err != nil {
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
	for cid, commit := range j.Logged {
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
	for cid, commit := range j.Logged {
		if err := setLogged(dir, j.Aside, cid, commit); err != nil {
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

// place puts the new streams, or the new store, in the place of the old ones.
func (j journal) place(dir *datadir.Dir) error {
	if _, err := os.Lstat(dir.Path(freshStore(j.computer))); errors.Is(err, fs.ErrNotExist) {
		return nil // there is nothing to place, or it has been placed
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

// moveAside moves a path of the data directory to the same path below aside. One that does
// not exist was moved before.
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
