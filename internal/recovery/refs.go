package recovery

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/datadir"
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

// branchOf is the commit at which a history stands, "" when there is none or it
// can't be read.
func branchOf(dir *datadir.Dir, cid contract.CID) (string, error) {
	root, err := os.OpenRoot(dir.Computer(cid, "workspace"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer root.Close() // only read from
	id := ""
	b, err := root.ReadFile(branch)
	switch {
	case err == nil:
		id = strings.TrimSpace(string(b))
	case errors.Is(err, fs.ErrNotExist):
		packed, err := root.ReadFile(packedRefs)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		for line := range strings.Lines(string(packed)) {
			if at, ok := strings.CutSuffix(strings.TrimSpace(line), " "+strings.TrimPrefix(branch, ".git/")); ok {
				id = at
			}
		}
	default:
		return "", err
	}
	if !isCommit(id) {
		return "", nil
	}
	return id, nil
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
func setTold(dir *datadir.Dir, cid contract.CID, commit string) error {
	if commit != "" {
		return setRef(dir, cid, told, commit)
	}
	root, err := os.OpenRoot(dir.Computer(cid, "workspace"))
	if err != nil {
		return err
	}
	defer root.Close() // what is written is synced
	if err := root.Remove(told); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	packed, err := root.ReadFile(packedRefs)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
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
	const fresh = packedRefs + ".choir"
	if err := write(root, fresh, rest.String()); err != nil {
		return err
	}
	return root.Rename(fresh, packedRefs)
}

// setRef points a name in a history at a commit.
func setRef(dir *datadir.Dir, cid contract.CID, name, commit string) error {
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

func write(root *os.Root, name, text string) error {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Sync(), f.Close())
}
