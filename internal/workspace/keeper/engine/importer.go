package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/archive"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/nested"
	"choir.dev/choiros/internal/workspace/keeper/publish"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// receive writes a stream of at most max bytes to a new file, and returns its SHA-256 in
// hex. The file is durable, unless it is small and the caller syncs it later.
func receive(name string, content io.Reader, max int64, later bool) (string, error) {
	const perm = fs.FileMode(0o644)
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, perm)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, h), io.LimitReader(content, max+1))
	if err == nil && n > max {
		err = fault.New("", fault.Exhausted, "Raise storage.large_file_mb, or split it.", fmt.Errorf("the file has more than %d bytes", max))
	}
	err = errors.Join(err, f.Chmod(perm))
	if !later || n > quicklyRead {
		err = errors.Join(err, f.Sync())
	}
	return hex.EncodeToString(h.Sum(nil)), errors.Join(err, f.Close())
}

// Import unpacks a tar stream into a new directory of the live tree, atomically. A .git in
// it becomes a nested repository; nothing of it is run.
func (e *Engine) Import(ctx context.Context, req wire.ImportRequest, stream io.Reader) (wire.Operation, error) {
	const op = "keeper.Import"
	if err := badPath(string(req.Path), false); err != nil {
		return wire.Operation{}, fault.Wrap(op, err)
	}
	if !strings.HasPrefix(string(req.Path), "workspace/") {
		return wire.Operation{}, fault.New(op, fault.Invalid, "Add it under workspace/.", fmt.Errorf("%q is not under workspace/", req.Path.Shown()))
	}
	tmp := e.store.Work("tmp-import-" + publish.Token())
	if err := os.Mkdir(tmp, 0o755); err != nil {
		return wire.Operation{}, fileError(op, string(req.Path), err)
	}
	im := wire.Imported{Path: req.Path, Origin: req.Origin, Remote: req.Remote}
	in := publish.Intent{Operation: wire.Operation{Op: "import", Path: req.Path, Actor: req.Actor, User: req.User, Import: &im}, Content: filepath.Base(tmp)}
	err := archive.Unpack(ctx, tmp, stream, e.opts.Limits, &im)
	if err == nil {
		im.Commit = nested.Head(tmp)
		err = e.placeImport(ctx, tmp, string(req.Path), &in)
	}
	if err != nil {
		return wire.Operation{}, fileError(op, string(req.Path), errors.Join(err, disk.RemoveTree(tmp)))
	}
	return in.Operation, nil
}

func (e *Engine) placeImport(ctx context.Context, tmp, p string, in *publish.Intent) error {
	if err := unix.Syncfs(e.scanner.Root); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.moves.RollForward(ctx); err != nil {
		return err
	}
	e.scanner.Invalidate()
	dir, err := disk.MakeDirs(e.scanner.Root, wire.ParentDir(p))
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	err = e.moves.CarryOut(in, func() error {
		err := disk.RenameAt(unix.AT_FDCWD, tmp, dir, path.Base(p), unix.RENAME_NOREPLACE)
		if errors.Is(err, fs.ErrExist) { // the error would show the temporary name
			return fault.New("", fault.Conflict, "Choose another name, or remove what is there.", fmt.Errorf("%s is there already", wire.Path(p).Shown()))
		}
		return err
	})
	if err != nil {
		return err
	}
	// Its empty files are meant to be empty, which must be recorded even after the host was
	// told.
	return errors.Join(unix.Fsync(dir), e.settleTree(ctx))
}
