package publish

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/durable"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// A put is acknowledged when two things are on disk: the content of the new file, and an
// entry of the journal with its bytes as an object, its record in the trash and a redo
// record, trash/{id}/redo, that says how to do it again. The acknowledgement does not wait
// for the folder of the trash entry, for the exchange with the live file, or for the live
// file's folder. Those are synced together with those of other puts, before anything but
// another put changes the tree, and then the redo record is removed. A start repeats, in
// their order, the puts whose redo records are still there.
//
// Only names are done again. The entry's own folder shows whether the exchange reached the
// disk, for its names changed before the exchange and with it: if it is another folder, or
// still holds the new file, the exchange did not reach the disk, and the live file is
// older. If it did, the live name has what was put or something newer, and nothing is
// touched.

// redoMark is the name of a redo record in its entry.
const redoMark = "redo"

// maxUnsettled is how many puts may be done whose names are not synced yet.
const maxUnsettled = 64

// maxRedone is how many puts a start repeats. There are no more records unless somebody
// else made them.
const maxRedone = 64 * maxUnsettled

// redo says how a put is done again.
type redo struct {
	Turn  uint64 `json:"turn"`         // its number in the sequence of puts of one engine
	Is    Inode  `json:"is"`           // the file that is put
	Was   Inode  `json:"was,omitzero"` // the file that it displaces; zero if there is none
	Entry Inode  `json:"entry"`        // the folder of its entry in the trash
	Trash Inode  `json:"trash"`        // the trash itself, which differs in a copy of all files
}

// unsettled is a put whose names are not known to be on disk.
type unsettled struct {
	redo
	entry TrashEntry
	dir   Inode // the folder of the live file; zero if a start found the put
}

// is reports whether two inodes are the same. The device is not compared: its number
// changes when the machine starts again, and everything here is on one device.
func (i Inode) is(j Inode) bool { return i.Ino != 0 && i.Ino == j.Ino && i.Born == j.Born }

// at returns the inode of a name in a directory, or the zero Inode if nothing is there.
func at(dirfd int, name string) (Inode, error) {
	i, err := InodeAt(dirfd, name)
	return i, disk.IgnoreUnreachable(err)
}

// BeforePut finishes every plan that has started. It does not wait for other puts to be on
// disk.
func (mv *Mover) BeforePut(ctx context.Context) error {
	if err := mv.may(); err != nil {
		return err
	}
	ids, err := mv.Pending(ctx)
	if err == nil && (len(ids) > 0 || len(mv.unsettled) >= maxUnsettled) {
		err = mv.SettlePuts()
	}
	return errors.Join(err, mv.finishPlans(ctx, ids))
}

// Put puts a file of the engine's own in the place of name in dir, and reports what was
// displaced, none if that isn't a file. store stores the file's content. The file is not
// put if somebody meanwhile removed what was there, or after an error. If Put succeeds, the
// file is on disk when it returns, or will be after the next start.
func (mv *Mover) Put(file string, m TrashEntry, dir int, name string, store func() (gitstore.Entry, error)) (_ TrashEntry, took bool, was gitstore.Entry, err error) {
	mv.turn++
	m.redo = &redo{Turn: mv.turn}
	u := unsettled{}
	if u.dir, err = InodeAt(dir, "."); err == nil {
		m.redo.Was, err = at(dir, name)
	}
	if err == nil {
		m.redo.Is, err = InodeAt(unix.AT_FDCWD, file)
	}
	if err != nil {
		return m, false, was, err
	}
	if m, err = mv.Intend(file, m, store); err != nil {
		return m, false, was, err
	}
	u.redo, u.entry = *m.redo, m
	mv.unsettled = append(mv.unsettled, u)
	if took, was, err = mv.Swap(m, dir, name, true); err != nil {
		if now, other, cerr := mv.store.EntryAt(unix.AT_FDCWD, mv.Trash(m.ID, "content")); cerr == nil && !other && now == m.New {
			err = errors.Join(err, mv.RemoveEntry(m.ID)) // nothing was exchanged
		}
	}
	return m, took, was, err
}

// swapped looks at what an exchange displaced. If that is not what the redo record says,
// because somebody wrote in between, the put would not be done again, so it is synced at
// once.
func (mv *Mover) swapped(m TrashEntry) error {
	was, err := at(unix.AT_FDCWD, mv.Trash(m.ID, "content"))
	if err == nil && was != m.redo.Was {
		err = mv.SettlePuts()
	}
	return err
}

