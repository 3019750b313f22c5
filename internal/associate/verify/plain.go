package verify

import (
	"path"
	"slices"
	"sort"
)

// bareNames are files that git obeys in a folder that looks to it like a repository.
var bareNames = []string{"config", "config.worktree", "HEAD", "attributes"}

// codeExts are those of files of which something is read or checked, wherever they lie.
var codeExts = []string{".py", ".rs", ".sh", ".bash", ".js", ".mjs", ".cjs"}

// Plain says whether nothing of paths but their being there counts, unless they
// belong to a project: that is so where a file of one of names lies in their folder
// or above it.
func Plain(paths []string) (names []string, ok bool) {
	for _, p := range paths {
		dir, name := path.Base(path.Dir(p)), path.Base(p)
		switch {
		case p != path.Clean(p), hidden(p), p == ThemePath, guardKind(p) != "", isHook(p), dir == "hooks",
			slices.Contains(manifests, name), slices.Contains(bareNames, name), slices.Contains(codeExts, path.Ext(name)):
			return nil, false
		}
	}
	return manifests, true
}

// Loose are the facts of paths of no project that are plain, of which some are there.
func Loose(paths []string, there []bool) Facts {
	var f Facts
	for i, p := range paths {
		if there[i] {
			f.Loose = append(f.Loose, p)
		}
	}
	sort.Strings(f.Loose)
	return f
}
