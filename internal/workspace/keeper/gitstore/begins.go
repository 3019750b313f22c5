package gitstore

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/durable"
	"choir.dev/choiros/internal/workspace/keeper/disk"
)

// beginsFile exists in a repository that was made and has no commit yet. The first commit
// renames it to the branch's file, so that there is always exactly one of the two.
const beginsFile = workDir + "/begins"

// First runs f, which makes the first commit of a history. If this process made the
// repository, and nothing was kept in it before, what f writes is synced all at once,
// before the branch's file gets its name.
func (s *Store) First(f func() error) error {
	s.first = s.begins.Load()
	defer func() { s.first = false }()
	return f()
}

// Unsynced says that everything written now is synced once at the end.
func (s *Store) Unsynced() bool { return s.first }

// counts makes a repository without a commit count as begun: somebody keeps something in
// it.
func (s *Store) counts() error {
	if s.first || !s.begins.Load() {
		return nil
	}
	if err := disk.SyncAll(s.root); err != nil {
		return err
	}
	if err := errors.Join(disk.RemoveIfThere(s.File(beginsFile)), durable.SyncDir(s.Work())); err != nil {
		return err
	}
	s.begins.Store(false)
	return nil
}

// beginMain points the branch at the first commit, once everything written is on disk.
func (s *Store) beginMain(id string) error {
	s.refs.Lock()
	defer s.refs.Unlock()
	f, err := os.OpenFile(s.File(beginsFile), os.O_WRONLY|os.O_TRUNC|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(id + "\n")
	if err = errors.Join(err, f.Close(), disk.RemoveEmpty(s.File(Main))); err != nil {
		return err
	}
	if err := disk.SyncAll(s.root); err != nil {
		return err
	}
	if err := os.Rename(s.File(beginsFile), s.File(Main)); err != nil {
		return err
	}
	s.begins.Store(false)
	return durable.SyncDir(s.File("refs", "heads"))
}

// unmake moves away a repository whose making was interrupted: its maker ended before the
// first commit, and nobody kept anything in it.
func (s *Store) unmake() (gone bool, err error) {
	there, err := disk.Exists(s.File(beginsFile))
	if err != nil || !there {
		return false, err
	}
	lock, err := disk.Lock(s.Work("lock"))
	if err != nil {
		return false, err
	}
	defer lock.Close() // releases the lock; nothing is written
	for _, name := range []string{Main, "packed-refs"} {
		counts, err := disk.Exists(s.File(name))
		if err != nil {
			return false, err
		}
		if counts {
			return false, errors.Join(disk.RemoveIfThere(s.File(beginsFile)), durable.SyncDir(s.Work()))
		}
	}
	if err := disk.RemoveTree(s.fresh()); err != nil {
		return false, err
	}
	if err := os.Rename(s.gitDir, s.fresh()); err != nil {
		return false, err
	}
	return true, durable.SyncDir(s.root)
}
