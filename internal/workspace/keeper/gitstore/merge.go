package gitstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/nested"
	"choir.dev/choiros/internal/workspace/keeper/objects"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// MaxMerge bounds the size of a file that is merged line by line.
const MaxMerge = 4 << 20

// MergeEntries merges two versions of one file; false means they conflict.
func (s *Store) MergeEntries(ctx context.Context, base, ours, theirs Entry) (Entry, bool, error) {
	switch {
	case ours == theirs, base == theirs:
		return ours, true, nil
	case base == ours:
		return theirs, true, nil
	case !base.IsRegular() || !ours.IsRegular() || !theirs.IsRegular():
		return None, false, nil
	}
	merged := ours
	if ours.Mode == base.Mode {
		merged.Mode = theirs.Mode
	}
	switch {
	case ours.Holds() == theirs.Holds(), theirs.Holds() == base.Holds():
		return merged, true, nil
	case ours.Holds() == base.Holds():
		merged.ID, merged.Chunked = theirs.ID, theirs.Chunked
		return merged, true, nil
	case base.Chunked || ours.Chunked || theirs.Chunked:
		return None, false, nil // too large to be merged by lines
	}
	content, ok, err := s.mergeBlobs(ctx, base.ID, ours.ID, theirs.ID)
	if err != nil || !ok {
		return None, false, err
	}
	ids, err := s.Write(ctx, []objects.Object{{Kind: "blob", Content: content}})
	if err != nil {
		return None, false, err
	}
	merged.ID = ids[0]
	return merged, true, nil
}

// MergeAt is MergeEntries of what is at a path. Of a nested repository's index that says the
// same as the base's, it is as if nobody had written it.
func (s *Store) MergeAt(ctx context.Context, p string, base, ours, theirs Entry) (Entry, bool, error) {
	if git, ok := nested.In(p); ok && p == git+"/index" {
		if same, err := s.sameIndex(ctx, base, ours); err != nil {
			return None, false, err
		} else if same {
			ours = base
		}
	}
	return s.MergeEntries(ctx, base, ours, theirs)
}

// mergeBlobs merges line by line with git merge-file, on plain temporary files
// outside the tree; binary content conflicts.
func (s *Store) mergeBlobs(ctx context.Context, base, ours, theirs string) ([]byte, bool, error) {
	dir, err := os.MkdirTemp(s.Work(), "tmp-merge-")
	if err != nil {
		return nil, false, err
	}
	defer os.RemoveAll(dir)
	names := []string{"ours", "base", "theirs"}
	for i, id := range []string{ours, base, theirs} {
		var buf bytes.Buffer
		_, size, err := s.reads.Read(ctx, id, MaxMerge, &buf)
		if err != nil {
			return nil, false, err
		}
		if size > MaxMerge || bytes.IndexByte(buf.Bytes(), 0) >= 0 {
			return nil, false, nil
		}
		names[i] = filepath.Join(dir, names[i])
		if err := os.WriteFile(names[i], buf.Bytes(), 0o600); err != nil {
			return nil, false, err
		}
	}
	out, err := s.Git(ctx, nil, append([]string{"merge-file", "-p", "-q", "--"}, names...)...)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 && ctx.Err() == nil {
		return nil, false, nil
	}
	return out, err == nil, err
}

// MergeTrees merges theirs into ours. A path both changed, and whose contents
// do not merge, stays as ours has it and is reported.
func (s *Store) MergeTrees(ctx context.Context, base, ours, theirs Tree) (Tree, []wire.Conflict, error) {
	merged := make(Tree, len(ours))
	for p, en := range ours {
		merged[p] = en
	}
	var conflicts []wire.Conflict
	conflict := func(p, reason string) {
		conflicts = append(conflicts, wire.Conflict{Path: wire.Path(p), Reason: reason})
	}
	changes := DiffTrees(base, theirs)
	mine, err := s.staged(ctx, base, ours, changes)
	if err != nil {
		return nil, nil, err
	}
	own, frozen := ownRepositories(base, mine, theirs)
	oursDirs := Directories(ours)
	// Removals come first: they make room for what takes their place.
	slices.SortStableFunc(changes, func(a, b Change) int {
		return map[bool]int{true: 1}[a.To.Exists()] - map[bool]int{true: 1}[b.To.Exists()]
	})
	for _, c := range changes {
		mine := mine[c.Path]
		if git, ok := nested.In(c.Path); ok && own[git] && nested.IsObject(c.Path) && !c.To.Exists() {
			continue // our own data of the repository may refer to it
		}
		if git, ok := nested.In(c.Path); ok && frozen[git] && mine != c.To {
			if nested.IsObject(c.Path) && c.To.Exists() && !mine.Exists() {
				merged[c.Path] = c.To // objects only ever add to a repository
			} else if !nested.IsObject(c.Path) {
				conflict(c.Path, "both sides changed this repository")
			}
			continue
		}
		if c.To.Mode == wire.ModeEmptyDir && oursDirs[c.Path] {
			// It is empty if theirs removed all that ours has in it, which settleDirs sees.
			merged[c.Path] = c.To
			continue
		}
		if c.To.Mode == wire.ModeEmptyDir && mine.Exists() && mine != c.From {
			continue // a file of the user's is there
		}
		if c.From.Mode == wire.ModeEmptyDir && !c.To.Exists() && mine.Mode != wire.ModeEmptyDir {
			continue
		}
		if c.From.Mode == wire.ModeEmptyDir {
			c.From = None
			if mine.Mode == wire.ModeEmptyDir {
				mine = None
			}
		}
		got, ok, err := s.MergeEntries(ctx, c.From, mine, c.To)
		if err != nil {
			return nil, nil, err
		}
		switch {
		case !ok:
			conflict(c.Path, conflictReason(c.From, mine, c.To))
		case !got.Exists():
			delete(merged, c.Path)
		default:
			merged[c.Path] = got
		}
	}
	return settleDirs(merged, ours, conflicts)
}

