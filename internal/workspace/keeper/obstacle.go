package keeper

import (
	"context"
	"errors"
	"os"
	"path"

	"choir.dev/choiros/internal/workspace/keeper/wire"
	"golang.org/x/sys/unix"
)

// Why a path can't be as a restore wants it. Nothing that no checkpoint holds is
// ever replaced.
const (
	inTheWay     = "a file that no checkpoint holds is in its place"
	inTheWayDir  = "a folder with files that no checkpoint holds is in its place"
	inTheWayPath = "a file that no checkpoint holds is in the place of its folder"
	inTheWayMode = "its permissions, or those of its folder, keep it from being changed"
)

// obstacles foresees, for a dry run, which paths of want would stay as they are.
func (e *Engine) obstacles(ctx context.Context, live, want Tree) ([]wire.Conflict, error) {
	var out []wire.Conflict
	for _, s := range stepsBetween(live, want) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if !s.To.exists() || s.To.Mode == wire.ModeEmptyDir {
			continue
		}
		reason, err := e.obstacle(live, string(s.Path))
		if err != nil {
			return nil, err
		}
		if reason != "" {
			out = append(out, wire.Conflict{Path: s.Path, Reason: reason})
		}
	}
	return out, nil
}

// obstacle says what stands where a file is to be, beyond what the live tree holds.
func (e *Engine) obstacle(live Tree, p string) (string, error) {
	dir, err := openDir(e.rootFD, wire.ParentDir(p))
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		for d := wire.ParentDir(p); d != "."; d = wire.ParentDir(d) {
			if live[d].exists() {
				return "", nil // it goes first
			}
		}
		return inTheWayPath, nil
	}
	if isGone(err) {
		return "", nil
	}
	if isDenied(err) {
		return inTheWayMode, nil
	}
	if err != nil {
		return "", err
	}
	defer unix.Close(dir)
	if err := unix.Faccessat(dir, ".", unix.W_OK|unix.X_OK, 0); isDenied(err) {
		return inTheWayMode, nil
	}
	st, err := lstatAt(dir, path.Base(p))
	switch {
	case isGone(err):
		return "", nil
	case err != nil:
		return "", err
	case !st.isDir():
		if live[p].exists() && live[p].Mode != wire.ModeEmptyDir {
			return "", nil
		}
		return inTheWay, nil
	}
	foreign, err := e.holdsForeign(p, live)
	if foreign {
		return inTheWayDir, err
	}
	return "", err
}

// holdsForeign reports whether a folder holds a file that the live tree does not.
func (e *Engine) holdsForeign(folder string, live Tree) (bool, error) {
	queue := []string{folder}
	for len(queue) > 0 {
		p := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if len(p) > wire.MaxTreePath {
			return true, nil
		}
		fd, err := openDir(e.rootFD, p)
		if err != nil {
			if isGone(err) {
				continue
			}
			return true, nil //nolint:nilerr // what can't be looked into stays as well
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
			} else if !live[q].exists() {
				return true, nil
			}
		}
	}
	return false, nil
}
