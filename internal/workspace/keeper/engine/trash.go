package engine

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/wire"
	"golang.org/x/sys/unix"
)

// The trash, .git/choir/trash/{id}/, holds what was displaced or removed:
//
//	meta.json  what it is and where it was; durable before anything is moved
//	content    the file or directory itself
//	told       the host has it in its log, or need not
//	uncaptured what was put in its place is in no checkpoint yet
//
// A file that is to take another's place is first of all put into an entry of
// its own, and then exchanged with the other. From that moment on content is
// what was displaced, which is somebody's acknowledged work: no death, however
// late, leaves it in a place that a start clears away.

// trashMeta is what is known of an entry.
type trashMeta struct {
	wire.Trashed
	At  int64  `json:"at,omitempty"`  // Unix milliseconds
	Age int64  `json:"age,omitempty"` // of the trash then, see trashAge
	Op  string `json:"op,omitempty"`  // write, remove, merge, heal
	// New is what takes content's place in the live tree. While content is
	// still this, nothing has happened. Its bytes are in the object database.
	New    gitstore.Entry `json:"new,omitzero"`
	Size   int64          `json:"size,omitempty"`
	SHA256 string         `json:"sha256,omitempty"`
	Role   string         `json:"role,omitempty"`
	User   string         `json:"user,omitempty"`
	Host   bool           `json:"host,omitempty"` // the host appends an event of it
}

func (e *Engine) trash(elem ...string) string {
	return e.store.Work(append([]string{"trash"}, elem...)...)
}

// trashTime begins every entry's id, so that entries sort by time.
const trashTime = "20060102T150405"

// makeEntry makes an entry durable and returns what is known of it. file, when
// not empty, is a file of the engine's own that becomes its content.
func (e *Engine) makeEntry(file string, m trashMeta) (trashMeta, error) {
	m.ID, m.At = e.newID()
	m.Time, m.Age = m.At/1000, e.trashAge.now(e.opts.Now()).Milliseconds()
	if err := disk.PlainDir(e.trash()); err != nil {
		return m, err
	}
	if err := os.Mkdir(e.trash(m.ID), 0o755); err != nil {
		return m, err
	}
	if file != "" {
		if err := os.Rename(file, e.trash(m.ID, "content")); err != nil {
			return m, errors.Join(err, disk.RemoveTree(e.trash(m.ID)))
		}
	}
	raw, err := json.Marshal(m)
	if err == nil && m.Op == "write" {
		err = os.WriteFile(e.trash(m.ID, uncapturedMark), nil, 0o644) // durable with the record
	}
	if err == nil {
		err = errors.Join(disk.WriteDurably(e.trash(m.ID, "meta.json"), raw), disk.SyncDir(e.trash()), disk.SyncDir(e.store.Work()))
	}
	if err != nil {
		// Nothing was exchanged yet: content, if there is any, is the new file.
		return m, errors.Join(err, disk.RemoveTree(e.trash(m.ID)))
	}
	return m, nil
}

// intend makes an entry of a file that is to be exchanged with a live one.
func (e *Engine) intend(file string, m trashMeta) (trashMeta, error) {
	m, err := e.makeEntry(file, m)
	if err == nil {
		e.crash("trash.intended")
	}
	return m, err
}

// swap exchanges an entry's content with what name is in dir, and returns what
// was displaced (none when it isn't a file). Where nothing is, it goes there if
// fresh says so; it reports false when nothing took place.
func (e *Engine) swap(m trashMeta, dir int, name string, fresh bool) (took bool, was gitstore.Entry, err error) {
	content := e.trash(m.ID, "content")
	if fresh {
		err = disk.RenameAt(unix.AT_FDCWD, content, dir, name, unix.RENAME_NOREPLACE)
	}
	if !fresh || errors.Is(err, unix.EEXIST) {
		err = disk.RenameAt(unix.AT_FDCWD, content, dir, name, unix.RENAME_EXCHANGE)
		if disk.IsGone(err) {
			return false, gitstore.None, nil
		}
		if err == nil {
			e.crash("trash.exchanged")
			was, _, err = e.store.EntryAt(unix.AT_FDCWD, content, e.look.Index.At(string(m.Path)).Entry)
		}
	}
	if err != nil {
		return false, gitstore.None, err
	}
	return true, was, disk.SyncDir(e.trash(m.ID))
}

