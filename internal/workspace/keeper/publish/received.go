package publish

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"choir.dev/choiros/internal/durable"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
)

// What a push brings lies beside the store, and with it all that was made of it, until its
// publish is decided. The mark that a plan was started is the decision; what belongs to that
// plan is then added to the store, by whoever carries it out.

// Begin decides that a prepared plan will be carried out: from then on it is rolled forward
// after any crash. It fails if the history has moved on since.
func (mv *Mover) Begin(ctx context.Context, id string) error {
	if err := CheckPlanID(id); err != nil {
		return err
	}
	p, err := mv.LoadPlan(id)
	if errors.Is(err, fs.ErrNotExist) {
		return fault.New("", fault.NotFound, "Prepare it first.", fmt.Errorf("nothing is prepared under %s", id))
	}
	if err != nil {
		return err
	}
	if started, err := disk.Exists(mv.PlanDir(id, "started")); err != nil || started {
		return err
	}
	if p.From != mv.Head {
		return fault.New("", fault.Conflict, "Prepare it again.", fmt.Errorf("publish %s was prepared on %s, but the newest checkpoint is %s", id, p.From, mv.Head))
	}
	err = mv.store.Batch(func(flush func() error) error {
		if p.Received != "" {
			if err := mv.store.Adopt(ctx, p.Received, p.Commit); err != nil {
				return err
			}
			if err := mv.store.ForceRef(ctx, PublishRef(id), p.Commit); err != nil {
				return err
			}
		}
		if err := mv.Mark(id, "started"); err != nil {
			return err
		}
		return flush()
	})
	if err != nil && p.Received != "" && mv.store.Decided() { // nothing of the act counts
		err = errors.Join(err, disk.RemoveTree(mv.store.Work(gitstore.QuarantineAdopted+p.Received)))
	}
	if err != nil {
		return err
	}
	mv.crash("publish.started")
	return mv.adopted(p)
}

// adopted adds to the store what is beside it of a plan that was started. It may be
// repeated.
func (mv *Mover) adopted(p Plan) error {
	if p.Received == "" {
		return nil
	}
	dir := mv.store.Work(gitstore.QuarantineAdopted + p.Received)
	packs, err := os.ReadDir(filepath.Join(dir, "pack"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	// Git looks for the index of a pack, so that comes last.
	last := func(f fs.DirEntry) int {
		if strings.HasSuffix(f.Name(), ".idx") {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(packs, func(x, y fs.DirEntry) int { return last(x) - last(y) })
	for _, f := range packs {
		err := os.Link(filepath.Join(dir, "pack", f.Name()), mv.store.File("objects", "pack", f.Name()))
		if err != nil && !errors.Is(err, fs.ErrExist) { // one of that name has the same objects
			return err
		}
		mv.crash("push.linked")
	}
	if err := durable.SyncDir(mv.store.File("objects", "pack")); err != nil {
		return err
	}
	mv.crash("push.adopted")
	return disk.RemoveTree(dir)
}

// RecoverReceived adds to the store what an earlier process had decided to add, and removes
// what it had not decided yet.
func (mv *Mover) RecoverReceived() error {
	entries, err := os.ReadDir(mv.store.Work())
	if err != nil {
		return err
	}
	left := map[string]bool{}
	for _, e := range entries {
		if name, is := strings.CutPrefix(e.Name(), gitstore.QuarantineAdopted); is {
			left[name] = true
		}
	}
	if len(left) == 0 {
		return nil
	}
	ids, err := mv.Plans()
	if err != nil {
		return err
	}
	for _, id := range ids {
		p, err := mv.LoadPlan(id)
		if err != nil {
			return nil // it may be one of that plan, which a roll-forward sets aside
		}
		started, err := disk.Exists(mv.PlanDir(id, "started"))
		if err == nil && started && left[p.Received] {
			err = mv.adopted(p)
		}
		if err != nil {
			return err
		}
	}
	for name := range left {
		if err := disk.RemoveTree(mv.store.Work(gitstore.QuarantineAdopted + name)); err != nil {
			return err
		}
	}
	return nil
}
