package hostfs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/defence"
)

// batch is how many names of a directory are read at a time.
const batch = 1024

// RemoveAll removes what is at name, whoever wrote it. It follows no link, opens up
// directories that their modes close, and holds a handful of descriptors however deep the
// tree is: a directory that is not empty is moved up to d and removed later. (With a
// descriptor or a stack frame for each level, a deep chain of directories would end the
// process or the removal.) If there is nothing at name, that is no error. If ctx ends, the
// rest stays in d, under names that begin with a dot, where the removal of d itself finds
// it.
func (d *Dir) RemoveAll(ctx context.Context, name string) error {
	at, err := d.parent(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer at.Close()
	r := &removal{ctx: ctx, top: at, prefix: ".lifted-" + rand.Text()[:8] + "-"}
	r.todo = append(r.todo, baseOf(name))
	var failed error
	for len(r.todo) > 0 {
		next := r.todo[len(r.todo)-1]
		r.todo = r.todo[:len(r.todo)-1]
		if err := r.remove(next); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			failed = errors.Join(failed, err) // the others can still be removed
			if r.failures++; r.failures >= maxFailures {
				break
			}
		}
	}
	return failed
}

// maxFailures limits how many failures are tried and reported when a disk refuses
// everything.
const maxFailures = 16

type removal struct {
	ctx      context.Context
	top      *Dir
	prefix   string   // of the names of directories that were moved up
	todo     []string // directories in top that are still to be removed
	lifted   int      // how many were moved up, which numbers their names
	failures int
}

// remove empties and removes one directory, or one file, of top. Directories in it that
// aren't empty are moved up into top.
func (r *removal) remove(name string) error {
	err := unix.Unlinkat(r.top.fd(), name, 0)
	if err == nil || err == unix.ENOENT {
		return nil
	}
	if err != unix.EISDIR && err != unix.EPERM { // POSIX and Linux differ on directories
		return &fs.PathError{Op: "remove", Path: name, Err: err}
	}
	dir, err := r.top.Dir(name)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := opened(dir); err != nil {
		return err
	}
	for pass := 0; ; pass++ {
		if err := r.empty(dir); err != nil {
			return err
		}
		err := unix.Unlinkat(r.top.fd(), name, unix.AT_REMOVEDIR)
		if err == nil || err == unix.ENOENT {
			return nil
		}
		if err != unix.ENOTEMPTY || pass == maxPasses {
			return &fs.PathError{Op: "remove", Path: name, Err: err}
		}
	}
}

// maxPasses limits how often a directory is emptied that somebody keeps filling.
const maxPasses = 8

// opened gives the owner of dir all rights in it, where the mode lacks them.
func opened(dir *Dir) error {
	if defence.Off(defence.RemoveClosed) {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(dir.fd(), &st); err != nil {
		return &fs.PathError{Op: "stat", Path: dir.file.Name(), Err: err}
	}
	if st.Mode&0o700 == 0o700 {
		return nil
	}
	return dir.chmod(0o700)
}

// empty removes the files and empty directories in dir and moves the others up.
func (r *removal) empty(dir *Dir) error {
	f, err := dir.beneath(".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	var failed error
	for {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		names, rerr := f.Readdirnames(batch)
		for _, n := range names {
			if err := r.entry(dir, n); err != nil {
				failed = err // the others can still be removed
			}
		}
		if rerr != nil || len(names) == 0 {
			return failed // the end; a file made meanwhile shows when dir is removed
		}
	}
}

func (r *removal) entry(dir *Dir, name string) error {
	err := unix.Unlinkat(dir.fd(), name, 0)
	if err == nil || err == unix.ENOENT {
		return nil
	}
	if err != unix.EISDIR && err != unix.EPERM {
		return &fs.PathError{Op: "remove", Path: name, Err: err}
	}
	switch err := unix.Unlinkat(dir.fd(), name, unix.AT_REMOVEDIR); err {
	case nil, unix.ENOENT:
		return nil
	case unix.ENOTEMPTY:
	default:
		return &fs.PathError{Op: "remove", Path: name, Err: err}
	}
	// The directory moves up beside the first one. The name may be in use.
	for {
		r.lifted++
		to := r.prefix + strconv.Itoa(r.lifted)
		err := unix.Renameat2(dir.fd(), name, r.top.fd(), to, unix.RENAME_NOREPLACE)
		if err == unix.EEXIST {
			continue
		}
		if err == unix.EACCES || err == unix.EPERM { // its own ".." changes, so it must be writable
			if err = openUp(dir, name); err == nil {
				err = unix.Renameat2(dir.fd(), name, r.top.fd(), to, unix.RENAME_NOREPLACE)
			}
		}
		if err != nil {
			return fmt.Errorf("move %s up to remove it: %w", name, err)
		}
		r.todo = append(r.todo, to)
		return nil
	}
}

func baseOf(name string) string {
	for i := len(name) - 1; i >= 0; i-- {
		if name[i] == '/' {
			return name[i+1:]
		}
	}
	return name
}
