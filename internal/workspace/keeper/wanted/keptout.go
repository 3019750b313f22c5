package wanted

import (
	"cmp"
	"context"
	"maps"
	"path"
	"slices"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/scan"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// maxIgnoreRead is the size of a .gitignore above which it is not followed.
const maxIgnoreRead = 1 << 20

// LeaveIgnored leaves alone what the live tree holds and the wanted tree's own ignore files
// exclude, and returns it. (While such an ignore file was gone, a checkpoint captured what
// it had excluded, so those files look as if they had been made then.) What is in the way
// of such a file is not brought back.
func (w *Tree) LeaveIgnored(ctx context.Context) ([]wire.Conflict, error) {
	var lost []string
	for p, c := range w.changes {
		if !c.To.Exists() && c.From.Mode != wire.ModeEmptyDir {
			lost = append(lost, p)
		}
	}
	if len(lost) == 0 {
		return nil, nil
	}
	slices.Sort(lost)
	out, err := w.ignoring(ctx).KeptOut(lost)
	if err != nil || len(out) == 0 {
		return nil, err
	}
	told := map[wire.Path]wire.Conflict{}
	for _, c := range out {
		told[c.Path] = c
	}
	for _, c := range w.leave(slices.Collect(maps.Keys(out))) {
		if c.To.Exists() && c.To.Mode != wire.ModeEmptyDir {
			told[wire.Path(c.Path)] = wire.Conflict{Path: wire.Path(c.Path), Reason: "what is ignored is in its place"}
		}
	}
	return slices.SortedFunc(maps.Values(told), func(a, b wire.Conflict) int { return cmp.Compare(a.Path, b.Path) }), nil
}

// KeptOut returns the files that would be new and that the wanted tree's own ignore files
// exclude: no checkpoint would capture them by itself.
func (w *Tree) KeptOut(ctx context.Context) ([]wire.Conflict, error) {
	var made []string
	for p, c := range w.changes {
		if !c.From.Exists() && c.To.Exists() && c.To.Mode != wire.ModeEmptyDir {
			made = append(made, p)
		}
	}
	out, err := w.ignoring(ctx).KeptOut(made)
	told := make([]wire.Conflict, 0, len(out))
	for p, c := range out {
		told = append(told, wire.Conflict{Path: wire.Path(p), Reason: c.Reason})
	}
	slices.SortFunc(told, func(a, b wire.Conflict) int { return cmp.Compare(a.Path, b.Path) })
	return told, err
}

// LetIn are the paths of those that lie ignored in the live tree that the wanted tree's
// ignore files do not keep out any more: the next checkpoint would have them.
func (w *Tree) LetIn(ctx context.Context, live *scan.Scanner) ([]wire.Conflict, error) {
	ignored, more := live.Ignored()
	var told []wire.Conflict
	touched := false
	for p := range w.changes {
		if path.Base(p) != ".gitignore" {
			continue
		}
		if touched = true; more > 0 {
			told = append(told, wire.Conflict{Path: wire.Path(p), Reason: "more is ignored than can be looked at; change it in the computer"})
		}
	}
	if !touched {
		return nil, nil
	}
	asked := make([]string, len(ignored))
	for i, p := range ignored {
		if asked[i] = p; live.IsFolder(p) { // whose patterns are asked for what is in it
			asked[i] = wire.JoinPath(p, "x")
		}
	}
	out, err := w.ignoring(ctx).KeptOut(asked)
	for i, p := range ignored {
		if by, kept := out[asked[i]]; !kept || !wire.IsUnder(p, string(by.Path)) {
			told = append(told, wire.Conflict{Path: wire.Path(p), Reason: "would not be ignored any more; change .gitignore in the computer"})
		}
	}
	return told, err
}

// ignoring is the wanted tree as its ignore files see it. A repository in the live tree
// counts as one even if it is ignored.
func (w *Tree) ignoring(ctx context.Context) scan.Wanted {
	made := map[string]bool{} // folders that hold something new
	for p, c := range w.changes {
		for d := wire.ParentDir(p); c.To.Exists() && d != "." && !made[d]; d = wire.ParentDir(d) {
			made[d] = true
		}
	}
	return scan.Wanted{
		IsRepo: func(dir string) bool {
			git := wire.JoinPath(dir, ".git")
			return made[git] || w.live.Folder(git) != nil || w.live.At(git).Exists() || w.at(git).Exists()
		},
		Ignores: func(dir string) ([]byte, bool, error) {
			en := w.at(wire.JoinPath(dir, ".gitignore"))
			if !en.IsRegular() || en.Chunked {
				return nil, false, nil
			}
			content, err := w.store.Blob(ctx, en.ID, maxIgnoreRead)
			if fault.Is(err, fault.Exhausted) { // a walk of the tree would not follow it either
				return nil, false, nil
			}
			return content, err == nil, err
		},
	}
}
