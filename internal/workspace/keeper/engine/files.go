package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/chunks"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/objects"
	"choir.dev/choiros/internal/workspace/keeper/publish"
	"choir.dev/choiros/internal/workspace/keeper/scan"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

const maxList = 10_000

func badPath(p string, root bool) error {
	err := wire.CheckPath(p, root)
	if err == nil {
		err = wire.CheckNames(p)
	}
	if err != nil {
		return fault.New("", fault.Invalid, "Name a path relative to the workspace's root.", fmt.Errorf("path %q %w", wire.Short(p), err))
	}
	return nil
}

// fileError gives errors of file operations a code, and names the path as the caller did:
// the operating system names only its last part, or the first that is missing.
func fileError(op, p string, err error) error {
	if err == nil {
		return nil
	}
	if fault.CodeOf(err) != fault.Internal {
		return fault.Wrap(op, err) // the error has a message for people already
	}
	of := func(code fault.Code, hint, format string) error {
		return fault.New(op, code, hint, rewordedError{fmt.Sprintf(format, wire.Path(p).Shown()), err})
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return of(fault.NotFound, "`choir files ls` lists what there is.", "there is no file or folder %q")
	case errors.Is(err, unix.ENOTEMPTY):
		return of(fault.Conflict, "Choose another name, or remove what is there.", "the folder %q is not empty")
	case errors.Is(err, fs.ErrExist):
		return of(fault.Conflict, "Choose another name, or remove what is there.", "there is something at %q already")
	case errors.Is(err, unix.EISDIR):
		return of(fault.Conflict, "Choose another name, or remove what is there.", "%q is a folder")
	case errors.Is(err, unix.ENOTDIR):
		return of(fault.Conflict, "Choose another name, or remove what is there.", "a part of %q is no folder")
	case disk.IsDenied(err):
		return of(fault.Denied, "Its folder, or the file itself, is closed by its permissions; `chmod -R u+rwX` opens it.", "%q is closed")
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.EXDEV):
		return of(fault.Denied, "Name the file itself, not a link to it.", "%q leads through a link")
	}
	return fault.Wrap(op, err)
}

// rewordedError has another message for people, and unwraps to the original error.
type rewordedError struct {
	text string
	err  error
}

func (w rewordedError) Error() string { return w.text }
func (w rewordedError) Unwrap() error { return w.err }

func info(dirfd int, name, p string) (wire.FileInfo, error) {
	st, err := disk.Lstat(dirfd, name)
	if err != nil {
		return wire.FileInfo{}, err
	}
	fi := wire.FileInfo{Path: wire.Path(p), Kind: st.Kind(), Size: st.Size, Exec: st.IsRegular() && st.Mode&0o100 != 0, Time: st.ModTime().UnixMilli()}
	if st.IsSymlink() {
		target, err := disk.ReadlinkAt(dirfd, name)
		if err != nil {
			return wire.FileInfo{}, err
		}
		fi.Target = wire.Path(target)
	}
	return fi, nil
}

// Files lists a directory of the live tree, at most 10,000 entries at a time; more says how
// many there are beyond. The root's .git is not listed. Entries are sorted by their names
// as people are shown them, for the next page is requested by such a name: names that look
// the same are never separated by a limit.
func (e *Engine) Files(ctx context.Context, req wire.FilesRequest) (files []wire.FileInfo, more int, err error) {
	const op = "keeper.Files"
	dir := string(req.Path)
	limit := req.Limit
	if limit <= 0 || limit > maxList {
		limit = maxList
	}
	if err := badPath(dir, true); err != nil {
		return nil, 0, fault.Wrap(op, err)
	}
	fd, err := disk.OpenDir(e.scanner.Root, dir)
	if err != nil {
		return nil, 0, fileError(op, dir, err)
	}
	f := os.NewFile(uintptr(fd), dir)
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, 0, fileError(op, dir, err)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(wire.Path(a).Shown(), wire.Path(b).Shown()), cmp.Compare(a, b))
	})
	files = []wire.FileInfo{}
	last := ""
	for _, name := range names {
		shown := wire.Path(name).Shown()
		if dir == "." && name == ".git" || req.After != "" && shown <= req.After {
			continue
		}
		if len(files) >= maxList || len(files) >= limit && shown != last {
			more++
			continue
		}
		last = shown
		fi, err := info(fd, name, wire.JoinPath(dir, name))
		if disk.IsGone(err) {
			continue
		}
		if err != nil {
			return nil, 0, fileError(op, dir, err)
		}
		files = append(files, fi)
	}
	e.markUnkept(ctx, dir, files)
	return files, more, nil
}

// Stat describes one path of the live tree; links are not followed.
func (e *Engine) Stat(ctx context.Context, p string) (wire.FileInfo, error) {
	fi, err := e.stat(ctx, p, true)
	return fi, fileError("keeper.Stat", p, err)
}

// quicklyRead is the size, in bytes, up to which reading a file takes no noticeable time.
const quicklyRead = 1 << 20

