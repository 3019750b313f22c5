package publish

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/durable"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// The trash, .git/choir/trash/{id}/, holds what was displaced or removed:
//
//	meta.json  what it is and where it was; durable before anything is moved
//	content    the file or directory itself
//	took       what was put or moved is in its place: the keeper said so
//	told       the host has it in its log, or need not
//	uncaptured what was put in its place is in no checkpoint yet
//	redo       how an act is done again whose names may not be on disk
//
// A move has an entry too, of its records, until its names are on disk and the host has it
// in its log.
//
// A file that is to take another's place is first of all put into an entry of
// its own, and then exchanged with the other. From that moment on content is
// what was displaced, which is somebody's acknowledged work: no death, however
// late, leaves it in a place that a start clears away.

// UncapturedMark marks a put whose content is not in a checkpoint yet.
const UncapturedMark = "uncaptured"

// Captured removes the mark from a put. That is not synced: a put whose mark comes back is
// found in the history again.
func (mv *Mover) Captured(id string) error {
	return errors.Join(mv.store.Forget(trashRecord(id, UncapturedMark)), disk.RemoveIfThere(mv.Trash(id, UncapturedMark)))
}

// trashRecord returns the name of an entry's record, relative to the keeper's own folder.
func trashRecord(id, name string) string { return "trash/" + id + "/" + name }

// RemoveEntry removes an entry with its content. The records go first, for good if a start
// would read something else from what is left: that of a put that was not told would,
// without content, say that the put took place where there was no file, and a redo record
// says that the act is to be done again.
func (mv *Mover) RemoveEntry(id string) error {
	names := []string{trashRecord(id, "meta.json"), trashRecord(id, UncapturedMark), trashRecord(id, redoMark)}
	mv.unsettled = slices.DeleteFunc(mv.unsettled, func(u unsettled) bool { return u.entry.ID == id })
	forget := mv.store.Forget
	var is [3]bool
	for i, mark := range []string{UncapturedMark, "told", redoMark} {
		var err error
		if is[i], err = disk.Exists(mv.Trash(id, mark)); err != nil {
			return err
		}
	}
	if put, told, again := is[0], is[1], is[2]; again || put && !told {
		forget = mv.store.ForgetForGood
	}
	return errors.Join(forget(names...), disk.RemoveTree(mv.Trash(id)))
}

// Compared reports whether what was removed is what the caller wanted to remove, if they
// named it. If so, it stays removed, even if a program that can reach it changes it
// afterwards.
func (mv *Mover) Compared(m TrashEntry) (bool, error) {
	if m.Want == "" {
		return true, nil
	}
	content := mv.Trash(m.ID, "content")
	alone, err := disk.Unreached(content) // asked first: who has it open may write at any time
	if err != nil {
		return false, err
	}
	was, other, err := mv.store.EntryAt(unix.AT_FDCWD, content)
	if err != nil || other || was.ID != m.Want {
		return false, err
	}
	if alone {
		// Nobody can change it, so a start that does not find this mark, which is not
		// synced, compares the same.
		return true, mv.MarkPlaced(m.ID)
	}
	m.Want = ""
	raw, err := m.record()
	if err != nil {
		return false, err
	}
	return true, mv.store.Keep(trashRecord(m.ID, "meta.json"), raw)
}

// back compares a removed file that a crash left uncompared. If it is not what was to be
// removed, it goes back to its place, or stays in the trash if something else is there or
// the folder is gone.
func (mv *Mover) back(m TrashEntry) error {
	took, err := disk.Exists(mv.Trash(m.ID, "took"))
	if err != nil || took {
		return err
	}
	if was, err := mv.Compared(m); err != nil || was {
		return err
	}
	dir, err := disk.OpenDir(mv.scanner.Root, wire.ParentDir(string(m.Path)))
	if err != nil {
		return disk.IgnoreUnreachable(err)
	}
	defer unix.Close(dir)
	err = disk.MoveTo(unix.AT_FDCWD, mv.Trash(m.ID, "content"), dir, path.Base(string(m.Path)))
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err == nil {
		err = unix.Fsync(dir)
	}
	if err != nil {
		return err
	}
	mv.scanner.Invalidate()
	return mv.RemoveEntry(m.ID)
}