// leaveAs removes an entry's redo record, so that nothing of it is done again.
func (mv *Mover) leaveAs(m TrashEntry) error {
	if m.redo == nil {
		return nil
	}
	mv.unsettled = slices.DeleteFunc(mv.unsettled, func(u unsettled) bool { return u.entry.ID == m.ID })
	return errors.Join(disk.RemoveIfThere(mv.Trash(m.ID, redoMark)), mv.store.ForgetForGood(trashRecord(m.ID, redoMark)))
}

// SettlePuts makes the names of everything that was put durable.
func (mv *Mover) SettlePuts() error {
	if len(mv.unsettled) == 0 {
		return nil
	}
	if err := mv.syncPuts(); err != nil {
		return fmt.Errorf("sync what was put: %w", err)
	}
	mv.crash("puts.synced")
	names := make([]string, 0, len(mv.unsettled))
	for _, u := range mv.unsettled {
		// The record is removed before the journal drops the put: a journal that begins
		// anew at that point syncs the folder.
		if err := disk.IgnoreUnreachable(disk.RemoveIfThere(mv.Trash(u.entry.ID, redoMark))); err != nil {
			return err
		}
		names = append(names, trashRecord(u.entry.ID, redoMark))
	}
	if err := mv.store.ForgetForGood(names...); err != nil {
		return err
	}
	mv.unsettled = nil
	return nil
}

// syncPuts syncs the folders that puts changed, in the live tree and in the trash, and
// those above them. If there are many, or a folder has moved meanwhile, the whole file
// system is synced.
func (mv *Mover) syncPuts() error {
	own, live := map[string]bool{mv.Trash(): true}, map[string]Inode{}
	moved := false
	for _, u := range mv.unsettled {
		own[mv.Trash(u.entry.ID)] = true
		d := wire.ParentDir(string(u.entry.Path))
		if in := live[d]; in != u.dir && in != (Inode{}) && u.dir != (Inode{}) {
			moved = true
		} else if in == (Inode{}) {
			live[d] = u.dir
		}
		for d != "." {
			d = wire.ParentDir(d)
			if _, known := live[d]; !known {
				live[d] = Inode{} // a folder above it
			}
		}
	}
	if moved || len(own)+len(live) > disk.SyncAllAbove {
		return mv.syncAll()
	}
	var g errgroup.Group // concurrently, so that they share commits of the file system's journal
	g.SetLimit(8)
	for d := range own {
		g.Go(func() error { return disk.IgnoreUnreachable(durable.SyncDir(d)) })
	}
	for d, want := range live {
		g.Go(func() error { return mv.syncLive(d, want) })
	}
	err := g.Wait()
	if errors.Is(err, errElsewhere) {
		err = mv.syncAll()
	}
	return err
}

func (mv *Mover) syncAll() error {
	return errors.Join(unix.Syncfs(mv.look.Root), disk.SyncAll(mv.store.Work()))
}

var errElsewhere = errors.New("the folder is another one now")

// syncLive syncs a folder of the live tree if it still is the folder that is meant.
func (mv *Mover) syncLive(d string, want Inode) error {
	fd, err := disk.OpenDir(mv.look.Root, d)
	if err == nil {
		defer unix.Close(fd)
		var in Inode
		if in, err = InodeAt(fd, "."); err == nil && (want == Inode{} || in.is(want)) {
			return unix.Fsync(fd)
		}
	}
	if disk.IgnoreUnreachable(err) == nil {
		return errElsewhere
	}
	return err
}

