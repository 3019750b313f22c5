package publish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/durable"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Only names are done again. The entry's own folder, which was made before the act, shows
// how much came to the disk, because changes of names come to it in the order in which they
// were made. If it is another folder, which the journal made, nothing of the act did, and
// whatever is live is older: the act is done with that. Otherwise the folder shows whether
// the act took place: by what it displaced or removed, or by the mark of a move. If it did,
// the live names have what it left or something newer, and nothing is touched.

// maxRedone is how many acts a start repeats. There are no more records unless somebody
// else made them.
const maxRedone = 64 * maxUnsettled

// RedoActs repeats, in their order, the acts that a crash of the machine kept from the
// disk. It must be called before anything is removed from the trash. restarted is when the
// machine started again, zero if it did not: what somebody wrote since then stays.
func (mv *Mover) RedoActs(ctx context.Context, restarted time.Time) error {
	files, err := filepath.Glob(mv.Trash("*", redoMark))
	if err != nil {
		return err
	}
	if mv.inOrder, err = disk.KeepsOrder(mv.scanner.Root); err != nil {
		return err
	}
	var all []unsettled
	for _, file := range files {
		u := unsettled{}
		id := filepath.Base(filepath.Dir(file))
		err := disk.ReadJSON(file, &u.redo)
		if err == nil {
			u.entry, err = mv.Entry(id)
		}
		if err == nil {
			err = u.entry.mayBeRedone()
		}
		u.entry.ID = id
		all = append(all, u)
		if err == nil {
			continue
		}
		if !isNoBook(err) {
			return err
		}
		mv.logger.WarnContext(ctx, "the record of a change can't be read: the files are as they are", "entry", id, "error", err)
		mv.unsettled, all = append(mv.unsettled, u), all[:len(all)-1]
	}
	slices.SortFunc(all, func(a, b unsettled) int {
		return cmp.Or(cmp.Compare(a.Turn, b.Turn), strings.Compare(a.entry.ID, b.entry.ID))
	})
	if len(all) > maxRedone {
		mv.logger.WarnContext(ctx, "there are more records of changes than an engine leaves: the files are as they are", "records", len(all))
		mv.unsettled, all = append(mv.unsettled, all...), nil
	}
	mv.noteRestart(restarted, all)
	for i := range all {
		err := mv.again(ctx, &all[i], all[:i])
		if err == nil {
			continue
		}
		m := all[i].entry
		if fault.NoSpace(err) || ctx.Err() != nil {
			return fmt.Errorf("%s %s again: %w", m.Op, m.Path.Shown(), err)
		}
		mv.logger.ErrorContext(ctx, "what was changed and acknowledged can't be done again after the machine's end; the next checkpoint keeps what was put", "operation", m.Op, "path", m.Path.Shown(), "error", err)
		if m.New.Exists() {
			if err := mv.removePut(&all[i]); err != nil {
				return err
			}
		}
	}
	if err := mv.notePuts(all); err != nil {
		return err
	}
	mv.unsettled = append(mv.unsettled, all...)
	return mv.SettleActs()
}

// mayBeRedone returns an error if an entry is none of an act.
func (m TrashEntry) mayBeRedone() error {
	names := []wire.Path{m.Path}
	ok := m.New.Exists()
	switch m.Op {
	case "remove":
		ok = !m.New.Exists()
	case "move":
		ok = !m.New.Exists()
		names = append(names, m.From)
	}
	for _, p := range names {
		ok = ok && wire.CheckPath(string(p), false) == nil && wire.CheckNames(string(p)) == nil
	}
	if !ok {
		return &disk.BadFile{File: redoMark, Err: errors.New("it names nothing that can be put, removed or moved")}
	}
	return nil
}

// again repeats an act unless it took place. The acts before it have been repeated.
func (mv *Mover) again(ctx context.Context, u *unsettled, before []unsettled) error {
	if u.entry.New.Exists() {
		return mv.putAgain(ctx, u, before)
	}
	done, err := disk.Exists(mv.Trash(u.entry.ID, "took"))
	if err != nil || done {
		return err
	}
	is, err := mv.stateOf(u, before)
	if err != nil {
		return err
	}
	if u.entry.Op == "move" {
		done, err = mv.moveAgain(u, is)
	} else {
		done, err = mv.removeAgain(u, is)
		if err == nil && done && u.entry.Want != "" {
			done, err = mv.wasWanted(u, is)
		}
	}
	if err != nil || !done {
		return err
	}
	// Otherwise a start that goes on where this one died would do it with what the acts
	// after it left.
	return mv.MarkPlaced(u.entry.ID)
}

