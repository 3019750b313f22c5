package engine

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/scan"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// maxIgnoreRead is more of a .gitignore than is followed.
const maxIgnoreRead = 1 << 20

// leaveIgnored has what live holds, and the wanted tree's own ignore files keep out, stay
// as it is, and says so: while such a file was away a checkpoint took what it had kept
// out, so that it looks as if it had been made then. What stands in its way stays away.
func (e *Engine) leaveIgnored(ctx context.Context, live, want gitstore.Tree) (gitstore.Tree, []wire.Conflict, error) {
	var lost []string
	for p, en := range live {
		if !want[p].Exists() && en.Mode != wire.ModeEmptyDir {
			lost = append(lost, p)
		}
	}
	if len(lost) == 0 {
		return want, nil, nil
	}
	slices.Sort(lost)
	out, err := e.wanted(ctx, live, want).KeptOut(lost)
	if err != nil || len(out) == 0 {
		return want, nil, err
	}
	told := map[wire.Path]wire.Conflict{}
	kept := gitstore.Tree{}
	for p, c := range out {
		kept[p], told[c.Path] = live[p], c
	}
	all := maps.Clone(want)
	above := gitstore.Directories(kept)
	for p, en := range want {
		clash := above[p]
		for d := wire.ParentDir(p); d != "." && !clash; d = wire.ParentDir(d) {
			clash = kept[d].Exists()
		}
		if !clash {
			continue
		}
		delete(all, p)
		if en.Mode != wire.ModeEmptyDir {
			told[wire.Path(p)] = wire.Conflict{Path: wire.Path(p), Reason: "what is ignored is in its place"}
		}
	}
	maps.Copy(all, kept)
	return all, slices.SortedFunc(maps.Values(told), func(a, b wire.Conflict) int { return cmp.Compare(a.Path, b.Path) }), nil
}

// wanted is a tree for its ignore files. A repository that is there is one for them, too:
// that it is ignored did not keep it out.
func (e *Engine) wanted(ctx context.Context, live, want gitstore.Tree) scan.Wanted {
	folders := map[string]bool{}
	for _, t := range []gitstore.Tree{live, want} {
		maps.Copy(folders, gitstore.Directories(t))
	}
	return scan.Wanted{
		IsRepo: func(dir string) bool {
			git := wire.JoinPath(dir, ".git")
			return folders[git] || want[git].Exists() || live[git].Exists()
		},
		Ignores: func(dir string) ([]byte, bool, error) {
			en := want[wire.JoinPath(dir, ".gitignore")]
			if !en.IsRegular() || en.Chunked {
				return nil, false, nil
			}
			content, err := e.store.Blob(ctx, en.ID, maxIgnoreRead)
			if fault.Is(err, fault.Exhausted) { // a walk would not follow it either
				return nil, false, nil
			}
			return content, err == nil, err
		},
	}
}
