package publish

import (
	"errors"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Follow puts a file of the engine's own, which is on disk, in the place of the file name
// in dir, and reports whether it did. displaced says whether what is there may be
// displaced: it is then something that the host holds, as it holds the file itself, so
// neither is synced or kept here. Anything else goes back to its place. What was written in
// between stays at the path, and the other file goes to the trash.
func (mv *Mover) Follow(file string, p wire.Path, dir int, name string, displaced func(gitstore.Entry) bool) (took bool, err error) {
	mv.scanner.Wrote(string(p))
	ours, _, err := mv.store.EntryAt(unix.AT_FDCWD, file)
	if err != nil {
		return false, err
	}
	if displaced(gitstore.None) {
		err := disk.RenameAt(unix.AT_FDCWD, file, dir, name, unix.RENAME_NOREPLACE)
		if errors.Is(err, unix.EEXIST) {
			return false, nil
		}
		return err == nil, err
	}
	// After the exchange, file may be somebody's work. A start of the engine keeps files
	// with such a name.
	stray := mv.store.Work("tmp-write-" + Token())
	if err := disk.RenameAt(unix.AT_FDCWD, file, unix.AT_FDCWD, stray, unix.RENAME_NOREPLACE); err != nil {
		return false, err
	}
	drop := func() error { return disk.RemoveIfThere(stray) }
	if err := disk.RenameAt(unix.AT_FDCWD, stray, dir, name, unix.RENAME_EXCHANGE); disk.IsGone(err) {
		return false, drop()
	} else if err != nil {
		return false, errors.Join(err, drop())
	}
	mv.crash("follow.exchanged")
	was, other, err := mv.store.EntryAt(unix.AT_FDCWD, stray)
	if err == nil && !other && displaced(was) {
		return true, mv.discard(stray, p, was)
	}
	for range 2 {
		if xerr := disk.RenameAt(unix.AT_FDCWD, stray, dir, name, unix.RENAME_EXCHANGE); xerr != nil {
			break // the live file was removed, which is newer
		}
		out, other, oerr := mv.store.EntryAt(unix.AT_FDCWD, stray)
		if err = errors.Join(err, oerr); oerr == nil && !other && out == ours {
			return false, errors.Join(err, mv.discard(stray, p, ours))
		}
		// Somebody wrote in between, and what they wrote goes back to its path.
	}
	_, terr := mv.ToTrash(unix.AT_FDCWD, stray, TrashEntry{Trashed: wire.Trashed{Path: p}, Op: "merge"})
	return false, errors.Join(err, terr)
}