// state says what of a removal or a move came to the disk.
type state struct {
	nothing bool // whatever is live is older than it
	copied  bool // no inode is what it was
	removed bool // what was removed is in the trash
	u       *unsettled
	before  []unsettled
	mv      *Mover
}

func (mv *Mover) stateOf(u *unsettled, before []unsettled) (state, error) {
	folder, err := at(unix.AT_FDCWD, mv.Trash(u.entry.ID))
	if err != nil {
		return state{}, err
	}
	trash, err := at(unix.AT_FDCWD, mv.Trash())
	if err != nil {
		return state{}, err
	}
	removed, err := disk.Exists(mv.Trash(u.entry.ID, "content"))
	copied := !trash.is(u.Trash)
	return state{nothing: !copied && !folder.is(u.Entry), copied: copied, removed: removed, u: u, before: before, mv: mv}, err
}

// meant reports whether what has a live name is what was removed or moved, or something
// older that has the name because changes of names were lost.
func (s state) meant(in Inode, dir int, p string) (bool, error) {
	if hand, err := s.byHand(dir, p); err != nil || hand {
		return false, err
	}
	ours := func(b unsettled) bool { return in.is(b.Is) && (s.copied || s.u.Was.is(b.First)) }
	if s.nothing || slices.ContainsFunc(s.before, ours) {
		return true, nil
	}
	if !s.copied {
		return in.is(s.u.Was), nil
	}
	changed, err := changedAt(dir, path.Base(p))
	if err != nil || changed == s.u.WasTime {
		return err == nil, err
	}
	return s.isOlder(dir, p)
}

// isOlder reports whether what a copy has at a path was last changed before the act. It is said
// of a folder, too, that acts before this one changed: a start that does those again dates it
// anew.
func (s state) isOlder(dir int, p string) (bool, error) {
	st, err := disk.Lstat(dir, path.Base(p))
	if err != nil || st.Mtime/1e6 <= s.u.entry.At {
		return err == nil, err
	}
	return st.IsDir() && slices.ContainsFunc(s.before, func(b unsettled) bool {
		return overlaps(string(b.entry.Path), p) || b.entry.From != "" && overlaps(string(b.entry.From), p)
	}), nil
}

// overlaps reports whether one of two paths is in the other, or is the other.
func overlaps(p, q string) bool {
	return p == q || strings.HasPrefix(p, q+"/") || strings.HasPrefix(q, p+"/")
}

// removeAgain repeats a removal. It returns false if what is live was written before anybody
// had acknowledged the removal.
func (mv *Mover) removeAgain(u *unsettled, is state) (done bool, err error) {
	if is.removed {
		return true, nil
	}
	dir, in, err := mv.openNamed(string(u.entry.Path))
	if err != nil || in == (Inode{}) {
		return err == nil, err
	}
	defer unix.Close(dir)
	if meant, err := is.meant(in, dir, string(u.entry.Path)); err != nil || !meant {
		return false, err
	}
	err = disk.MoveTo(dir, path.Base(string(u.entry.Path)), unix.AT_FDCWD, mv.Trash(u.entry.ID, "content"))
	return err == nil, err
}

// wasWanted reports whether what was removed is known to be what was to be removed, although
// its content may be another now: an acknowledged removal has no synced mark of that, and a
// power cut takes what a program wrote to the file and did not sync. Otherwise it is compared
// before anything else is done with the trash.
func (mv *Mover) wasWanted(u *unsettled, is state) (bool, error) {
	boot, err := mv.boot()
	if err != nil || boot == u.Boot || u.Boot == "" {
		return false, err // there was no power cut, or it is a record of before
	}
	content := mv.Trash(u.entry.ID, "content")
	in, err := at(unix.AT_FDCWD, content)
	if err != nil || in == (Inode{}) {
		return err == nil, err
	}
	if !is.copied && !in.is(u.Was) {
		// This start removed something older; before the power cut it would have been newer.
		return !is.removed, nil
	}
	changed, err := changedAt(unix.AT_FDCWD, content)
	return err == nil && changed <= u.WasTime, err
}

