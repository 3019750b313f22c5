package recovery

import (
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

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/fault"
)

// This file reads and writes only single files of a computer's git repository, because git
// itself runs only in boxes. Boxes can write to the repository, so every file is opened
// with os.Root beneath the workspace.
const (
	branch     = ".git/refs/heads/main"   // the only branch
	told       = ".git/refs/choir/logged" // the newest checkpoint that the log has
	packedRefs = ".git/packed-refs"
)

func isCommit(id string) bool {
	return len(id) == 40 && strings.Trim(id, "0123456789abcdef") == ""
}

// tip is the commit that a history's branch names.
type tip struct {
	commit string // "" when there is none or it can't be read
	// file is the file that names the commit, or would. damage says what is wrong with
	// that file; it is "" when nothing is, and also when the file does not exist, which is
	// checked elsewhere.
	file, damage string
}

// branchOf reads the commit that a history's branch names. If the branch can't be read,
// only this history is damaged, and other computers can wake.
func branchOf(dir *datadir.Dir, cid contract.CID) (tip, error) {
	t := tip{file: branch}
	root, err := os.OpenRoot(dir.Computer(cid, "workspace"))
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err != nil {
		return t, err
	}
	defer root.Close() // only read from
	b, err := readRef(root, branch)
	id := strings.TrimSpace(string(b))
	if errors.Is(err, fs.ErrNotExist) {
		t.file = packedRefs
		b, err = readRef(root, packedRefs)
		for line := range strings.Lines(string(b)) {
			if at, ok := strings.CutSuffix(strings.TrimSpace(line), " "+strings.TrimPrefix(branch, ".git/")); ok {
				id = at
			}
		}
		if err == nil && id == "" || errors.Is(err, fs.ErrNotExist) {
			return t, nil
		}
	}
	var other *notRegular
	var no unix.Errno
	switch {
	case scarce(err):
		return t, err
	case errors.As(err, &other):
		t.damage = other.Error()
	case errors.As(err, &no):
		t.damage = "it can't be read: " + no.Error()
	case err != nil:
		t.damage = "it can't be read: " + err.Error()
	case !isCommit(id):
		t.damage = fmt.Sprintf("it holds %.60q, which is no commit", id)
	default:
		t.commit = id
	}
	return t, nil
}

// scarce reports whether err is a lack of the machine's resources, or a disk that can't be
// used: such an error says nothing about the file that was to be read.
func scarce(err error) bool {
	return slices.Contains([]fault.Code{fault.Unavailable, fault.DiskFull, fault.Exhausted}, fault.CodeOf(err))
}

// maxRefs bounds how much of a file of refs is read: packed-refs has one line for each ref.
const maxRefs = 64 << 20

// notRegular is the error of a file of refs that is no regular file, whose reading could
// block or never end, or that is too long.
type notRegular struct {
	mode fs.FileMode
	size int64
}

func (e *notRegular) Error() string { return fmt.Sprintf("it is %s of %d bytes", e.mode, e.size) }

// readRef reads a file of refs, in whose place a box may have put anything.
func readRef(root *os.Root, name string) ([]byte, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read from
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxRefs {
		return nil, &notRegular{info.Mode(), info.Size()}
	}
	return io.ReadAll(io.LimitReader(f, maxRefs))
}

// holds reports whether a computer's history may contain a commit: as a file, or in a pack,
// which only git could tell for certain. That is checked when the computer wakes.
func holds(dir *datadir.Dir, cid contract.CID, commit string) (bool, error) {
	if len(commit) != 40 {
		return false, nil
	}
	root, err := os.OpenRoot(dir.Computer(cid, "workspace"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer root.Close() // only read from
	if _, err := root.Lstat(".git/objects/" + commit[:2] + "/" + commit[2:]); err == nil {
		return true, nil
	}
	packs, err := fs.Glob(root.FS(), ".git/objects/pack/*.pack")
	return len(packs) > 0, err
}

// setLogged records up to which commit the log has a history's checkpoints. With "" it has
// none, and all are appended to it again.
func setLogged(dir *datadir.Dir, aside string, cid contract.CID, commit string) error {
	if commit != "" {
		return setRef(dir, aside, cid, told, commit)
	}
	if err := clearWay(dir, aside, cid, told); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir.Computer(cid, "workspace"))
	if err != nil {
		return err
	}
	defer root.Close() // what is written is synced
	if err := root.Remove(told); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	packed, err := readRef(root, packedRefs)
	var other *notRegular
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.As(err, &other):
		return moveAside(dir, aside, rel(cid, "workspace", packedRefs))
	case err != nil:
		return err
	}
	var rest strings.Builder
	for line := range strings.Lines(string(packed)) {
		if !strings.HasSuffix(strings.TrimSpace(line), " "+strings.TrimPrefix(told, ".git/")) {
			rest.WriteString(line)
		}
	}
	if rest.Len() == len(packed) {
		return nil
	}
	return write(root, packedRefs, rest.String())
}

// setRef sets a ref of a history to a commit.
func setRef(dir *datadir.Dir, aside string, cid contract.CID, name, commit string) error {
	if err := clearWay(dir, aside, cid, name); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir.Computer(cid, "workspace"))
	if err != nil {
		return err
	}
	defer root.Close() // what is written is synced
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	return write(root, name, commit+"\n")
}

// clearWay moves aside what keeps a ref from being written: a folder in its place, or
// anything that is no folder in the place of one of its parent folders.
func clearWay(dir *datadir.Dir, aside string, cid contract.CID, name string) error {
	root, err := os.OpenRoot(dir.Computer(cid, "workspace"))
	if err != nil {
		return err
	}
	defer root.Close() // only looked at
	parts := strings.Split(name, "/")
	for i := range parts {
		at := path.Join(parts[:i+1]...)
		info, err := root.Lstat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case info.IsDir() == (at == name):
			return moveAside(dir, aside, rel(cid, "workspace", at))
		}
	}
	return nil
}

// keepRef copies a file of refs aside that will be changed. If it can't be read as one, it
// is moved aside when it is changed.
func keepRef(dir *datadir.Dir, aside string, cid contract.CID, name string) error {
	root, err := os.OpenRoot(dir.Computer(cid, "workspace"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close() // only read from
	b, err := readRef(root, name)
	switch {
	case scarce(err):
		return err
	case err != nil:
		return nil
	}
	to := dir.Path(aside, rel(cid, "workspace", name))
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	return datadir.WriteFile(to, b, 0o600)
}

// write replaces a file of refs, durably.
func write(root *os.Root, name, text string) error {
	const fresh = ".git/refs.choir" // a file beneath refs would be a ref
	f, err := root.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = root.Rename(fresh, name)
	}
	if err != nil {
		return err
	}
	// Folders that were made for the ref must be synced as well.
	for at := path.Dir(name); err == nil && at != "."; at = path.Dir(at) {
		var dir *os.File
		if dir, err = root.Open(at); err == nil {
			err = errors.Join(dir.Sync(), dir.Close())
		}
	}
	return err
}
