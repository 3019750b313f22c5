package scan

import (
	"path"
	"strings"

	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Wanted is a tree that is not on disk, as far as its ignore files are concerned.
type Wanted struct {
	Ignores func(dir string) (content []byte, there bool, err error) // the .gitignore of a directory
	IsRepo  func(dir string) bool                                    // it has a .git
}

// KeptOut says of files, links and folders which of them a tree's ignore files keep out,
// as a walk over it would that had captured none: by path, the outermost that is ignored,
// which may be a folder, and why. A file of patterns that takes too long has no say.
func (t Wanted) KeptOut(paths []string) (map[string]wire.Conflict, error) {
	slow := map[slowIgnore]bool{}
	for try := 0; ; try++ {
		k := keptOut{Wanted: t, ignores: ignoreFiles{slow: slow, none: try == 2}, places: map[string]*wantedPlace{}}
		out := map[string]wire.Conflict{}
		for _, p := range paths {
			in, err := k.place(wire.ParentDir(p))
			if err != nil {
				return nil, err
			}
			if in.out.Path != "" {
				out[p] = in.out
			} else if why := in.says(p, false); why != "" {
				out[p] = wire.Conflict{Path: wire.Path(p), Reason: why}
			}
		}
		if !k.ignores.over(slow) || try == 2 {
			return out, nil
		}
	}
}

type keptOut struct {
	Wanted
	ignores ignoreFiles
	places  map[string]*wantedPlace
}

// wantedPlace is what ignore files say of a directory's entries; out is set when they
// keep the directory itself out, or one that it is in.
type wantedPlace struct {
	Place
	out wire.Conflict
}

func (in *wantedPlace) says(p string, isDir bool) string {
	if in.inGit {
		return ""
	}
	return ignoredBy(in.sets, p, isDir, false)
}

// place is a directory's, which a walk comes to from the root.
func (k *keptOut) place(dir string) (*wantedPlace, error) {
	if in := k.places[dir]; in != nil {
		return in, nil
	}
	in := &wantedPlace{}
	if dir != "." {
		above, err := k.place(wire.ParentDir(dir))
		if err != nil {
			return nil, err
		}
		*in = *above
	}
	k.places[dir] = in
	if in.out.Path != "" || in.inGit {
		return in, nil
	}
	if dir != "." && path.Base(dir) == ".git" {
		in.inGit = true
		return in, nil
	}
	repo := dir != "." && k.IsRepo(dir)
	if why := in.says(dir, true); dir != "." && why != "" && (!repo || strings.Contains(dir, "node_modules")) {
		in.out = wire.Conflict{Path: wire.Path(dir), Reason: why}
		return in, nil
	}
	if repo {
		in.sets = nil
	}
	content, there, err := k.Ignores(dir)
	if err != nil || !there {
		return in, err
	}
	if set, ok := k.ignores.add(dir, content, repo || scaffold(dir)); ok {
		in.sets = append(in.sets[:len(in.sets):len(in.sets)], set)
	}
	return in, nil
}
