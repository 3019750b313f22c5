package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Filled says which of a task's folders, beneath what its boxes wrote, hold
// anything. What is no folder, such as a link, holds nothing.
func (e *Engine) Filled(ctx context.Context, req wire.FilledRequest) (wire.FilledReply, error) {
	const op = "keeper.Filled"
	if len(req.Folders) > wire.MaxFilled {
		return wire.FilledReply{}, fault.New(op, fault.Exhausted, "", fmt.Errorf("no more than %d folders are looked at", wire.MaxFilled))
	}
	uppers, err := unix.Open(e.opts.Uppers, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return wire.FilledReply{}, fault.Wrap(op, &os.PathError{Op: "open", Path: e.opts.Uppers, Err: err})
	}
	defer unix.Close(uppers) //nolint:errcheck // it was only read
	var reply wire.FilledReply
	for i, folder := range req.Folders {
		at := path.Join(req.ID, string(folder))
		if len(at) > wire.MaxTreePath {
			continue // nothing was made there: nobody can name it
		}
		if err := wire.CheckPath(at, false); err != nil {
			return wire.FilledReply{}, fault.New(op, fault.Invalid, "", fmt.Errorf("folder %q %w", wire.Short(at), err))
		}
		if err := ctx.Err(); err != nil {
			return wire.FilledReply{}, fault.Wrap(op, err)
		}
		holds, err := filled(uppers, at)
		if err != nil {
			return wire.FilledReply{}, fault.Wrap(op, err)
		}
		if holds {
			reply.Filled = append(reply.Filled, i)
		}
	}
	return reply, nil
}

func filled(uppers int, at string) (bool, error) {
	fd, err := disk.OpenDir(uppers, at)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.EXDEV):
		return false, nil
	case errors.Is(err, unix.EACCES):
		return true, nil // whoever closed it had something to close
	case err != nil:
		return false, err
	}
	dir := os.NewFile(uintptr(fd), at)
	defer dir.Close()
	names, err := dir.Readdirnames(1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return len(names) > 0, err
}
