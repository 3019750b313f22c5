package publish

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Meant are the files that hold what an acknowledged change made of them, so that one that is
// empty was not emptied by the machine's end.
type Meant struct {
	paths map[string]bool
	files map[Inode]bool
}

// fileKey is what Inode.is compares.
func fileKey(i Inode) Inode { i.Dev = 0; return i }

// AddPath adds whatever has a path, or is below it.
func (m *Meant) AddPath(p string) { m.paths[p] = true }

// AddFile adds a file, whichever path it has or comes to have.
func (m *Meant) AddFile(i Inode) {
	if i.Ino != 0 {
		m.files[fileKey(i)] = true
	}
}

// Has reports whether what has a path in a tree is one of the files.
func (m *Meant) Has(root int, p string) (bool, error) {
	for q := p; q != "."; q = wire.ParentDir(q) {
		if m.paths[q] {
			return true, nil
		}
	}
	if len(m.files) == 0 {
		return false, nil
	}
	dir, err := disk.OpenDir(root, wire.ParentDir(p))
	if err != nil {
		return false, disk.IgnoreUnreachable(err)
	}
	defer unix.Close(dir)
	in, err := at(dir, path.Base(p))
	return m.files[fileKey(in)], err
}

// MeantSince returns the files that were put or imported since a time, in Unix
// milliseconds. What was put is known by the path that it was put to, and by its inode: it
// may have been moved since, as may a folder that it is in.
func (mv *Mover) MeantSince(since int64) (*Meant, error) {
	m := &Meant{paths: map[string]bool{}, files: map[Inode]bool{}}
	// What was imported was synced before it got its name.
	err := mv.EachIntent(func(in Intent) error {
		if in.Import != nil {
			m.AddPath(string(in.Path))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(mv.Trash())
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	for _, en := range entries {
		if put, err := mv.Entry(en.Name()); err == nil && put.Op == "write" && put.At >= since {
			m.AddPath(string(put.Path))
			m.AddFile(put.put)
		}
	}
	return m, err
}

// notePuts writes down the inodes that files which were put have in a copy of all files,
// where the ones that are in their records say nothing. Each is looked for where the
// moves after it, which were done again, brought it.
func (mv *Mover) notePuts(acts []unsettled) error {
	for i := range acts {
		u := &acts[i]
		trash, err := at(unix.AT_FDCWD, mv.Trash())
		if err != nil {
			return err
		}
		if !u.entry.New.Exists() || trash.is(u.Trash) {
			continue
		}
		p := string(u.entry.Path)
		for _, later := range acts[i+1:] {
			if from := string(later.entry.From); from != "" && (p == from || strings.HasPrefix(p, from+"/")) {
				p = string(later.entry.Path) + p[len(from):]
			}
		}
		if err := mv.notePut(u, p); err != nil {
			return err
		}
	}
	return nil
}

// notePut writes down the inode of a file that was put, which has a path in the live tree.
func (mv *Mover) notePut(u *unsettled, p string) error {
	dir, in, err := mv.openNamed(p)
	if err != nil || in == (Inode{}) {
		return err
	}
	defer unix.Close(dir)
	now, other, err := mv.store.EntryAt(dir, filepath.Base(p), u.entry.New)
	if err != nil || other || now != u.entry.New || in.is(u.entry.put) {
		return err
	}
	m := u.entry
	m.put = in
	raw, err := m.record()
	if err != nil {
		return err
	}
	return mv.store.Keep(trashRecord(m.ID, "meta.json"), raw)
}