// QuickStat is Stat without the id of a file's content, if computing it would mean reading a
// large file that was not captured as it is.
func (e *Engine) QuickStat(ctx context.Context, p string) (wire.FileInfo, error) {
	fi, err := e.stat(ctx, p, false)
	return fi, fileError("keeper.QuickStat", p, err)
}

func (e *Engine) stat(ctx context.Context, p string, id bool) (wire.FileInfo, error) {
	if err := badPath(p, true); err != nil {
		return wire.FileInfo{}, err
	}
	dir, err := disk.OpenDir(e.scanner.Root, wire.ParentDir(p))
	if err != nil {
		return wire.FileInfo{}, err
	}
	defer unix.Close(dir)
	fi, err := info(dir, path.Base(p), p)
	if err == nil && (fi.Kind == "file" || fi.Kind == "symlink") {
		var en gitstore.Entry
		was := e.lastSeen(p)
		if st, serr := disk.Lstat(dir, path.Base(p)); serr == nil && st == was.Stat {
			en = was.Entry
		} else if id || fi.Size <= quicklyRead {
			en, _, err = e.store.EntryAt(dir, path.Base(p), was.Entry)
		}
		fi.ID = en.ID
	}
	if err != nil || p == "." {
		return fi, err
	}
	marked := []wire.FileInfo{fi}
	e.markUnkept(ctx, wire.ParentDir(p), marked)
	return marked[0], nil
}

// lastSeen is what was last captured of a path, unless a change is under way.
func (e *Engine) lastSeen(p string) scan.Tracked {
	if !e.mu.TryLock() {
		return scan.Tracked{}
	}
	defer e.mu.Unlock()
	return e.scanner.Index.At(p)
}

// Read opens a file of the live tree. A link is followed as long as it stays
// in the tree.
func (e *Engine) Read(_ context.Context, p string) (*os.File, wire.FileInfo, error) {
	const op = "keeper.Read"
	if err := badPath(p, false); err != nil {
		return nil, wire.FileInfo{}, fault.Wrap(op, err)
	}
	root, err := os.OpenRoot(e.opts.Root)
	if err != nil {
		return nil, wire.FileInfo{}, fault.Wrap(op, err)
	}
	defer root.Close()
	f, err := root.OpenFile(filepath.FromSlash(p), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) && strings.Contains(err.Error(), "escapes") {
			return nil, wire.FileInfo{}, fault.New(op, fault.Denied, "It is a link that leads out of the workspace.", err)
		}
		return nil, wire.FileInfo{}, fileError(op, p, err)
	}
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		if err == nil {
			err = fault.New(op, fault.Invalid, "Name a file.", fmt.Errorf("%q is not a file", wire.Short(p)))
		}
		return nil, wire.FileInfo{}, errors.Join(err, f.Close())
	}
	return f, wire.FileInfo{Path: wire.Path(p), Kind: "file", Size: st.Size(), Exec: st.Mode()&0o100 != 0, Time: st.ModTime().UnixMilli()}, nil
}

// Write replaces a file of the live tree atomically. What was there goes to the trash.
func (e *Engine) Write(ctx context.Context, req wire.WriteRequest, content io.Reader) (wire.Written, error) {
	const op = "keeper.Write"
	if err := badPath(string(req.Path), false); err != nil {
		return wire.Written{}, fault.Wrap(op, err)
	}
	tmp := e.store.Work("incoming-" + publish.Token())
	sum, err := receive(tmp, content, e.opts.Limits.LargestFile, !req.Held)
	var large *chunks.Manifest
	if err == nil && !req.Held {
		large, err = e.chunkAhead(ctx, tmp)
	}
	if err != nil {
		return wire.Written{}, fileError(op, string(req.Path), errors.Join(err, disk.RemoveIfThere(tmp)))
	}
	w, err := e.replaceFile(ctx, req, tmp, sum, large)
	w.SHA256 = sum
	if err = errors.Join(err, disk.RemoveIfThere(tmp)); err != nil {
		return w, fileError(op, string(req.Path), err)
	}
	marked := []wire.FileInfo{w.FileInfo}
	e.markUnkept(ctx, wire.ParentDir(string(req.Path)), marked)
	w.FileInfo = marked[0]
	return w, nil
}

func (e *Engine) replaceFile(ctx context.Context, req wire.WriteRequest, tmp, sum string, large *chunks.Manifest) (wire.Written, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if req.Held {
		return e.follow(ctx, req, tmp)
	}
	return e.putFile(ctx, req, tmp, sum, large)
}

