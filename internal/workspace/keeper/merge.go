package keeper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"choir.dev/choiros/internal/workspace/keeper/wire"
	"golang.org/x/sys/unix"
)

// maxMerge bounds the size of a file that is merged line by line.
const maxMerge = 4 << 20

// mergeEntries merges two versions of one file; false means they conflict.
func (e *Engine) mergeEntries(ctx context.Context, base, ours, theirs Entry) (Entry, bool, error) {
	switch {
	case ours == theirs, base == theirs:
		return ours, true, nil
	case base == ours:
		return theirs, true, nil
	case !base.isRegular() || !ours.isRegular() || !theirs.isRegular():
		return none, false, nil
	}
	merged := ours
	if ours.Mode == base.Mode {
		merged.Mode = theirs.Mode
	}
	switch {
	case ours.holds() == theirs.holds(), theirs.holds() == base.holds():
		return merged, true, nil
	case ours.holds() == base.holds():
		merged.ID, merged.Chunked = theirs.ID, theirs.Chunked
		return merged, true, nil
	case base.Chunked || ours.Chunked || theirs.Chunked:
		return none, false, nil // too large to be merged by lines
	}
	content, ok, err := e.mergeBlobs(ctx, base.ID, ours.ID, theirs.ID)
	if err != nil || !ok {
		return none, false, err
	}
	ids, err := e.writeObjects(ctx, []object{{kind: "blob", content: content}})
	if err != nil {
		return none, false, err
	}
	merged.ID = ids[0]
	return merged, true, nil
}

// mergeBlobs merges line by line with git merge-file, on plain temporary files
// outside the tree; binary content conflicts.
func (e *Engine) mergeBlobs(ctx context.Context, base, ours, theirs string) ([]byte, bool, error) {
	dir, err := os.MkdirTemp(e.work(), "tmp-merge-")
	if err != nil {
		return nil, false, err
	}
	defer os.RemoveAll(dir)
	names := []string{"ours", "base", "theirs"}
	for i, id := range []string{ours, base, theirs} {
		var buf bytes.Buffer
		_, size, err := e.reads.read(ctx, id, maxMerge, &buf)
		if err != nil {
			return nil, false, err
		}
		if size > maxMerge || bytes.IndexByte(buf.Bytes(), 0) >= 0 {
			return nil, false, nil
		}
		names[i] = filepath.Join(dir, names[i])
		if err := os.WriteFile(names[i], buf.Bytes(), 0o600); err != nil {
			return nil, false, err
		}
	}
	out, err := e.git(ctx, nil, append([]string{"merge-file", "-p", "-q", "--"}, names...)...)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 && ctx.Err() == nil {
		return nil, false, nil
	}
	return out, err == nil, err
}

// mergeTrees merges theirs into ours. A path both changed, and whose contents
// do not merge, stays as ours has it and is reported.
func (e *Engine) mergeTrees(ctx context.Context, base, ours, theirs Tree) (Tree, []wire.Conflict, error) {
	merged := make(Tree, len(ours))
	for p, en := range ours {
		merged[p] = en
	}
	var conflicts []wire.Conflict
	conflict := func(p, reason string) {
		conflicts = append(conflicts, wire.Conflict{Path: wire.Path(p), Reason: reason})
	}
	frozen := frozenRepositories(base, ours, theirs)
	oursDirs := directories(ours)
	changes := diffTrees(base, theirs)
	// Removals first: they make room for what takes their place.
	slices.SortStableFunc(changes, func(a, b change) int {
		return map[bool]int{true: 1}[a.to.exists()] - map[bool]int{true: 1}[b.to.exists()]
	})
	for _, c := range changes {
		mine := ours[c.path]
		if git, ok := inNestedGit(c.path); ok && frozen[git] && mine != c.to {
			if isObject(c.path) && c.to.exists() && !mine.exists() {
				merged[c.path] = c.to // objects only ever add to a repository
			} else if !isObject(c.path) {
				conflict(c.path, "both sides changed this repository")
			}
			continue
		}
		if c.to.Mode == wire.ModeEmptyDir && (oursDirs[c.path] || mine.exists() && mine != c.from) {
			continue // there is something there, or a file of the user's
		}
		if c.from.Mode == wire.ModeEmptyDir && !c.to.exists() && mine.Mode != wire.ModeEmptyDir {
			continue
		}
		if c.from.Mode == wire.ModeEmptyDir {
			c.from = none
			if mine.Mode == wire.ModeEmptyDir {
				mine = none
			}
		}
		got, ok, err := e.mergeEntries(ctx, c.from, mine, c.to)
		if err != nil {
			return nil, nil, err
		}
		switch {
		case !ok:
			conflict(c.path, conflictReason(c.from, mine, c.to))
		case !got.exists():
			delete(merged, c.path)
		default:
			merged[c.path] = got
		}
	}
	return settleDirs(merged, ours, conflicts)
}