// NoteTaken records that an entry's content is about to be brought back; it becomes durable
// with the next sync. An entry that puts nothing in the content's place is removed with it.
func (mv *Mover) NoteTaken(m TrashEntry) error {
	if !m.New.Exists() || m.Taken {
		return nil
	}
	m.Taken = true
	raw, err := m.record()
	if err != nil {
		return err
	}
	return mv.store.Note(trashRecord(m.ID, "meta.json"), raw)
}

// TrashAside moves what a plan moved aside to the trash.
func (mv *Mover) TrashAside(id string, ops []Step) error {
	entries, err := os.ReadDir(mv.PlanDir(id, "aside"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, en := range entries {
		at := wire.Path("recovered/" + en.Name())
		if n, err := strconv.Atoi(en.Name()); err == nil && n >= 0 && n < len(ops) {
			at = ops[n].Path
		}
		if _, err := mv.ToTrash(unix.AT_FDCWD, mv.PlanDir(id, "aside", en.Name()), TrashEntry{Trashed: wire.Trashed{Path: at}, Op: "merge"}); err != nil {
			return err
		}
	}
	return nil
}

// TrashEntry is the record of an entry.
type TrashEntry struct {
	wire.Trashed
	At  int64  `json:"at,omitempty"`  // Unix milliseconds
	Age int64  `json:"age,omitempty"` // of the trash at that time, see trashAge
	Op  string `json:"op,omitempty"`  // write, remove, move, merge, heal
	// From is where something was moved from; then Path is where it went.
	From wire.Path `json:"from,omitempty"`
	// New is what takes the content's place in the live tree. While content is still this,
	// nothing has happened. Its bytes are in the object database.
	New    gitstore.Entry `json:"new,omitzero"`
	Size   int64          `json:"size,omitempty"`
	SHA256 string         `json:"sha256,omitempty"`
	Actor  string         `json:"role,omitempty"`
	User   string         `json:"user,omitempty"`
	Host   bool           `json:"host,omitempty"`  // the host appends an event of it
	Named  bool           `json:"named,omitempty"` // the event names the entry
	// Want is what a removal was to remove, if nobody has compared it yet; anything else
	// goes back.
	Want string `json:"want,omitempty"`
	// Taken says that content was brought back to some place, so that missing content does
	// not mean that there was none.
	Taken bool  `json:"taken,omitempty"`
	put   Inode // the file that was put, wherever it is by now
	redo  *redo // how it is done again, nil if it is synced at once
}

// record is an entry as its files have it.
func (m TrashEntry) record() ([]byte, error) {
	if m.redo != nil {
		return json.Marshal(struct {
			TrashEntry
			*redo
		}{m, m.redo})
	}
	return json.Marshal(struct {
		TrashEntry
		Put Inode `json:"is,omitzero"`
	}{m, m.put})
}

// Operation is what the host's event of an entry says.
func (m TrashEntry) Operation() wire.Operation {
	return wire.Operation{ID: m.ID, Op: m.Op, Path: m.Path, From: m.From, At: m.At, Size: m.Size, SHA256: m.SHA256, Actor: m.Actor, User: m.User, Named: m.Named}
}

// Trash is the path of the trash, or of something in it.
func (mv *Mover) Trash(elem ...string) string {
	return mv.store.Work(append([]string{"trash"}, elem...)...)
}

// trashTime is the layout of the time with which every entry's id begins, so that entries
// sort by time.
const trashTime = "20060102T150405"

// makeEntry makes an entry durable and returns its record. file, if not empty, is a file of
// the engine's own that becomes its content.
func (mv *Mover) makeEntry(file string, m TrashEntry) (TrashEntry, error) {
	m.ID, m.At = mv.newID()
	m.Named = true
	m.Time, m.Age = m.At/1000, mv.trashAge.now(mv.now()).Milliseconds()
	if err := mv.openTrash(); err != nil {
		return m, err
	}
	if err := os.Mkdir(mv.Trash(m.ID), 0o755); err != nil {
		return m, err
	}
	var err error
	if file != "" {
		// Missing content means that a put went where there was no file. So content is on
		// disk before the record is, or can be made again from what the record says.
		if err = os.Rename(file, mv.Trash(m.ID, "content")); err == nil && m.redo == nil {
			err = durable.SyncDir(mv.Trash(m.ID))
		}
	}
	if err == nil && m.redo == nil {
		err = durable.SyncDir(mv.Trash())
	}
	if err == nil && m.redo != nil { // what is missing of it is made again
		if m.redo.Entry, err = InodeAt(unix.AT_FDCWD, mv.Trash(m.ID)); err == nil {
			m.redo.Trash, err = InodeAt(unix.AT_FDCWD, mv.Trash())
		}
	}
	raw, jerr := m.record()
	// The records are names of one file, because making a file takes a file system longer
	// than everything else that an act does with it.
	if err = errors.Join(err, jerr); err == nil && m.redo != nil {
		err = mv.store.Keep(trashRecord(m.ID, redoMark), raw)
	}
	if err == nil && m.Op == "write" {
		err = mv.store.Keep(trashRecord(m.ID, UncapturedMark), raw)
	}
	if err == nil {
		err = mv.store.Keep(trashRecord(m.ID, "meta.json"), raw)
	}
	if err != nil {
		// Nothing was exchanged yet: the content, if there is any, is the new file.
		return m, errors.Join(err, mv.RemoveEntry(m.ID))
	}
	return m, nil
}

// openTrash makes the trash's folder, which is synced before anything is in it.
func (mv *Mover) openTrash() error {
	if mv.trashThere {
		return nil
	}
	err := disk.PlainDir(mv.Trash())
	if err == nil {
		err = durable.SyncDir(mv.store.Work())
	}
	mv.trashThere = err == nil
	return err
}

// Intend makes the entry of what is about to be done durable: of a file that is to be
// exchanged with a live one, or, if file is empty, of a removal or a move. store, if not
// nil, stores the file's content, which is durable with the entry.
func (mv *Mover) Intend(file string, m TrashEntry, store func() (gitstore.Entry, error)) (TrashEntry, error) {
	made := false
	err := mv.store.Batch(func(flush func() error) (err error) {
		if store != nil {
			if m.New, err = store(); err != nil {
				return err
			}
		}
		if m, err = mv.makeEntry(file, m); err != nil {
			return err
		}
		made = true
		if m.redo == nil || file == "" {
			return flush()
		}
		synced, err := startSync(mv.Trash(m.ID, "content"))
		if err != nil {
			return err
		}
		return errors.Join(flush(), synced())
	})
	if err != nil {
		if made {
			err = errors.Join(err, mv.RemoveEntry(m.ID))
		}
		return m, err
	}
	mv.crash("trash.intended")
	return m, nil
}

// Swap exchanges an entry's content with name in dir, and returns what was displaced (none
// if it isn't a file). If nothing is at name, the content goes there if fresh is true. It
// returns false if nothing was put.
func (mv *Mover) Swap(m TrashEntry, dir int, name string, fresh bool) (took bool, was gitstore.Entry, err error) {
	mv.scanner.Wrote(string(m.Path))
	content := mv.Trash(m.ID, "content")
	if fresh {
		err = disk.RenameAt(unix.AT_FDCWD, content, dir, name, unix.RENAME_NOREPLACE)
	}
	if !fresh || errors.Is(err, unix.EEXIST) {
		err = disk.RenameAt(unix.AT_FDCWD, content, dir, name, unix.RENAME_EXCHANGE)
		if disk.IsGone(err) {
			return false, gitstore.None, nil
		}
		if err == nil {
			mv.crash("trash.exchanged")
			was, _, err = mv.store.EntryAt(unix.AT_FDCWD, content, mv.scanner.Index.At(string(m.Path)).Entry)
		}
	}
	if err != nil {
		return false, gitstore.None, err
	}
	if m.redo != nil {
		return true, was, mv.asRecorded(m, unix.AT_FDCWD, content)
	}
	return true, was, durable.SyncDir(mv.Trash(m.ID))
}

// TakeBack undoes a swap. A file that is newer than what the swap put in place stays there,
// and what can't go back stays in the entry.
func (mv *Mover) TakeBack(m TrashEntry, dir int, name string) error {
	mv.scanner.Invalidate() // a folder may come back
	content := mv.Trash(m.ID, "content")
	there, err := disk.Exists(content)
	if err != nil {
		return err
	}
	if !there { // nothing was displaced: what was put is taken out again
		err = disk.RenameAt(dir, name, unix.AT_FDCWD, content, unix.RENAME_NOREPLACE)
	} else if cur, _, cerr := mv.store.EntryAt(unix.AT_FDCWD, content, m.New); cerr != nil || cur == m.New {
		err = cerr // it was not exchanged, or the two have the same content
	} else {
		err = disk.RenameAt(unix.AT_FDCWD, content, dir, name, unix.RENAME_EXCHANGE)
	}
	if err != nil && !disk.IsGone(err) {
		return err
	}
	out, other, err := mv.store.EntryAt(unix.AT_FDCWD, content, m.New)
	if err != nil {
		return err
	}
	if !other && (out == m.New || !out.Exists()) {
		return errors.Join(unix.Fsync(dir), mv.dropEntry(m, m.New))
	}
	// Somebody's newer file came out, so it goes back, and what it replaced is in the
	// entry. If the live file was removed, that is newer still.
	err = disk.RenameAt(unix.AT_FDCWD, content, dir, name, unix.RENAME_EXCHANGE)
	if disk.IsGone(err) {
		err = nil
	}
	return errors.Join(err, unix.Fsync(dir), mv.Captured(m.ID), durable.SyncDir(mv.Trash(m.ID)), mv.leaveAs(m))
}

// dropEntry removes an entry whose content is want, which is held elsewhere, if nobody can
// write to it any more; otherwise the entry stays.
func (mv *Mover) dropEntry(m TrashEntry, want gitstore.Entry) error {
	content := mv.Trash(m.ID, "content")
	quiet, err := noWriter(content)
	if err != nil {
		return err
	}
	now, other, err := mv.store.EntryAt(unix.AT_FDCWD, content, want)
	if err != nil {
		return err
	}
	if !quiet || other || now.Exists() && now != want {
		return errors.Join(mv.MarkLogged(m.ID), mv.Captured(m.ID), mv.leaveAs(m))
	}
	return mv.RemoveEntry(m.ID)
}

// discard removes a file of the engine's own whose content is want, which is held
// elsewhere. If its content differs by now, or somebody may still write to it, it goes to
// the trash.
func (mv *Mover) discard(file string, p wire.Path, want gitstore.Entry) error {
	quiet, err := noWriter(file)
	if err != nil {
		return err
	}
	now, other, err := mv.store.EntryAt(unix.AT_FDCWD, file, want)
	if err != nil {
		return err
	}
	if !other && (quiet && now == want || !now.Exists()) {
		return disk.RemoveIfThere(file)
	}
	_, err = mv.ToTrash(unix.AT_FDCWD, file, TrashEntry{Trashed: wire.Trashed{Path: p}, Op: "merge"})
	return err
}

// ToTrash moves a file or directory to the trash.
func (mv *Mover) ToTrash(dirfd int, name string, m TrashEntry) (wire.Trashed, error) {
	m, err := mv.makeEntry("", m)
	if err != nil {
		return wire.Trashed{}, err
	}
	if err := disk.MoveTo(dirfd, name, unix.AT_FDCWD, mv.Trash(m.ID, "content")); err != nil {
		return wire.Trashed{}, errors.Join(err, mv.RemoveEntry(m.ID))
	}
	mv.crash("trash.moved")
	err = durable.SyncDir(mv.Trash(m.ID))
	mv.EmptyTrash()
	return m.Trashed, err
}

// Entry reads an entry's record.
func (mv *Mover) Entry(id string) (TrashEntry, error) {
	var r struct {
		TrashEntry
		Put Inode `json:"is"`
	}
	err := disk.ReadJSON(mv.Trash(id, "meta.json"), &r)
	r.TrashEntry.put = r.Put
	return r.TrashEntry, err
}

// MarkLogged records that the host has an entry in its log, or need not. It is not synced: being
// told again is harmless. The entry of a move is removed if its names are on disk.
func (mv *Mover) MarkLogged(id string) error {
	if err := mv.mark(id, "told"); err != nil {
		return err
	}
	if again, err := disk.Exists(mv.Trash(id, redoMark)); err != nil || again {
		return err
	}
	m, err := mv.Entry(id)
	if err != nil {
		if isNoBook(err) {
			return nil // a move's entry whose record is damaged goes when it is old
		}
		return err
	}
	m.ID = id
	return mv.dropMove(m)
}

// MarkPlaced records that an act took place, where nothing else shows it: a move, or a put of what
// was there already. It is not synced, but comes to the disk after the act and before the
// next one: after a power cut the redo record has the act done again otherwise.
func (mv *Mover) MarkPlaced(id string) error { return mv.mark(id, "took") }

// mark gives an entry a name that means something by its presence. It is another hard link
// to the record, for a file of its own takes a file system longer to make.
func (mv *Mover) mark(id, name string) error {
	err := os.Link(mv.Trash(id, "meta.json"), mv.Trash(id, name))
	if err == nil || errors.Is(err, fs.ErrExist) {
		return nil
	}
	return disk.WriteNew(mv.Trash(id, name), nil)
}

// UnloggedEntries visits every entry of the trash that the host has not logged, and says whether the
// change that it stands for took effect.
func (mv *Mover) UnloggedEntries(visit func(m TrashEntry, happened bool) error) error {
	entries, err := os.ReadDir(mv.Trash())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, en := range entries {
		if told, err := disk.Exists(mv.Trash(en.Name(), "told")); err != nil || told || !en.IsDir() {
			if err != nil {
				return err
			}
			continue
		}
		m, err := mv.Entry(en.Name())
		if err != nil {
			// The record never became durable, so nothing was exchanged yet; or it is
			// damaged, and the content stays in any case.
			continue
		}
		m.ID = en.Name()
		there, err := disk.Exists(mv.Trash(m.ID, "content"))
		if err != nil {
			return err
		}
		happened := there
		if m.New.Exists() && there {
			now, other, err := mv.store.EntryAt(unix.AT_FDCWD, mv.Trash(m.ID, "content"), m.New)
			if err != nil {
				return err
			}
			took, err := disk.Exists(mv.Trash(m.ID, "took"))
			if err != nil {
				return err
			}
			happened = took || other || now != m.New
		} else if m.New.Exists() {
			happened = true // it went where there was no file
		} else if m.Op == "move" {
			if happened, err = disk.Exists(mv.Trash(m.ID, "took")); err != nil {
				return err
			}
		}
		if err := visit(m, happened); err != nil {
			return err
		}
	}
	return nil
}

// RecoverTrash drops the entries of exchanges that a crash prevented, and moves into the
// trash what an earlier version left exchanged outside it.
func (mv *Mover) RecoverTrash() error {
	err := mv.UnloggedEntries(func(m TrashEntry, happened bool) error {
		if happened {
			return mv.back(m)
		}
		if m.Op == "move" {
			// What it met at its new name stays in the trash although it did not take place.
			if held, err := disk.Exists(mv.Trash(m.ID, "content")); err != nil || held {
				return errors.Join(err, mv.MarkLogged(m.ID))
			}
		}
		return mv.RemoveEntry(m.ID)
	})
	if err != nil {
		return err
	}
	var stray []string
	for _, glob := range []string{"tmp-write-*", "tmp-late-*", "publish/*/aside/*m"} {
		found, err := filepath.Glob(mv.store.Work(glob))
		if err != nil {
			return err
		}
		stray = append(stray, found...)
	}
	slices.Sort(stray)
	for _, file := range stray {
		name := strings.TrimPrefix(file, mv.store.Work()+"/")
		if _, err := mv.ToTrash(unix.AT_FDCWD, file, TrashEntry{Trashed: wire.Trashed{Path: wire.Path("recovered/" + strings.ReplaceAll(name, "/", "-"))}, Op: "merge"}); err != nil {
			return err
		}
	}
	return nil
}
