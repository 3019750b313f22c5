package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

// forkDir is the prefix of a computer's directory while it is being forked; it gets its own
// name once it has all of its files.
const forkDir = ".fork-"

// Fork implements control.Computers: it makes a computer of a checkpoint of another, and
// waits until it is awake. One that is there already is returned as it is. Of one that
// fails before its first event is on disk nothing is kept.
func (fl *Fleet) Fork(ctx context.Context, by contract.Actor, from, cid contract.CID, name, checkpoint string) (view.Computer, error) {
	const op = "fleet.Fork"
	if err := fl.makable(cid, name); err != nil {
		return view.Computer{}, fault.Wrap(op, err)
	}
	fl.mu.Lock()
	there, err := fl.taken(ctx, cid)
	fl.mu.Unlock()
	if err != nil {
		return view.Computer{}, fault.Wrap(op, err)
	}
	if there != nil {
		return fl.Create(ctx, cid, name)
	}
	c, err := fl.forked(ctx, by, from, cid, name, checkpoint)
	return c, fault.Wrap(op, err)
}

// forked prepares the directory of a computer beside the others, and makes the computer
// from it.
func (fl *Fleet) forked(ctx context.Context, by contract.Actor, from, cid contract.CID, name, checkpoint string) (view.Computer, error) {
	source, err := fl.awake(ctx, from)
	if err != nil {
		return view.Computer{}, err
	}
	dir := filepath.Join(fl.Dir.Path("computers"), forkDir+string(cid))
	if err := os.Mkdir(dir, 0o700); errors.Is(err, fs.ErrExist) {
		return view.Computer{}, fault.New("", fault.Conflict, "Ask for it again in a moment.", fmt.Errorf("%s is just being made", cid))
	} else if err != nil {
		return view.Computer{}, err
	}
	if err := source.Fork(ctx, by, cid, dir, name, checkpoint); err != nil {
		return view.Computer{}, errors.Join(err, os.RemoveAll(dir))
	}
	return fl.make(ctx, cid, name, dir)
}

// clearForks removes the directories of forks that a crash interrupted.
func (fl *Fleet) clearForks() error {
	at := fl.Dir.Path("computers")
	list, err := os.ReadDir(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range list {
		if strings.HasPrefix(e.Name(), forkDir) {
			errs = append(errs, os.RemoveAll(filepath.Join(at, e.Name())))
		}
	}
	return errors.Join(errs...)
}
