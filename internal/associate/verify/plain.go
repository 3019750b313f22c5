package verify

import (
	"path"
	"slices"
	"sort"
	"strings"

	"choir.dev/choiros/contract"
)

// bareNames are files that git obeys in a folder that looks to it like a repository.
var bareNames = []string{"config", "config.worktree", "HEAD", "attributes"}

// codeExts are the extensions of files that are read or checked wherever they are.
var codeExts = []string{".py", ".rs", ".sh", ".bash", ".js", ".mjs", ".cjs"}

// Plain says whether paths matter only by their existence, unless they belong to a project:
// they do if a file with one of names is in their folder or above it. A path that ends in a
// slash is an empty folder that came or went.
func Plain(paths []string) (names []string, ok bool) {
	for _, p := range paths {
		p = strings.TrimSuffix(p, "/")
		dir, name := path.Base(path.Dir(p)), path.Base(p)
		switch {
		case p != path.Clean(p), hidden(p), p == contract.ThemePath, guardKind(p) != "", isHook(p), dir == "hooks",
			slices.Contains(manifests, name), slices.Contains(bareNames, name), slices.Contains(codeExts, path.Ext(name)):
			return nil, false
		}
	}
	return manifests, true
}

// Loose are the facts about plain paths in no project, of which some exist.
func Loose(paths []string, there []bool) Facts {
	var f Facts
	for i, p := range paths {
		if there[i] {
			f.Loose = append(f.Loose, path.Clean(p))
		}
	}
	sort.Strings(f.Loose)
	return f
}

// OfDocument is the check of a document in no project by the host, which runs no program for it. It passed unless the
// caller says otherwise.
func OfDocument(path string) Ran {
	argv := []string{"check-citations", path}
	return Ran{Check: Check{Name: "citations", Argv: argv, Group: noProject, Enough: true}, Command: contract.Command{Argv: argv}, Count: Count{Runner: ExitCode}}
}
