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
	"choir.dev/choiros/internal/durable"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

// forkDir begins the name that a computer's directory has while it is forked; its own
// it gets with all of its files.
const forkDir = ".fork-"

// Fork implements control.Computers: it makes a computer of a checkpoint of another, and
// waits until it is awake. One that is there already is returned as it is. Of one that
// fails before its directory has its name nothing is kept.
func (fl *Fleet) Fork(ctx context.Context, from, cid contract.CID, name, checkpoint string) (view.Computer, error) {
	const op = "fleet.Fork"
	if err := fl.makable(cid, name); err != nil {
		return view.Computer{}, fault.Wrap(op, err)
	}
	fl.mu.Lock()
	there := fl.places[cid] != nil
	fl.mu.Unlock()
	if !there {
		if err := fl.layOut(ctx, from, cid, name, checkpoint); err != nil {
			return view.Computer{}, fault.Wrap(op, err)
		}
	}
	return fl.Create(ctx, cid, name)
}

// layOut makes the directory of a computer that is forked.
func (fl *Fleet) layOut(ctx context.Context, from, cid contract.CID, name, checkpoint string) (err error) {
	source, err := fl.awake(ctx, from)
	if err != nil {
		return err
	}
	at := fl.Dir.Path("computers")
	dir := filepath.Join(at, forkDir+string(cid))
	if err := os.Mkdir(dir, 0o700); errors.Is(err, fs.ErrExist) {
		return fault.New("", fault.Conflict, "Ask for it again in a moment.", fmt.Errorf("%s is just being made", cid))
	} else if err != nil {
		return err
	}
	// No box of it ever ran, so nobody but this process wrote what is removed.
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := source.Fork(ctx, dir, name, checkpoint); err != nil {
		return err
	}
	if err := os.Rename(dir, fl.Dir.Computer(cid)); err != nil {
		return err
	}
	return durable.SyncDir(at)
}

// clearForks removes what a death left of computers that were being forked.
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
