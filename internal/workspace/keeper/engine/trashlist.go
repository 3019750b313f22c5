package engine

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/wire"
	"golang.org/x/sys/unix"
)

// maxTrashListed bounds one answer.
const maxTrashListed = 1000

// Trash lists what Untrash can bring back.
func (e *Engine) Trash(ctx context.Context, req wire.TrashRequest) (wire.TrashReply, error) {
	const op = "keeper.Trash"
	reply := wire.TrashReply{Items: []wire.TrashItem{}}
	if req.Limit <= 0 || req.Limit > maxTrashListed {
		req.Limit = maxTrashListed
	}
	e.mu.Lock() // so that no entry is incomplete
	defer e.mu.Unlock()
	entries, err := os.ReadDir(e.moves.Trash())
	if errors.Is(err, fs.ErrNotExist) {
		return reply, nil
	}
	if err != nil {
		return reply, fault.Wrap(op, err)
	}
	for i := len(entries) - 1; i >= 0; i-- { // sorted by time
		if err := ctx.Err(); err != nil {
			return reply, fault.Wrap(op, err)
		}
		id := entries[i].Name()
		if req.Before != "" && id >= req.Before {
			continue
		}
		item, ok, err := e.trashItem(id)
		if err != nil {
			return reply, fault.Wrap(op, err)
		}
		if !ok {
			continue
		}
		if len(reply.Items) == req.Limit {
			reply.More = true
			return reply, nil
		}
		reply.Items = append(reply.Items, item)
	}
	return reply, nil
}

// trashItem describes an entry. It returns false for one whose record can't be read, or
// that has nothing to put back.
func (e *Engine) trashItem(id string) (wire.TrashItem, bool, error) {
	m, err := e.moves.Entry(id)
	if err != nil {
		return wire.TrashItem{}, false, nil //nolint:nilerr // it never became durable, or is damaged, which a scrub reports
	}
	st, err := disk.Lstat(unix.AT_FDCWD, e.moves.Trash(id, "content"))
	if disk.IsGone(err) {
		return wire.TrashItem{}, false, nil
	}
	if err != nil {
		return wire.TrashItem{}, false, err
	}
	m.ID = id
	item := wire.TrashItem{Trashed: m.Trashed, Op: m.Op, User: m.User, Kind: st.Kind()}
	if st.IsRegular() {
		item.Size = st.Size
	}
	return item, true, nil
}