func (e *Engine) putFile(ctx context.Context, req wire.WriteRequest, file, sum string, large *chunks.Manifest) (wire.Written, error) {
	if err := e.moves.BeforeAct(ctx); err != nil {
		return wire.Written{}, err
	}
	p := string(req.Path)
	want, err := e.mayPut(req)
	if err != nil {
		return wire.Written{}, err
	}
	e.scanner.Wrote(p)
	dir, err := disk.MakeDirs(e.scanner.Root, wire.ParentDir(p))
	if err != nil {
		return wire.Written{}, err
	}
	defer unix.Close(dir)
	name := path.Base(p)
	if err := disk.MakeExecutable(file, dir, name, req.Exec); err != nil {
		return wire.Written{}, err
	}
	st, err := disk.Lstat(unix.AT_FDCWD, file)
	if err != nil {
		return wire.Written{}, err
	}
	// Its bytes are in the object database too, so that this version can be found even if a
	// program overwrites the file before the next checkpoint.
	t, took, was, err := e.moves.Put(file, publish.TrashEntry{
		Trashed: wire.Trashed{Path: req.Path}, Op: "write", Size: st.Size, SHA256: sum, Actor: req.Actor, User: req.User, Host: true,
	}, dir, name, func() (gitstore.Entry, error) { return e.storeReceived(ctx, file, st, large) })
	w := wire.Written{Op: t.ID, At: t.At, Named: t.Named}
	if err != nil {
		return w, err
	}
	if !took || !mayDisplace(want, was) {
		return w, errors.Join(changedMeanwhile(p), e.moves.TakeBack(t, dir, name))
	}
	e.puts = append(e.puts, putOf(t))
	if err := e.moves.MarkPlaced(t.ID); err != nil {
		return w, err
	}
	if displaced, err := disk.Exists(e.moves.Trash(t.ID, "content")); err != nil {
		return w, err
	} else if displaced {
		w.Trash = t.ID
	}
	if w.FileInfo, err = info(dir, name, p); err == nil {
		w.ID = t.New.ID
	}
	e.moves.EmptyTrash()
	return w, err
}

// chunkAhead stores the chunks of a received file, if it is a large one, before the lock is
// taken, so that others need not wait.
func (e *Engine) chunkAhead(ctx context.Context, file string) (*chunks.Manifest, error) {
	r, st, err := disk.OpenContent(unix.AT_FDCWD, file, -1)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if !e.store.Chunked(st) {
		return nil, nil
	}
	return e.store.Chunks.Add(ctx, r, st.Size)
}

// storeReceived stores a received file, or the manifest of its chunks.
func (e *Engine) storeReceived(ctx context.Context, file string, st disk.Stat, large *chunks.Manifest) (gitstore.Entry, error) {
	if large == nil {
		return e.store.StoreFile(ctx, file)
	}
	// A collection may have removed them, as nothing named these chunks until now.
	for _, c := range large.Chunks {
		if there, err := e.store.Chunks.Use(c.Name(), int64(c.Len)); err != nil {
			return gitstore.None, err
		} else if !there {
			return e.store.StoreFile(ctx, file)
		}
	}
	ids, err := e.store.Write(ctx, []objects.Object{{Kind: "blob", Content: large.Encode()}})
	if err != nil {
		return gitstore.None, err
	}
	return gitstore.Entry{Mode: st.GitMode(), ID: ids[0], Chunked: true}, nil
}

// mayPut checks, before anything is made or moved, whether a file may get a name, and
// returns what it may displace there: If, with the name of a state resolved.
func (e *Engine) mayPut(req wire.WriteRequest) (string, error) {
	p := string(req.Path)
	name := path.Base(p)
	var st disk.Stat
	dir, err := disk.OpenDir(e.scanner.Root, wire.ParentDir(p))
	if err == nil {
		defer unix.Close(dir)
		st, err = disk.Lstat(dir, name)
	}
	switch {
	case disk.IsGone(err):
		if req.If != "" && req.If != "none" {
			return "", changedMeanwhile(p)
		}
		return req.If, nil
	case err != nil:
		return "", err
	case st.IsDir():
		return "", &os.PathError{Op: "write", Path: p, Err: unix.EISDIR}
	case req.If == "none":
		return "", changedMeanwhile(p)
	case req.If != "" && req.If != "any":
		return e.heldBy(dir, name, p, req.If)
	}
	return req.If, nil
}

func changedMeanwhile(p string) error {
	return fault.New("", fault.Conflict, "Read it again and decide what to keep.", fmt.Errorf("%q changed meanwhile", wire.Short(p)))
}

// Mkdir makes a directory and its parents. There is no event for it; the next checkpoint
// contains it.
func (e *Engine) Mkdir(_ context.Context, p string) error {
	const op = "keeper.Mkdir"
	if err := badPath(p, false); err != nil {
		return fault.Wrap(op, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.shut {
		return fault.Wrap(op, e.whole())
	}
	if there, err := disk.OpenDir(e.scanner.Root, p); err == nil {
		return fault.Wrap(op, unix.Close(there))
	}
	e.scanner.Wrote(p)
	fd, err := disk.MakeDirs(e.scanner.Root, p)
	if err != nil {
		return fileError(op, p, err)
	}
	return fault.Wrap(op, unix.Close(fd))
}
