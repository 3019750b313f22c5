package publish

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/durable"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// A put, a removal and a move are acts: each is acknowledged when an entry of the journal is
// on disk that has its record in the trash and a redo record, trash/{id}/redo, which says
// how to do it again. That of a put has the new file's bytes as an object, too, and the new
// file itself is synced beside it. The acknowledgement does not wait for the folder of the
// trash entry, for the rename that the act is, or for the live folders whose names it
// changes. Those are synced together with those of other acts, before anything but another
// act changes the tree, and then the redo record is removed. A start repeats, in their
// order, the acts whose redo records are still there: see RedoActs.

// redoMark is the name of a redo record in its entry.
const redoMark = "redo"

// maxUnsettled is how many acts may be done whose names are not synced yet.
const maxUnsettled = 64

// redo says how an act is done again.
type redo struct {
	Turn    uint64 `json:"turn"`               // its number in the sequence of acts of one engine
	Is      Inode  `json:"is,omitzero"`        // the file that is put
	First   Inode  `json:"first,omitzero"`     // the file that was put at first, if Is is one that a start made again
	Was     Inode  `json:"was,omitzero"`       // what a put displaces, or what is removed or moved; zero if there is none
	WasTime int64  `json:"was_time,omitempty"` // when what is removed or moved was last changed, in nanoseconds
	Entry   Inode  `json:"entry"`              // the folder of its entry in the trash
	Trash   Inode  `json:"trash"`              // the trash itself, which differs in a copy of all files
	Boot    string `json:"boot,omitempty"`     // of a removal that names a version: the machine's boot
}

// unsettled is an act whose names are not known to be on disk.
type unsettled struct {
	redo
	entry   TrashEntry
	folders map[string]Inode // the live folders whose names it changed; nil if a start found the act
}

// changed returns the live folders whose names an act changed, by their paths. The zero Inode
// stands for whichever folder has that path.
func (u *unsettled) changed() map[string]Inode {
	if u.folders != nil {
		return u.folders
	}
	out := map[string]Inode{wire.ParentDir(string(u.entry.Path)): {}}
	if u.entry.From != "" {
		out[wire.ParentDir(string(u.entry.From))] = Inode{}
	}
	return out
}

// made reports whether an inode is that of the file that is put.
func (u *unsettled) made(i Inode) bool { return i.is(u.Is) || i.is(u.First) }

// is reports whether two inodes are the same. The device is not compared: its number
// changes when the machine starts again, and everything here is on one device.
func (i Inode) is(j Inode) bool { return i.Ino != 0 && i.Ino == j.Ino && i.BirthTime == j.BirthTime }

// at returns the inode of a name in a directory, or the zero Inode if nothing is there.
func at(dirfd int, name string) (Inode, error) {
	i, err := InodeAt(dirfd, name)
	return i, disk.IgnoreUnreachable(err)
}

// BeforeAct finishes every plan that has started. It does not wait for other acts to be on
// disk.
func (mv *Mover) BeforeAct(ctx context.Context) error {
	if err := mv.may(); err != nil {
		return err
	}
	ids, err := mv.Pending(ctx)
	if err == nil && (len(ids) > 0 || len(mv.unsettled) >= maxUnsettled) {
		err = mv.SettleActs()
	}
	return errors.Join(err, mv.finishPlans(ctx, ids))
}

// newAct starts the redo record of an act that changes names in dir, a folder of the live
// tree. What has the act's name there is what it displaces, removes or moves.
func (mv *Mover) newAct(p wire.Path, dir int) (u unsettled, err error) {
	mv.turn++
	u.Turn = mv.turn
	here, err := InodeAt(dir, ".")
	if err == nil {
		u.Was, err = at(dir, path.Base(string(p)))
	}
	u.folders = map[string]Inode{wire.ParentDir(string(p)): here}
	return u, err
}

// record makes an act's entry, from which it is done again, durable.
func (mv *Mover) record(u *unsettled, file string, m TrashEntry, store func() (gitstore.Entry, error)) (TrashEntry, error) {
	m.redo = &u.redo
	m, err := mv.Intend(file, m, store)
	if err == nil {
		u.entry = m
		mv.unsettled = append(mv.unsettled, *u)
	}
	return m, err
}