func conflictReason(base, ours, theirs Entry) string {
	switch {
	case !base.exists():
		return "both sides made this file"
	case !ours.exists():
		return "you removed it, the task changed it"
	case !theirs.exists():
		return "you changed it, the task removed it"
	}
	return "both sides changed the same lines, or it is not text"
}

// settleDirs makes sure that no path is a file and a directory: what ours has
// wins over what was merged in.
func settleDirs(merged, ours Tree, conflicts []wire.Conflict) (Tree, []wire.Conflict, error) {
	for p, en := range merged {
		for d := wire.ParentDir(p); d != "."; d = wire.ParentDir(d) {
			up, clash := merged[d]
			if !clash {
				continue
			}
			switch {
			case up.Mode == wire.ModeEmptyDir:
				delete(merged, d)
			case ours[p] == en: // the user's file is below: the merged one above goes
				delete(merged, d)
				conflicts = append(conflicts, wire.Conflict{Path: wire.Path(d), Reason: "you have a directory there"})
			default:
				delete(merged, p)
				conflicts = append(conflicts, wire.Conflict{Path: wire.Path(p), Reason: "you have a file where its directory would be"})
			}
		}
	}
	slices.SortFunc(conflicts, func(a, b wire.Conflict) int { return strings.Compare(string(a.Path), string(b.Path)) })
	return merged, conflicts, nil
}

// frozenRepositories lists the nested repositories whose own state both sides
// changed in different ways: mixing an index of one with refs of the other
// would break it, so it is ours that stays.
func frozenRepositories(base, ours, theirs Tree) map[string]bool {
	changed := func(t Tree) map[string]bool {
		out := map[string]bool{}
		for _, c := range diffTrees(base, t) {
			if git, ok := inNestedGit(c.path); ok && !isObject(c.path) {
				out[git] = true
			}
		}
		return out
	}
	mine, frozen := changed(ours), map[string]bool{}
	for git := range changed(theirs) {
		if mine[git] {
			frozen[git] = true
		}
	}
	return frozen
}

// storeFile stores a file of the engine's own.
func (e *Engine) storeFile(ctx context.Context, name string) (Entry, error) {
	var en Entry
	for range 100 {
		ids, err := e.writeObjects(ctx, []object{e.contentObject(ctx, &en, nil, func() (io.ReadCloser, fileStat, error) {
			return openContentAt(unix.AT_FDCWD, name, -1)
		})})
		if err != nil {
			return none, err
		}
		if en.ID = ids[0]; en.ID != "" {
			return en, nil
		}
	}
	return none, fmt.Errorf("%s never stands still", filepath.Base(name))
}

// keepVersion keeps a version of a path that is in no tree as a commit of its
// own under refs/choir/kept/, and returns what it kept.
func (e *Engine) keepVersion(ctx context.Context, name string, p wire.Path, file string) (Entry, error) {
	en, err := e.storeFile(ctx, file)
	if err != nil {
		return none, err
	}
	return en, e.keepEntry(ctx, name, p, en)
}

// keepEntry is keepVersion of what is stored already. The ref's name says what
// it holds, so that a later version never takes the place of an earlier one.
func (e *Engine) keepEntry(ctx context.Context, name string, p wire.Path, en Entry) error {
	tree, err := e.writeTree(ctx, Tree{string(p): en})
	if err != nil {
		return err
	}
	c, err := e.makeCommit(ctx, tree, e.head, wire.Note{Kind: "kept", Message: "Kept: a version of " + p.Shown() + " that was being written in the very moment of a change"})
	if err != nil {
		return err
	}
	return e.forceRef(ctx, "refs/choir/kept/"+name+"-"+en.ID[:12], c.Commit)
}