// moveAgain repeats a move. What has the new name because its removal was lost goes to the
// move's entry. It returns false if what is live was written before anybody had acknowledged
// the move.
func (mv *Mover) moveAgain(u *unsettled, is state) (done bool, err error) {
	from, to := string(u.entry.From), string(u.entry.Path)
	there, err := mv.InodeOf(to)
	if err != nil {
		return false, err
	}
	a, in, err := mv.openNamed(from)
	if err != nil || in == (Inode{}) {
		// It was moved, or what had its name is lost. If somebody has changed the new name
		// since, such as an editor that saves by renaming, that is newer.
		return err == nil && (is.nothing || is.copied || there != Inode{}), err
	}
	defer unix.Close(a)
	if meant, err := is.meant(in, a, from); err != nil || !meant {
		return err == nil && there.is(u.Was), err
	}
	b, err := disk.MakeDirs(mv.scanner.Root, wire.ParentDir(to))
	if err != nil {
		return false, err
	}
	defer unix.Close(b)
	if there != (Inode{}) {
		older := is.nothing
		if is.copied {
			older, err = is.isOlder(b, to)
		}
		hand, herr := is.byHand(b, to)
		if err = errors.Join(err, herr); err != nil || !older || hand {
			return false, err
		}
		if err := disk.MoveTo(b, path.Base(to), unix.AT_FDCWD, mv.Trash(u.entry.ID, "content")); err != nil {
			return false, err
		}
	}
	if err := disk.MoveTo(a, path.Base(from), b, path.Base(to)); err != nil {
		if there != (Inode{}) {
			err = errors.Join(err, disk.MoveTo(unix.AT_FDCWD, mv.Trash(u.entry.ID, "content"), b, path.Base(to)))
		}
		return false, err
	}
	return true, nil
}

// openNamed opens the folder of a live path, and returns the inode of what has its name
// there. Without the folder or the name that is the zero Inode, and nothing is open.
func (mv *Mover) openNamed(p string) (dir int, in Inode, err error) {
	if dir, err = disk.OpenDir(mv.scanner.Root, wire.ParentDir(p)); err != nil {
		return -1, Inode{}, disk.IgnoreUnreachable(err)
	}
	in, err = at(dir, path.Base(p))
	if err != nil || in == (Inode{}) {
		err = errors.Join(err, unix.Close(dir))
	}
	return dir, in, err
}

// removePut removes the new file from an entry, which then says that the put took place and
// that the file is gone since. The next checkpoint keeps its bytes, which are an object,
// although it does not find the file.
func (mv *Mover) removePut(u *unsettled) error {
	content := mv.Trash(u.entry.ID, "content")
	kept, err := at(unix.AT_FDCWD, content)
	if err != nil {
		return err
	}
	if !u.made(kept) { // or it is one in a copy of all files
		now, other, err := mv.store.EntryAt(unix.AT_FDCWD, content, u.entry.New)
		if err != nil || other || now != u.entry.New {
			return err
		}
	}
	return disk.RemoveIfThere(content)
}

// putAgain repeats a put unless it took place.
func (mv *Mover) putAgain(ctx context.Context, u *unsettled, before []unsettled) error {
	content := mv.Trash(u.entry.ID, "content")
	live, err := mv.InodeOf(string(u.entry.Path))
	if err != nil {
		return err
	}
	kept, err := at(unix.AT_FDCWD, content)
	if err != nil {
		return err
	}
	folder, err := at(unix.AT_FDCWD, mv.Trash(u.entry.ID))
	if err != nil {
		return err
	}
	trash, err := at(unix.AT_FDCWD, mv.Trash())
	if err != nil {
		return err
	}
	took := false
	if trash.is(u.Trash) {
		took, err = mv.tookPlace(u, before, live, kept, folder)
	} else {
		took, err = mv.tookPlaceInCopy(u)
	}
	if took || err != nil {
		return err
	}
	if live != (Inode{}) {
		hand, err := state{copied: !trash.is(u.Trash), before: before, mv: mv}.handWritten(string(u.entry.Path))
		if err != nil {
			return err
		}
		if hand {
			return mv.removePut(u)
		}
	}
	if u.made(kept) {
		// The content was synced beside the journal, and may have come to the disk in part. It
		// stays until what is made again takes its name: without it the entry would say that
		// the put took place.
		now, other, err := mv.store.EntryAt(unix.AT_FDCWD, content, u.entry.New)
		if err != nil {
			return err
		}
		if other || now != u.entry.New {
			kept = Inode{}
		}
	}
	if kept == (Inode{}) || !folder.is(u.Entry) {
		if err := mv.makeAgain(ctx, u, redo{Turn: u.Turn, Is: kept, First: cmp.Or(u.First, u.Is), Was: live, Entry: folder, Trash: trash}); err != nil {
			return err
		}
	}
	dir, err := disk.MakeDirs(mv.scanner.Root, wire.ParentDir(string(u.entry.Path)))
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	flag := uint(unix.RENAME_NOREPLACE)
	if live != (Inode{}) {
		flag = unix.RENAME_EXCHANGE
	}
	if err := disk.RenameAt(unix.AT_FDCWD, content, dir, path.Base(string(u.entry.Path)), flag); err != nil {
		return err
	}
	return mv.MarkPlaced(u.entry.ID)
}

