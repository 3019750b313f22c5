package keeper

import (
	"context"
	"errors"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// Why a path can't be as a restore wants it. Nothing that no checkpoint holds is
// ever replaced.
const (
	inTheWay     = "a file that no checkpoint holds is in its place"
	inTheWayDir  = "a folder with files that no checkpoint holds is in its place"
	inTheWayPath = "a file that no checkpoint holds is in the place of its folder"
)

// obstacles foresees, for a dry run, which paths of want would stay as they are.
func (e *Engine) obstacles(ctx context.Context, live, want Tree) ([]Conflict, error) {
	var out []Conflict
	for _, s := range stepsBetween(live, want) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if !s.To.exists() || s.To.Mode == ModeEmptyDir {
			continue
		}
		reason, err := e.obstacle(live, string(s.Path))
		if err != nil {
			return nil, err
		}
		if reason != "" {
			out = append(out, Conflict{s.Path, reason})
		}
	}
	return out, nil
}

// obstacle says what stands where a file is to be, beyond what the live tree holds.
func (e *Engine) obstacle(live Tree, p string) (string, error) {
	dir, err := openDir(e.rootFD, parentDir(p))
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		for d := parentDir(p); d != "."; d = parentDir(d) {
			if live[d].exists() {
				return "", nil // it goes first
			}
		}
		return inTheWayPath, nil
	}
	if isGone(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer unix.Close(dir)
	st, err := lstatAt(dir, path.Base(p))
	switch {
	case isGone(err):
		return "", nil
	case err != nil:
		return "", err
	case !st.isDir():
		if live[p].exists() && live[p].Mode != ModeEmptyDir {
			return "", nil
		}
		return inTheWay, nil
	}
	foreign, err := holdsForeign(dir, path.Base(p), p, live)
	if foreign {
		return inTheWayDir, err
	}
	return "", err
}

// holdsForeign reports whether a folder holds a file that the live tree does not.
func holdsForeign(dirfd int, name, p string, live Tree) (bool, error) {
	fd, err := openDir(dirfd, name)
	if err != nil {
		if isGone(err) {
			return false, nil
		}
		return true, nil // what can't be looked into stays as well
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	entries, err := f.ReadDir(-1)
	if err != nil {
		return false, err
	}
	for _, en := range entries {
		q := p + "/" + en.Name()
		if !en.IsDir() {
			if !live[q].exists() {
				return true, nil
			}
			continue
		}
		if foreign, err := holdsForeign(fd, en.Name(), q, live); foreign || err != nil {
			return foreign, err
		}
	}
	return false, nil
}
