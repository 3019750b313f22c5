package keeper

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"choir.dev/choiros/internal/fault"
	"golang.org/x/sys/unix"
)

// FileInfo is one entry of the live tree.
type FileInfo struct {
	Path   Path   `json:"path"`
	Kind   string `json:"kind"` // file, dir, symlink, fifo, socket, device
	Size   int64  `json:"size"`
	Exec   bool   `json:"exec,omitempty"`
	Time   int64  `json:"time"`             // modification, Unix milliseconds
	Target Path   `json:"target,omitempty"` // of a symlink
	ID     string `json:"id,omitempty"`     // blob id, from Stat and Write: what If compares with
}

const maxList = 10_000

func badPath(p string, root bool) error {
	if err := validPath(p, root); err != nil {
		return fault.New("", fault.Invalid, "Name a path relative to the workspace's root.", fmt.Errorf("path %q %w", short(p), err))
	}
	return nil
}

// fileError gives the errors of file operations their code.
func fileError(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return fault.New(op, fault.NotFound, "`choir files ls` lists what there is.", err)
	case errors.Is(err, fs.ErrExist), errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENOTDIR):
		return fault.New(op, fault.Conflict, "Choose another name, or remove what is there.", err)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fault.New(op, fault.DiskFull, "Free some space on the disk that holds the data directory.", err)
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.EXDEV):
		return fault.New(op, fault.Denied, "Name the file itself, not a link to it.", err)
	}
	return fault.Wrap(op, err)
}

func info(dirfd int, name, p string) (FileInfo, error) {
	st, err := lstatAt(dirfd, name)
	if err != nil {
		return FileInfo{}, err
	}
	fi := FileInfo{Path: Path(p), Kind: st.kind(), Size: st.Size, Exec: st.isRegular() && st.Mode&0o100 != 0, Time: st.modTime().UnixMilli()}
	if st.isSymlink() {
		target, err := readlinkAt(dirfd, name)
		if err != nil {
			return FileInfo{}, err
		}
		fi.Target = Path(target)
	}
	return fi, nil
}

// Files lists a directory of the live tree, sorted by name, at most 10,000
// entries; more says how many there are beyond. The root's .git is not listed.
func (e *Engine) Files(_ context.Context, dir string) (files []FileInfo, more int, err error) {
	const op = "keeper.Files"
	if err := badPath(dir, true); err != nil {
		return nil, 0, fault.Wrap(op, err)
	}
	fd, err := openDir(e.rootFD, dir)
	if err != nil {
		return nil, 0, fileError(op, err)
	}
	f := os.NewFile(uintptr(fd), dir)
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, 0, fileError(op, err)
	}
	slices.Sort(names)
	files = []FileInfo{}
	for _, name := range names {
		if dir == "." && name == ".git" {
			continue
		}
		if len(files) == maxList {
			more++
			continue
		}
		fi, err := info(fd, name, joinPath(dir, name))
		if isGone(err) {
			continue
		}
		if err != nil {
			return nil, 0, fileError(op, err)
		}
		files = append(files, fi)
	}
	return files, more, nil
}

// Stat describes one path of the live tree; links are not followed.
func (e *Engine) Stat(_ context.Context, p string) (FileInfo, error) {
	const op = "keeper.Stat"
	if err := badPath(p, true); err != nil {
		return FileInfo{}, fault.Wrap(op, err)
	}
	dir, err := openDir(e.rootFD, parentDir(p))
	if err != nil {
		return FileInfo{}, fileError(op, err)
	}
	defer unix.Close(dir)
	fi, err := info(dir, path.Base(p), p)
	if err == nil && (fi.Kind == "file" || fi.Kind == "symlink") {
		var en Entry
		en, _, err = entryAt(dir, path.Base(p))
		fi.ID = en.ID
	}
	return fi, fileError(op, err)
}

