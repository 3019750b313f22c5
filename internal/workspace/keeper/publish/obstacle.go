package publish

import (
	"context"
	"errors"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Reasons why a path can't become what a restore wants. Content that no checkpoint holds is
// never replaced.
const (
	inTheWay     = "a file that no checkpoint holds is in its place"
	inTheWayDir  = "a folder with files that no checkpoint holds is in its place"
	inTheWayPath = "a file that no checkpoint holds is in the place of its folder"
	inTheWayMode = "its permissions, or those of its folder, keep it from being changed"
)

// Obstacles predicts which of the steps from the live tree will leave a path as it is. It
// returns the paths that stay, and the folders that will not become empty because content
// that no checkpoint holds is in them or in their place; an empty folder gives way to such
// content.
func (mv *Mover) Obstacles(ctx context.Context, steps []Step) (stay []wire.Conflict, filled []wire.Path, err error) {
	for _, s := range steps {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		if !s.To.Exists() {
			continue
		}
		reason, err := mv.obstacle(s)
		switch {
		case err != nil:
			return nil, nil, err
		case reason == "":
		case s.To.Mode == wire.ModeEmptyDir && reason != inTheWayMode:
			filled = append(filled, s.Path)
		default:
			stay = append(stay, wire.Conflict{Path: s.Path, Reason: reason})
		}
	}
	return stay, filled, nil
}

// obstacle says what, beyond what was captured, is in the place of a file or an empty
// folder that is to be put there.
func (mv *Mover) obstacle(s Step) (string, error) {
	p := string(s.Path)
	dir, err := disk.OpenDir(mv.scanner.Root, wire.ParentDir(p))
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		for d := wire.ParentDir(p); d != "."; d = wire.ParentDir(d) {
			if mv.scanner.Index.At(d).Exists() {
				return "", nil // it is moved away first
			}
		}
		return inTheWayPath, nil
	}
	if disk.IsGone(err) {
		return "", nil
	}
	if disk.IsDenied(err) {
		return inTheWayMode, nil
	}
	if err != nil {
		return "", err
	}
	defer unix.Close(dir)
	st, err := disk.Lstat(dir, path.Base(p))
	if !(err == nil && st.IsDir() && s.To.Mode == wire.ModeEmptyDir) { // the folder is there already
		if err := unix.Faccessat(dir, ".", unix.W_OK|unix.X_OK, 0); disk.IsDenied(err) {
			return inTheWayMode, nil
		}
	}
	switch {
	case disk.IsGone(err):
		return "", nil
	case err != nil:
		return "", err
	case !st.IsDir():
		if was := mv.scanner.Index.At(p); was.Exists() && was.Mode != wire.ModeEmptyDir {
			return "", nil
		}
		return inTheWay, nil
	}
	foreign, err := mv.holdsForeign(p)
	if foreign {
		return inTheWayDir, err
	}
	return "", err
}

// holdsForeign reports whether a folder contains a file that was not captured.
func (mv *Mover) holdsForeign(folder string) (bool, error) {
	queue := []string{folder}
	for len(queue) > 0 {
		p := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if len(p) > wire.MaxTreePath {
			return true, nil
		}
		fd, err := disk.OpenDir(mv.scanner.Root, p)
		if err != nil {
			if disk.IsGone(err) {
				continue
			}
			return true, nil //nolint:nilerr // a folder that can't be read stays as well
		}
		f := os.NewFile(uintptr(fd), p)
		entries, err := f.ReadDir(-1)
		if err := errors.Join(err, f.Close()); err != nil {
			return false, err
		}
		for _, en := range entries {
			q := p + "/" + en.Name()
			if en.IsDir() {
				queue = append(queue, q)
			} else if !mv.scanner.Index.At(q).Exists() {
				return true, nil
			}
		}
	}
	return false, nil
}