// takeBack undoes a swap. What is newer than what it put in place stays there,
// and what can't go back stays in the entry.
func (e *Engine) takeBack(m trashMeta, dir int, name string) error {
	content := e.trash(m.ID, "content")
	there, err := disk.Exists(content)
	if err != nil {
		return err
	}
	if !there { // nothing was displaced: what was put there goes out again
		err = disk.RenameAt(dir, name, unix.AT_FDCWD, content, unix.RENAME_NOREPLACE)
	} else if cur, _, cerr := e.store.EntryAt(unix.AT_FDCWD, content, m.New); cerr != nil || cur == m.New {
		err = cerr // it was not swapped, or for the same
	} else {
		err = disk.RenameAt(unix.AT_FDCWD, content, dir, name, unix.RENAME_EXCHANGE)
	}
	if err != nil && !disk.IsGone(err) {
		return err
	}
	out, other, err := e.store.EntryAt(unix.AT_FDCWD, content, m.New)
	if err != nil {
		return err
	}
	if !other && (out == m.New || !out.Exists()) {
		return errors.Join(unix.Fsync(dir), e.dropEntry(m, m.New))
	}
	// Somebody's newer file came out: it belongs there, and what it gave way to
	// is in the entry. Where the live file is gone, that is the newer word.
	err = disk.RenameAt(unix.AT_FDCWD, content, dir, name, unix.RENAME_EXCHANGE)
	if disk.IsGone(err) {
		err = nil
	}
	return errors.Join(err, unix.Fsync(dir), e.captured(m.ID), disk.SyncDir(e.trash(m.ID)))
}

// dropEntry forgets an entry whose content is want, which is held elsewhere, if
// nobody can write to it any more; otherwise the entry stays.
func (e *Engine) dropEntry(m trashMeta, want gitstore.Entry) error {
	content := e.trash(m.ID, "content")
	quiet, err := noWriter(content)
	if err != nil {
		return err
	}
	now, other, err := e.store.EntryAt(unix.AT_FDCWD, content, want)
	if err != nil {
		return err
	}
	if !quiet || other || now.Exists() && now != want {
		return errors.Join(e.told(m.ID), e.captured(m.ID))
	}
	return disk.RemoveTree(e.trash(m.ID))
}

// discard removes a file of the engine's own whose content is want, which is
// held elsewhere. A file that is anything else by now, or that somebody may
// still write to, goes to the trash.
func (e *Engine) discard(file string, p wire.Path, want gitstore.Entry) error {
	quiet, err := noWriter(file)
	if err != nil {
		return err
	}
	now, other, err := e.store.EntryAt(unix.AT_FDCWD, file, want)
	if err != nil {
		return err
	}
	if !other && (quiet && now == want || !now.Exists()) {
		return disk.RemoveIfThere(file)
	}
	_, err = e.toTrash(unix.AT_FDCWD, file, trashMeta{Trashed: wire.Trashed{Path: p}, Op: "merge"})
	return err
}

// toTrash moves a file or directory to the trash.
func (e *Engine) toTrash(dirfd int, name string, m trashMeta) (wire.Trashed, error) {
	m, err := e.makeEntry("", m)
	if err != nil {
		return wire.Trashed{}, err
	}
	if err := disk.MoveTo(dirfd, name, unix.AT_FDCWD, e.trash(m.ID, "content")); err != nil {
		return wire.Trashed{}, errors.Join(err, disk.RemoveTree(e.trash(m.ID)))
	}
	e.crash("trash.moved")
	return m.Trashed, errors.Join(disk.SyncDir(e.trash(m.ID)), e.emptyTrash())
}