// Read opens a file of the live tree. A link is followed as long as it stays
// in the tree.
func (e *Engine) Read(_ context.Context, p string) (*os.File, FileInfo, error) {
	const op = "keeper.Read"
	if err := badPath(p, false); err != nil {
		return nil, FileInfo{}, fault.Wrap(op, err)
	}
	root, err := os.OpenRoot(e.opts.Root)
	if err != nil {
		return nil, FileInfo{}, fault.Wrap(op, err)
	}
	defer root.Close()
	f, err := root.OpenFile(filepath.FromSlash(p), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) && strings.Contains(err.Error(), "escapes") {
			return nil, FileInfo{}, fault.New(op, fault.Denied, "It is a link that leads out of the workspace.", err)
		}
		return nil, FileInfo{}, fileError(op, err)
	}
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		if err == nil {
			err = fault.New(op, fault.Invalid, "Name a file.", fmt.Errorf("%q is not a file", short(p)))
		}
		return nil, FileInfo{}, errors.Join(err, f.Close())
	}
	return f, FileInfo{Path: Path(p), Kind: "file", Size: st.Size(), Exec: st.Mode()&0o100 != 0, Time: st.ModTime().UnixMilli()}, nil
}

// WriteRequest says where a file goes. If, when set, is the blob id that must
// be there, or "none" when nothing may be.
type WriteRequest struct {
	Path Path   `json:"path"`
	Exec bool   `json:"exec,omitempty"`
	If   string `json:"if,omitempty"`
}

// Written is what a write did: the file, its content's SHA-256 in hex, and the
// trash entry that holds what was there before ("" when nothing was).
type Written struct {
	FileInfo
	SHA256 string `json:"sha256"`
	Trash  string `json:"trash,omitempty"`
}

