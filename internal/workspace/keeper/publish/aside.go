package publish

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"choir.dev/choiros/internal/durable"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// stalePlanError says that the branch has moved since a plan was made.
type stalePlanError struct{ id, from, head string }

// Error implements error.
func (m *stalePlanError) Error() string {
	return fmt.Sprintf("publish %s was prepared on %s, but the newest checkpoint is %s", m.id, m.from, m.head)
}

// setAside moves away a plan that can't be continued: its files can't be read, or it was
// finished and only its Result is missing. What it had displaced goes to the trash. If err
// is of any other kind, it is returned.
func (mv *Mover) setAside(ctx context.Context, id string, err error) error {
	var book *disk.BadFile
	var moved *stalePlanError
	if !errors.As(err, &book) && !errors.As(err, &moved) {
		return err
	}
	mv.agenda.touch(id)
	p, perr := mv.LoadPlan(id)
	if perr != nil && !errors.As(perr, &book) {
		return perr
	}
	if err := mv.TrashAside(id, p.Ops); err != nil {
		return err
	}
	if err := mv.store.Settle(); err != nil { // otherwise the journal would bring it back
		return err
	}
	to := mv.store.Work("unreadable", id+"-"+strconv.FormatInt(mv.now().UnixNano(), 10))
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if err := os.Rename(mv.PlanDir(id), to); err != nil {
		return err
	}
	mv.logger.ErrorContext(ctx, "the record of a publish can't be followed; it is set aside, and what it displaced is in the trash", "publish", id, "at", to, "error", err)
	return errors.Join(durable.SyncDir(filepath.Dir(to)), durable.SyncDir(mv.store.Work("publish")), durable.SyncDir(mv.store.Work()))
}

// SetAsides lists the records that were set aside, newest first.
func (mv *Mover) SetAsides() ([]wire.Aside, error) {
	entries, err := os.ReadDir(mv.store.Work("unreadable"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	when := func(a wire.Aside) string { return a.Name[len(a.Publish):] } // nanoseconds, which have the same number of digits until 2286
	var out []wire.Aside
	for _, en := range entries {
		if i := strings.LastIndexByte(en.Name(), '-'); i > 0 {
			out = append(out, wire.Aside{Name: en.Name(), Publish: en.Name()[:i]})
		}
	}
	slices.SortFunc(out, func(a, b wire.Aside) int { return strings.Compare(when(b), when(a)) })
	return out[:min(len(out), wire.MaxSkips)], nil
}