// tookPlace reports whether a put, or something newer, reached the disk: live is what has
// its name in the tree now, kept is what its entry holds, and folder is the entry's folder.
func (mv *Mover) tookPlace(u *unsettled, before []unsettled, live, kept, folder Inode) (bool, error) {
	switch {
	case u.made(live): // the new file is there
		return true, nil
	case kept != Inode{} && !u.made(kept): // the entry holds what it displaced
		return true, nil
	case !folder.is(u.Entry): // nothing of the put is on disk, so what is live is older
		return false, nil
	}
	if kept != (Inode{}) {
		// The new file is still in the entry. What is older than the put is what it
		// displaced and what earlier puts put there; anything else that is live was written
		// later, before anybody had acknowledged this put.
		older := live == Inode{} || live.is(u.Was) || slices.ContainsFunc(before, func(b unsettled) bool { return live.is(b.Is) })
		return !older, nil
	}
	if u.Was != (Inode{}) {
		return false, nil // otherwise what it displaced would be here
	}
	// The new file was in the folder, unless it still is where it came from.
	coming, err := filepath.Glob(mv.store.Work("incoming-*"))
	for _, name := range append(coming, mv.Trash(u.entry.ID, madeAgain)) {
		if in, err := at(unix.AT_FDCWD, name); err != nil || u.made(in) {
			return false, err
		}
	}
	return err == nil, err // it went to its place and was removed or moved since
}

// tookPlaceInCopy is tookPlace for a copy of all files, such as one from a snapshot of a
// running file system. Inodes say nothing there, so the files' content and times are
// compared. What may be newer than the put stays, and the next checkpoint keeps what was
// put.
func (mv *Mover) tookPlaceInCopy(u *unsettled) (bool, error) {
	content, p := mv.Trash(u.entry.ID, "content"), string(u.entry.Path)
	kept, other, err := mv.store.EntryAt(unix.AT_FDCWD, content, u.entry.New)
	if err != nil {
		return false, err
	}
	if !other && !kept.Exists() {
		return u.Was == (Inode{}), nil // otherwise what it displaced would be here
	}
	if other || kept != u.entry.New {
		return true, nil // what it displaced is here
	}
	put, err := disk.Lstat(unix.AT_FDCWD, content)
	if err != nil {
		return false, err
	}
	live, err := mv.scanner.Lstat(p)
	if disk.IsGone(err) {
		if u.Was == (Inode{}) {
			return false, nil
		}
		return true, mv.removePut(u) // it was removed or moved
	}
	if err := disk.IgnoreUnreachable(err); err != nil {
		return false, err
	}
	dir, err := disk.OpenDir(mv.scanner.Root, wire.ParentDir(p))
	if err != nil {
		return false, err
	}
	defer unix.Close(dir)
	now, other, err := mv.store.EntryAt(dir, path.Base(p), u.entry.New)
	if err != nil || !other && now == u.entry.New {
		return true, err
	}
	if u.Was == (Inode{}) || other || live.Mtime > put.Mtime {
		return true, mv.removePut(u)
	}
	return false, nil
}

// madeAgain is the name, in an entry, of content that is being made again.
const madeAgain = "again"

// makeAgain puts the new file's content into an entry again, with a redo record that fits
// what is there now, so that a later start can continue if this one dies.
func (mv *Mover) makeAgain(ctx context.Context, u *unsettled, now redo) error {
	content, tmp := mv.Trash(u.entry.ID, "content"), mv.Trash(u.entry.ID, madeAgain)
	if now.Is == (Inode{}) {
		if err := disk.RemoveIfThere(tmp); err != nil {
			return err
		}
		if err := mv.store.Materialize(ctx, tmp, u.entry.New, true); err != nil {
			return err
		}
		var err error
		if now.Is, err = InodeAt(unix.AT_FDCWD, tmp); err != nil {
			return err
		}
		content = tmp
	}
	// The redo record depends on these names.
	if err := errors.Join(durable.SyncDir(filepath.Dir(content)), durable.SyncDir(mv.Trash())); err != nil {
		return err
	}
	u.redo = now
	if err := mv.keepRedo(u); err != nil || content != tmp {
		return err
	}
	return os.Rename(tmp, mv.Trash(u.entry.ID, "content"))
}