func conflictReason(base, ours, theirs Entry) string {
	switch {
	case !base.Exists():
		return "both sides made this file"
	case !ours.Exists():
		return "you removed it, the task changed it"
	case !theirs.Exists():
		return "you changed it, the task removed it"
	}
	return "both sides changed the same lines, or it is not text"
}

// settleDirs makes sure that no path is both a file and a directory: ours wins over what
// was merged in.
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

// staged is ours, but that of a nested repository in which the other side changed something
// it has the base's index, where ours says the same as that: git wrote anew what it
// remembers of files, as a git status does, and nobody changed anything.
func (s *Store) staged(ctx context.Context, base, ours Tree, changes []Change) (Tree, error) {
	out, looked := ours, map[string]bool{}
	for _, c := range changes {
		git, ok := nested.In(c.Path)
		if !ok || looked[git] {
			continue
		}
		looked[git] = true
		p := git + "/index"
		same, err := s.sameIndex(ctx, base[p], ours[p])
		if err != nil {
			return nil, err
		}
		if same {
			out = maps.Clone(out)
			out[p] = base[p]
		}
	}
	return out, nil
}

// sameIndex reports whether two entries are indexes that differ and say the same.
func (s *Store) sameIndex(ctx context.Context, a, b Entry) (bool, error) {
	if a == b || a.Mode != b.Mode || !a.IsRegular() || a.Chunked || b.Chunked {
		return false, nil
	}
	var both [2][]byte
	for i, en := range []Entry{a, b} {
		content, err := s.Blob(ctx, en.ID, nested.MaxIndex)
		if fault.Is(err, fault.Exhausted) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		both[i] = content
	}
	return nested.SameIndex(both[0], both[1]), nil
}

// ownRepositories lists the nested repositories whose own data differ between ours and the
// base, and the frozen ones of them, whose data theirs changed too: mixing the index of one
// with the refs of the other would break them, so ours stays.
func ownRepositories(base, ours, theirs Tree) (own, frozen map[string]bool) {
	changed := func(t Tree) map[string]bool {
		out := map[string]bool{}
		for _, c := range DiffTrees(base, t) {
			if git, ok := nested.In(c.Path); ok && !nested.IsObject(c.Path) {
				out[git] = true
			}
		}
		return out
	}
	own, frozen = changed(ours), map[string]bool{}
	for git := range changed(theirs) {
		if own[git] {
			frozen[git] = true
		}
	}
	return own, frozen
}

// Unchanged collects what several merges, one after the other, leave unchanged: paths, and a
// nested repository's whole data if one of them is in it.
type Unchanged struct{ paths, repositories map[string]bool }

// Add adds a path, and reports whether it was new.
func (k *Unchanged) Add(p string) bool {
	if k.paths[p] {
		return false
	}
	if k.paths == nil {
		k.paths, k.repositories = map[string]bool{}, map[string]bool{}
	}
	k.paths[p] = true
	if git, ok := nested.In(p); ok {
		k.repositories[git] = true
	}
	return true
}

// Paths are those that were added.
func (k *Unchanged) Paths() []string { return slices.Sorted(maps.Keys(k.paths)) }

// Without are those of changes that leave alone what stays.
func (k *Unchanged) Without(changes []Change) []Change {
	if len(k.paths) == 0 {
		return changes
	}
	return slices.DeleteFunc(slices.Clone(changes), func(c Change) bool {
		git, ok := nested.In(c.Path)
		return k.paths[c.Path] || ok && k.repositories[git]
	})
}

// StoreFile stores a file of the engine's own.
func (s *Store) StoreFile(ctx context.Context, name string) (Entry, error) {
	var en Entry
	for range 100 {
		ids, err := s.Write(ctx, []objects.Object{s.ContentObject(ctx, &en, nil, func() (io.ReadCloser, disk.Stat, error) {
			return disk.OpenContent(unix.AT_FDCWD, name, -1)
		})})
		if err != nil {
			return None, err
		}
		if en.ID = ids[0]; en.ID != "" {
			return en, nil
		}
	}
	return None, fmt.Errorf("%s never stands still", filepath.Base(name))
}