// RedoPuts repeats, in their order, the puts that a crash of the machine kept from the
// disk. It must be called before anything is removed from the trash.
func (mv *Mover) RedoPuts(ctx context.Context) error {
	files, err := filepath.Glob(mv.Trash("*", redoMark))
	if err != nil {
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
		if err == nil && (wire.CheckPath(string(u.entry.Path), false) != nil || wire.CheckNames(string(u.entry.Path)) != nil || !u.entry.New.Exists()) {
			err = &disk.BadFile{File: redoMark, Err: errors.New("it names nothing that can be put")}
		}
		u.entry.ID = id
		all = append(all, u)
		if err == nil {
			continue
		}
		if !isNoBook(err) {
			return err
		}
		mv.logger.WarnContext(ctx, "the record of a put can't be read: the files are as they are", "entry", id, "error", err)
		mv.unsettled, all = append(mv.unsettled, u), all[:len(all)-1]
	}
	slices.SortFunc(all, func(a, b unsettled) int {
		return cmp.Or(cmp.Compare(a.Turn, b.Turn), strings.Compare(a.entry.ID, b.entry.ID))
	})
	if len(all) > maxRedone {
		mv.logger.WarnContext(ctx, "there are more records of puts than an engine leaves: the files are as they are", "records", len(all))
		mv.unsettled, all = append(mv.unsettled, all...), nil
	}
	for i := range all {
		err := mv.again(ctx, &all[i], all[:i])
		if err != nil && (fault.NoSpace(err) || ctx.Err() != nil) {
			return fmt.Errorf("put %s again: %w", all[i].entry.Path.Shown(), err)
		}
		if err != nil {
			mv.logger.ErrorContext(ctx, "what was put and acknowledged can't be put again after the machine's end; the next checkpoint keeps it", "path", all[i].entry.Path.Shown(), "error", err)
			if err := mv.unput(all[i].entry); err != nil {
				return err
			}
		}
	}
	mv.unsettled = append(mv.unsettled, all...)
	return mv.SettlePuts()
}

// unput removes the new file from an entry, which then says that the put took place and
// that the file is gone since. The next checkpoint keeps its bytes, which are an object,
// although it does not find the file.
func (mv *Mover) unput(m TrashEntry) error {
	content := mv.Trash(m.ID, "content")
	now, other, err := mv.store.EntryAt(unix.AT_FDCWD, content, m.New)
	if err != nil || other || now != m.New {
		return err
	}
	return disk.RemoveIfThere(content)
}

// again repeats a put unless it took place. The puts before it have been repeated.
func (mv *Mover) again(ctx context.Context, u *unsettled, before []unsettled) error {
	content := mv.Trash(u.entry.ID, "content")
	live, err := mv.inodeOf(string(u.entry.Path))
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
	if kept == (Inode{}) || !folder.is(u.Entry) {
		if err := mv.makeAgain(ctx, u, redo{Turn: u.Turn, Is: kept, Was: live, Entry: folder, Trash: trash}); err != nil {
			return err
		}
	}
	dir, err := disk.MakeDirs(mv.look.Root, wire.ParentDir(string(u.entry.Path)))
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	flag := uint(unix.RENAME_NOREPLACE)
	if live != (Inode{}) {
		flag = unix.RENAME_EXCHANGE
	}
	return disk.RenameAt(unix.AT_FDCWD, content, dir, path.Base(string(u.entry.Path)), flag)
}

// tookPlace reports whether a put, or something newer, reached the disk: live is what has
// its name in the tree now, kept is what its entry holds, and folder is the entry's folder.
func (mv *Mover) tookPlace(u *unsettled, before []unsettled, live, kept, folder Inode) (bool, error) {
	switch {
	case live.is(u.Is): // the new file is there
		return true, nil
	case kept != Inode{} && !kept.is(u.Is): // the entry holds what it displaced
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
		if in, err := at(unix.AT_FDCWD, name); err != nil || in.is(u.Is) {
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
	live, err := mv.look.Lstat(p)
	if disk.IsGone(err) {
		if u.Was == (Inode{}) {
			return false, nil
		}
		return true, mv.unput(u.entry) // it was removed or moved
	}
	if err := disk.IgnoreUnreachable(err); err != nil {
		return false, err
	}
	dir, err := disk.OpenDir(mv.look.Root, wire.ParentDir(p))
	if err != nil {
		return false, err
	}
	defer unix.Close(dir)
	now, other, err := mv.store.EntryAt(dir, path.Base(p), u.entry.New)
	if err != nil || !other && now == u.entry.New {
		return true, err
	}
	if u.Was == (Inode{}) || other || live.Mtime > put.Mtime {
		return true, mv.unput(u.entry)
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
	if err := mv.keepRedo(u.entry.ID, &u.redo); err != nil || content != tmp {
		return err
	}
	return os.Rename(tmp, mv.Trash(u.entry.ID, "content"))
}

// keepRedo replaces a redo record. In an entry that was just made, the record file has the
// entry's own fields as well.
func (mv *Mover) keepRedo(id string, r *redo) error {
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return mv.store.Keep(trashRecord(id, redoMark), raw)
}

// syncBeside starts syncing a file in the background, and returns a function that waits for
// it. Only a regular file needs that: a link is on disk with its folder.
func syncBeside(name string) (func() error, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) {
		return func() error { return nil }, nil
	}
	if err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() { done <- errors.Join(f.Sync(), f.Close()) }()
	return func() error { return <-done }, nil
}