// Write replaces a file of the live tree, all or nothing. What was there goes
// to the trash.
func (e *Engine) Write(ctx context.Context, req WriteRequest, content io.Reader) (Written, error) {
	const op = "keeper.Write"
	if err := badPath(string(req.Path), false); err != nil {
		return Written{}, fault.Wrap(op, err)
	}
	tmp := e.work("tmp-write-" + token())
	sum, err := receive(tmp, content, e.opts.Limits.FileBytes, req.Exec)
	if err != nil {
		return Written{}, fileError(op, errors.Join(err, removeIfThere(tmp)))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	w, err := e.putFile(ctx, req, tmp)
	w.SHA256 = sum
	return w, fileError(op, errors.Join(err, removeIfThere(tmp)))
}

func (e *Engine) putFile(ctx context.Context, req WriteRequest, tmp string) (Written, error) {
	if err := e.rollForward(ctx); err != nil {
		return Written{}, err
	}
	p := string(req.Path)
	dir, err := makeDirs(e.rootFD, parentDir(p))
	if err != nil {
		return Written{}, err
	}
	defer unix.Close(dir)
	name := path.Base(p)
	w := Written{}
	st, err := lstatAt(dir, name)
	switch {
	case isGone(err):
		if req.If != "" && req.If != "none" {
			return w, changedMeanwhile(p)
		}
		if err := renameAt(unix.AT_FDCWD, tmp, dir, name, unix.RENAME_NOREPLACE); err != nil {
			return w, err
		}
	case err != nil:
		return w, err
	case st.isDir():
		return w, &os.PathError{Op: "write", Path: p, Err: unix.EISDIR}
	default:
		if req.If == "none" {
			return w, changedMeanwhile(p)
		}
		if err := renameAt(unix.AT_FDCWD, tmp, dir, name, unix.RENAME_EXCHANGE); err != nil {
			return w, err
		}
		was, _, err := entryAt(unix.AT_FDCWD, tmp)
		if err == nil && req.If != "" && was.ID != req.If {
			err = errors.Join(changedMeanwhile(p), renameAt(unix.AT_FDCWD, tmp, dir, name, unix.RENAME_EXCHANGE))
		}
		if err != nil {
			return w, err
		}
		if w.Trash, err = e.toTrash(unix.AT_FDCWD, tmp, p); err != nil {
			return w, err
		}
	}
	if err := unix.Fsync(dir); err != nil {
		return w, err
	}
	w.FileInfo, err = info(dir, name, p)
	if err == nil {
		var en Entry
		en, _, err = entryAt(dir, name)
		w.ID = en.ID
	}
	return w, err
}

func changedMeanwhile(p string) error {
	return fault.New("", fault.Conflict, "Read it again and decide what to keep.", fmt.Errorf("%q changed meanwhile", short(p)))
}

// Mkdir makes a directory, and its parents.
func (e *Engine) Mkdir(_ context.Context, p string) error {
	const op = "keeper.Mkdir"
	if err := badPath(p, false); err != nil {
		return fault.Wrap(op, err)
	}
	fd, err := makeDirs(e.rootFD, p)
	if err != nil {
		return fileError(op, err)
	}
	return fault.Wrap(op, unix.Close(fd))
}

// Move renames a path; the new name must be free.
func (e *Engine) Move(ctx context.Context, from, to string) error {
	const op = "keeper.Move"
	if err := errors.Join(badPath(from, false), badPath(to, false)); err != nil {
		return fault.Wrap(op, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.rollForward(ctx); err != nil {
		return fault.Wrap(op, err)
	}
	a, err := openDir(e.rootFD, parentDir(from))
	if err != nil {
		return fileError(op, err)
	}
	defer unix.Close(a)
	b, err := makeDirs(e.rootFD, parentDir(to))
	if err != nil {
		return fileError(op, err)
	}
	defer unix.Close(b)
	return fileError(op, renameAt(a, path.Base(from), b, path.Base(to), unix.RENAME_NOREPLACE))
}

// Trashed is something that was removed or overwritten through Files.
type Trashed struct {
	ID   string `json:"id"`
	Path Path   `json:"path"` // where it was
	Time int64  `json:"time"` // Unix seconds
}

// Remove moves a path, whatever it is, to the trash.
func (e *Engine) Remove(ctx context.Context, p string) (Trashed, error) {
	const op = "keeper.Remove"
	if err := badPath(p, false); err != nil {
		return Trashed{}, fault.Wrap(op, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.rollForward(ctx); err != nil {
		return Trashed{}, fault.Wrap(op, err)
	}
	dir, err := openDir(e.rootFD, parentDir(p))
	if err != nil {
		return Trashed{}, fileError(op, err)
	}
	defer unix.Close(dir)
	if _, err := lstatAt(dir, path.Base(p)); err != nil {
		return Trashed{}, fileError(op, err)
	}
	id, err := e.toTrash(dir, path.Base(p), p)
	return Trashed{ID: id, Path: Path(p), Time: e.opts.Now().Unix()}, fileError(op, err)
}

// trashFor is how long the trash keeps things.
const trashFor = 7 * 24 * time.Hour

// toTrash moves a file or directory to the trash and returns the entry's id,
// which begins with the time.
func (e *Engine) toTrash(dirfd int, name, p string) (string, error) {
	id := e.opts.Now().UTC().Format("20060102T150405") + "-" + token()
	dir := e.work("trash", id)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	meta, err := json.Marshal(Trashed{ID: id, Path: Path(p), Time: e.opts.Now().Unix()})
	if err != nil {
		return "", err
	}
	if err := writeDurably(filepath.Join(dir, "meta.json"), meta); err != nil {
		return "", err
	}
	if err := renameAt(dirfd, name, unix.AT_FDCWD, filepath.Join(dir, "content"), unix.RENAME_NOREPLACE); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return id, errors.Join(syncDir(dir), e.emptyTrash())
}

// emptyTrash removes what is older than trashFor.
func (e *Engine) emptyTrash() error {
	entries, err := os.ReadDir(e.work("trash"))
	if err != nil {
		return err
	}
	oldest := e.opts.Now().Add(-trashFor).UTC().Format("20060102T150405")
	for _, en := range entries {
		if en.Name() >= oldest {
			return nil // sorted by time
		}
		if err := os.RemoveAll(e.work("trash", en.Name())); err != nil {
			return err
		}
	}
	return nil
}

// Untrash puts a trash entry back where it was, or, when something else is
// there now, fails with Conflict.
func (e *Engine) Untrash(ctx context.Context, id string) (Trashed, error) {
	const op = "keeper.Untrash"
	if err := checkPlanID(id); err != nil {
		return Trashed{}, fault.Wrap(op, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.rollForward(ctx); err != nil {
		return Trashed{}, fault.Wrap(op, err)
	}
	var t Trashed
	if err := loadJSON(e.work("trash", id, "meta.json"), &t); err != nil {
		return Trashed{}, fileError(op, err)
	}
	if err := badPath(string(t.Path), false); err != nil {
		return Trashed{}, fault.Wrap(op, err)
	}
	dir, err := makeDirs(e.rootFD, parentDir(string(t.Path)))
	if err != nil {
		return Trashed{}, fileError(op, err)
	}
	defer unix.Close(dir)
	if err := renameAt(unix.AT_FDCWD, e.work("trash", id, "content"), dir, path.Base(string(t.Path)), unix.RENAME_NOREPLACE); err != nil {
		return Trashed{}, fileError(op, err)
	}
	return t, fault.Wrap(op, os.RemoveAll(e.work("trash", id)))
}

func token() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return hex.EncodeToString(b[:])
}