// Remove moves a path, whatever it is, to the trash.
func (e *Engine) Remove(ctx context.Context, req wire.RemoveRequest) (wire.Removed, error) {
	const op = "keeper.Remove"
	p := string(req.Path)
	if err := badPath(p, false); err != nil {
		return wire.Removed{}, fault.Wrap(op, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.rollForward(ctx); err != nil {
		return wire.Removed{}, fault.Wrap(op, err)
	}
	dir, err := disk.OpenDir(e.look.Root, wire.ParentDir(p))
	if err != nil {
		return wire.Removed{}, fileError(op, p, err)
	}
	defer unix.Close(dir)
	if _, err := disk.Lstat(dir, path.Base(p)); err != nil {
		return wire.Removed{}, fileError(op, p, err)
	}
	t, err := e.toTrash(dir, path.Base(p), trashMeta{Trashed: wire.Trashed{Path: req.Path}, Op: "remove", Role: req.Role, User: req.User, Host: true})
	if err != nil {
		return wire.Removed{}, fileError(op, p, err)
	}
	m, err := e.entry(t.ID)
	return wire.Removed{Trashed: t, At: m.At}, fileError(op, p, errors.Join(err, unix.Fsync(dir)))
}

func (e *Engine) entry(id string) (trashMeta, error) {
	var m trashMeta
	err := disk.ReadJSON(e.trash(id, "meta.json"), &m)
	return m, err
}

// told notes that nobody need be told of an entry any more. It is not synced:
// being told again is harmless.
func (e *Engine) told(id string) error {
	return os.WriteFile(e.trash(id, "told"), nil, 0o644)
}

// untoldEntries visits every entry of the trash that is not told, and says
// whether what it stands for took effect.
func (e *Engine) untoldEntries(visit func(m trashMeta, happened bool) error) error {
	entries, err := os.ReadDir(e.trash())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, en := range entries {
		if told, err := disk.Exists(e.trash(en.Name(), "told")); err != nil || told || !en.IsDir() {
			if err != nil {
				return err
			}
			continue
		}
		m, err := e.entry(en.Name())
		if err != nil {
			// Its record never became durable, so nothing was exchanged yet; or
			// it is damaged, and what it holds stays all the same.
			continue
		}
		m.ID = en.Name()
		there, err := disk.Exists(e.trash(m.ID, "content"))
		if err != nil {
			return err
		}
		happened := there
		if m.New.Exists() && there {
			now, other, err := e.store.EntryAt(unix.AT_FDCWD, e.trash(m.ID, "content"), m.New)
			if err != nil {
				return err
			}
			happened = other || now != m.New
		} else if m.New.Exists() {
			happened = true // it went where nothing was
		}
		if err := visit(m, happened); err != nil {
			return err
		}
	}
	return nil
}

// recoverTrash drops the entries of exchanges that a death kept from happening,
// and brings what an earlier version left exchanged outside the trash into it.
func (e *Engine) recoverTrash() error {
	err := e.untoldEntries(func(m trashMeta, happened bool) error {
		if happened {
			return nil
		}
		return disk.RemoveTree(e.trash(m.ID))
	})
	if err != nil {
		return err
	}
	var stray []string
	for _, glob := range []string{"tmp-write-*", "tmp-late-*", "publish/*/aside/*m"} {
		found, err := filepath.Glob(e.store.Work(glob))
		if err != nil {
			return err
		}
		stray = append(stray, found...)
	}
	slices.Sort(stray)
	for _, file := range stray {
		name := strings.TrimPrefix(file, e.store.Work()+"/")
		if _, err := e.toTrash(unix.AT_FDCWD, file, trashMeta{Trashed: wire.Trashed{Path: wire.Path("recovered/" + strings.ReplaceAll(name, "/", "-"))}, Op: "merge"}); err != nil {
			return err
		}
	}
	return nil
}
