package publish

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/durable"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// A change of which the host appends an event has an intent, which is durable before the
// change takes effect, so that the change is reported even if the process ends right after
// it. The intent of a put, a removal or a move is its entry in the trash. The intent of
// something that comes back from the trash and of an import is a file of its own,
// .git/choir/deeds/{id}.json; an earlier version left such files of moves, too. Making a
// folder needs no intent, for it has no event.

// Intent is an operation that is about to be done, and what shows afterwards whether it
// was: either Content, a file or folder of the engine's own in .git/choir, is gone because
// it went to its place; or the file that Was says had one name has another name now.
type Intent struct {
	wire.Operation
	Content string `json:"content,omitempty"`
	Was     Inode  `json:"was,omitzero"`
}

// Inode identifies a file or folder: it stays the same when that is renamed, and nothing
// that is made later has the same.
type Inode struct {
	Dev       uint64 `json:"dev"`
	Ino       uint64 `json:"ino"`
	BirthTime int64  `json:"born,omitempty"` // nanoseconds; 0 where the file system has no birth times
}

// InodeAt is the inode of a name in a directory.
func InodeAt(dirfd int, name string) (Inode, error) {
	var st unix.Statx_t
	if err := unix.Statx(dirfd, name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st); err != nil {
		return Inode{}, &os.PathError{Op: "statx", Path: name, Err: err}
	}
	id := Inode{Dev: unix.Mkdev(st.Dev_major, st.Dev_minor), Ino: st.Ino}
	if st.Mask&unix.STATX_BTIME != 0 {
		id.BirthTime = st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
	}
	return id, nil
}

func (mv *Mover) intentFile(id string) string { return mv.store.Work("deeds", id+".json") }

// newID returns an id for an operation or an entry of the trash, such that ids sort by
// time.
func (mv *Mover) newID() (id string, at int64) {
	now := mv.now().UTC()
	return fmt.Sprintf("%s-%09d-%s", now.Format(trashTime), now.Nanosecond(), Token()), now.UnixMilli()
}

// Mean makes an intent durable.
func (mv *Mover) Mean(in *Intent) error {
	in.ID, in.At = mv.newID()
	in.Named = true
	raw, err := json.Marshal(in)
	if err != nil {
		return err
	}
	if err := mv.openIntents(); err != nil {
		return err
	}
	if err := disk.WriteDurably(mv.intentFile(in.ID), raw); err != nil {
		return errors.Join(err, mv.Forget(in.ID))
	}
	mv.crash("deed.meant")
	return nil
}

// openIntents makes the intents' folder, which is synced before anything is in it.
func (mv *Mover) openIntents() error {
	if mv.intentsThere {
		return nil
	}
	err := disk.PlainDir(mv.store.Work("deeds"))
	if err == nil {
		err = durable.SyncDir(mv.store.Work())
	}
	mv.intentsThere = err == nil
	return err
}

// Forget removes an intent that was reported or that did not take effect. The removal is
// not synced: reporting a change twice is harmless, and a change that did not take effect
// is recognised as such again.
func (mv *Mover) Forget(id string) error { return disk.RemoveIfThere(mv.intentFile(id)) }

// EachIntent visits the intents of changes that the host may not have heard of.
func (mv *Mover) EachIntent(visit func(Intent) error) error {
	files, err := filepath.Glob(mv.store.Work("deeds", "*.json"))
	if err != nil {
		return err
	}
	for _, file := range files {
		var in Intent
		if err := disk.ReadJSON(file, &in); err != nil || in.ID != strings.TrimSuffix(filepath.Base(file), ".json") {
			// Either it never became durable, so nothing was done; or it is damaged, and
			// nobody can say any more what the change was. The files are as they are in
			// both cases.
			mv.logger.Warn("the record of a change can't be read", "file", file, "error", err)
			if err := disk.RemoveIfThere(file); err != nil {
				return err
			}
			continue
		}
		if err := visit(in); err != nil {
			return err
		}
	}
	return nil
}

// DropUndone forgets the operations that a crash prevented. It must be called before
// anything changes what their intents are compared with.
func (mv *Mover) DropUndone() error {
	return mv.EachIntent(func(in Intent) error {
		done, err := mv.done(in)
		if err != nil || done {
			return err
		}
		return mv.Forget(in.ID)
	})
}

// done reports whether an operation was done.
func (mv *Mover) done(in Intent) (bool, error) {
	if in.Content != "" {
		there, err := disk.Exists(mv.store.Work(filepath.FromSlash(in.Content)))
		return !there, err
	}
	from, err := mv.InodeOf(string(in.From))
	if err != nil || from == in.Was {
		return false, err
	}
	to, err := mv.InodeOf(string(in.Path))
	if err != nil || to == in.Was {
		return err == nil, err
	}
	// Somebody has changed the names since, such as an editor that saves by renaming: the
	// file counts as moved if its old name is gone and its new one exists.
	return from == Inode{} && to != Inode{}, nil
}

// InodeOf returns the inode of a path in the live tree, or the zero Inode if nothing is
// there.
func (mv *Mover) InodeOf(p string) (Inode, error) {
	if err := wire.CheckPath(p, false); err != nil {
		return Inode{}, err
	}
	dir, err := disk.OpenDir(mv.scanner.Root, wire.ParentDir(p))
	if err != nil {
		return Inode{}, disk.IgnoreUnreachable(err)
	}
	defer unix.Close(dir)
	id, err := InodeAt(dir, path.Base(p))
	return id, disk.IgnoreUnreachable(err)
}

// CarryOut does what an intent stands for, which is one rename, and forgets the intent if
// the rename did not take place.
func (mv *Mover) CarryOut(in *Intent, rename func() error) error {
	if err := mv.Mean(in); err != nil {
		return err
	}
	if err := rename(); err != nil {
		return errors.Join(err, mv.Forget(in.ID))
	}
	mv.crash("deed.done")
	return nil
}

// Token returns a random name that nothing else has.
func Token() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return hex.EncodeToString(b[:])
}