// Put puts a file of the engine's own in the place of name in dir, and reports what was
// displaced, none if that isn't a file. store stores the file's content. The file is not
// put if somebody meanwhile removed what was there, or after an error. If Put succeeds, the
// file is on disk when it returns, or will be after the next start.
func (mv *Mover) Put(file string, m TrashEntry, dir int, name string, store func() (gitstore.Entry, error)) (_ TrashEntry, took bool, was gitstore.Entry, err error) {
	u, err := mv.newAct(m.Path, dir)
	if err == nil {
		u.Is, err = InodeAt(unix.AT_FDCWD, file)
	}
	if err != nil {
		return m, false, was, err
	}
	if m, err = mv.record(&u, file, m, store); err != nil {
		return m, false, was, err
	}
	defer mv.outOfOrder(&err)
	if took, was, err = mv.Swap(m, dir, name, true); err != nil {
		if now, other, cerr := mv.store.EntryAt(unix.AT_FDCWD, mv.Trash(m.ID, "content")); cerr == nil && !other && now == m.New {
			err = errors.Join(err, mv.RemoveEntry(m.ID)) // nothing was exchanged
		}
	}
	return m, took, was, err
}

// Remove moves a path to the trash; dir is its folder. If Remove succeeds, the path is gone
// on disk when it returns, or will be after the next start. If m.Want is set and something
// else was there, that is the error changed; it is back in its place then, or stays in the
// trash if something has taken its place meanwhile.
func (mv *Mover) Remove(m TrashEntry, dir int, changed error) (_ TrashEntry, err error) {
	defer mv.outOfOrder(&err)
	name := path.Base(string(m.Path))
	u, err := mv.newAct(m.Path, dir)
	if err == nil {
		u.WasTime, err = changedAt(dir, name)
	}
	if err == nil && m.Want != "" {
		u.Boot, err = mv.boot()
	}
	if err != nil {
		return m, err
	}
	if m, err = mv.record(&u, "", m, nil); err != nil {
		return m, err
	}
	content := mv.Trash(m.ID, "content")
	if err := disk.MoveTo(dir, name, unix.AT_FDCWD, content); err != nil {
		return m, errors.Join(err, mv.RemoveEntry(m.ID))
	}
	mv.crash("trash.moved")
	was, err := mv.Compared(m)
	if was && err == nil {
		err = mv.asRecorded(m, unix.AT_FDCWD, content)
		mv.EmptyTrash()
		return m, err
	}
	err = errors.Join(changed, err)
	mv.scanner.Invalidate() // a folder may appear there
	if back := disk.MoveTo(unix.AT_FDCWD, content, dir, name); back != nil {
		return m, errors.Join(err, fmt.Errorf("what was there is in the trash: %w", back))
	}
	return m, errors.Join(err, unix.Fsync(dir), mv.RemoveEntry(m.ID))
}

// Move renames m.From, in the folder a, to m.Path, in the folder b, where nothing may be. If
// Move succeeds, the names are on disk when it returns, or will be after the next start.
func (mv *Mover) Move(m TrashEntry, a, b int) (_ TrashEntry, err error) {
	defer mv.outOfOrder(&err)
	from, to := path.Base(string(m.From)), path.Base(string(m.Path))
	u, err := mv.newAct(m.From, a)
	if err == nil {
		u.WasTime, err = changedAt(a, from)
	}
	if err == nil {
		u.folders[wire.ParentDir(string(m.Path))], err = InodeAt(b, ".")
	}
	if err != nil {
		return m, err
	}
	if m, err = mv.record(&u, "", m, nil); err != nil {
		return m, err
	}
	if err := disk.MoveTo(a, from, b, to); err != nil {
		return m, errors.Join(err, mv.RemoveEntry(m.ID))
	}
	mv.crash("deed.done")
	// Nothing else tells, from now on, that the file was moved even if it comes back.
	if err := mv.MarkPlaced(m.ID); err != nil {
		if back := disk.MoveTo(b, to, a, from); back != nil {
			return m, errors.Join(err, back) // it was moved, as a start sees
		}
		return m, errors.Join(err, mv.RemoveEntry(m.ID))
	}
	return m, mv.asRecorded(m, b, to)
}

