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

// Of a computer's history only files are looked at: git itself runs in boxes.
// They lie where boxes write, so everything is opened beneath the workspace.
const (
	branch     = ".git/refs/heads/main"   // the one branch
	told       = ".git/refs/choir/logged" // the newest checkpoint that the log knows
	packedRefs = ".git/packed-refs"
)

func isCommit(id string) bool {
	return len(id) == 40 && strings.Trim(id, "0123456789abcdef") == ""
}

// tip is where a history's branch stands.
type tip struct {
	commit string // "" when there is none or it can't be read
	// file is what names it, or would, and damage what is wrong with that, "" when
	// nothing is or it is not there, which is looked at elsewhere.
	file, damage string
}

// branchOf reads where a history stands. That its branch can't be read is damage of
// this history: no other computer is kept asleep by it.
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

// scarce says whether err is what the machine has too little of just now, or a disk
// that can't be used: that is nothing about what was to be read.
func scarce(err error) bool {
	return slices.Contains([]fault.Code{fault.Unavailable, fault.DiskFull, fault.Exhausted}, fault.CodeOf(err))
}

// maxRefs is how much of a file of names is read: packed-refs has one line for each.
const maxRefs = 64 << 20

// notRegular is what lies where a file of names should, and waits for a writer or
// does not end.
type notRegular struct {
	mode fs.FileMode
	size int64
}

func (e *notRegular) Error() string { return fmt.Sprintf("it is %s of %d bytes", e.mode, e.size) }

// readRef reads a file of names, which lies where boxes write.
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

// holds says whether a commit can be in a computer's history: as a file, or in a
// pack, which only git could say for certain. That is looked at as it wakes.
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

// setTold writes down up to which commit a history is known to its log. With "" it
// knows of none, and is told of all.
func setTold(dir *datadir.Dir, aside string, cid contract.CID, commit string) error {
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

// setRef points a name in a history at a commit.
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

// clearWay moves aside what keeps a name in a history from being written: a folder
// in its place, or anything else in the place of one that it lies in.
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

// keepRef keeps a copy of a file of names that will be written. What is none is
// moved aside whole once that is.
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

// write puts a file of names in the place of what is there, and makes it durable.
func write(root *os.Root, name, text string) error {
	const fresh = ".git/refs.choir" // a file beneath refs would be a name
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
	// Folders that were made for it are names as well.
	for at := path.Dir(name); err == nil && at != "."; at = path.Dir(at) {
		var dir *os.File
		if dir, err = root.Open(at); err == nil {
			err = errors.Join(dir.Sync(), dir.Close())
		}
	}
	return err
}