// changedAt is when what has a name in a directory was last changed, in nanoseconds.
func changedAt(dir int, name string) (int64, error) {
	st, err := disk.Lstat(dir, name)
	return st.Mtime, err
}

// asRecorded compares what an act displaced, removed or moved, which has a name in dir now,
// with its redo record. If it is something else, because somebody wrote in between, the act
// would not be done again, so it is synced at once.
func (mv *Mover) asRecorded(m TrashEntry, dir int, name string) error {
	was, err := at(dir, name)
	if err == nil && was != m.redo.Was {
		err = mv.SettleActs()
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

// outOfOrder has an act that succeeded wait for its names where changes of names may come to
// the disk in another order than they were made in: a start could not tell by what is there
// of one which others took place.
func (mv *Mover) outOfOrder(err *error) {
	if *err == nil && !mv.inOrder {
		*err = mv.SettleActs()
	}
}

// SettleActs makes the names that acts changed durable.
func (mv *Mover) SettleActs() error {
	if len(mv.unsettled) == 0 {
		return nil
	}
	if err := mv.syncActs(); err != nil {
		return fmt.Errorf("sync what was put, removed and moved: %w", err)
	}
	mv.crash("puts.synced")
	names := make([]string, 0, len(mv.unsettled))
	for _, u := range mv.unsettled {
		// The record is removed before the journal drops the act: a journal that begins
		// anew at that point syncs the folder.
		if err := disk.IgnoreUnreachable(disk.RemoveIfThere(mv.Trash(u.entry.ID, redoMark))); err != nil {
			return err
		}
		names = append(names, trashRecord(u.entry.ID, redoMark))
	}
	if err := mv.store.ForgetForGood(names...); err != nil {
		return err
	}
	settled := mv.unsettled
	mv.unsettled = nil
	for _, u := range settled {
		if err := mv.dropMove(u.entry); err != nil {
			return err
		}
	}
	return nil
}

// dropMove removes the entry of a move, which holds nothing for anybody, when the host has
// the move in its log.
func (mv *Mover) dropMove(m TrashEntry) error {
	if m.Op != "move" {
		return nil
	}
	told, err := disk.Exists(mv.Trash(m.ID, "told"))
	if err != nil || !told {
		return err
	}
	if held, err := disk.Exists(mv.Trash(m.ID, "content")); err != nil || held {
		return err
	}
	return mv.RemoveEntry(m.ID)
}

// syncActs syncs the folders that acts changed, in the live tree and in the trash, and
// those above them. If there are many, or a folder has moved meanwhile, the whole file
// system is synced.
func (mv *Mover) syncActs() error {
	own, live := map[string]bool{mv.Trash(): true}, map[string]Inode{}
	moved := false
	for _, u := range mv.unsettled {
		own[mv.Trash(u.entry.ID)] = true
		for d, is := range u.changed() {
			if in := live[d]; in != is && in != (Inode{}) && is != (Inode{}) {
				moved = true
			} else if in == (Inode{}) {
				live[d] = is
			}
			for d != "." {
				d = wire.ParentDir(d)
				if _, known := live[d]; !known {
					live[d] = Inode{} // a folder above it
				}
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
	return errors.Join(unix.Syncfs(mv.scanner.Root), disk.SyncAll(mv.store.Work()))
}

var errElsewhere = errors.New("the folder is another one now")

// syncLive syncs a folder of the live tree if it still is the folder that is meant.
func (mv *Mover) syncLive(d string, want Inode) error {
	fd, err := disk.OpenDir(mv.scanner.Root, d)
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

// keepRedo replaces the records of an act that is done again otherwise than it was done.
func (mv *Mover) keepRedo(u *unsettled) error {
	m := u.entry
	m.redo = &u.redo
	raw, err := m.record()
	if err != nil {
		return err
	}
	return mv.store.Batch(func(flush func() error) error {
		for _, name := range []string{redoMark, "meta.json"} {
			if err := mv.store.Keep(trashRecord(m.ID, name), raw); err != nil {
				return err
			}
		}
		return flush()
	})
}

// startSync starts syncing a file in the background, and returns a function that waits for
// it. Only a regular file needs that: a link is on disk with its folder.
func startSync(name string) (func() error, error) {
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
