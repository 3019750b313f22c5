package gitstore

import (
	"encoding/hex"
	"slices"
	"strings"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Names in commits. Git, and servers that check what is pushed to them, refuse
// some names that a tree may hold: `.git` (a nested repository's) in any case;
// what HFS+ or NTFS take for it; `.gitmodules`, whose content is checked as
// well; and `.gitattributes`, `.gitignore` and `.mailmap` as a link or folder.
// They get the suffix below; so does every name that already looks as if it had
// one, which makes the mapping reversible. Where a suffix does not help (a name
// that only an odd file system reads that way) the name is written in hex. An
// empty directory is kept as a marker file inside it, and a large file as a
// manifest under its name with chunkSuffix.
const (
	escapeSuffix = ".choir"
	chunkBase    = ".chunks"
	chunkSuffix  = chunkBase + escapeSuffix
	EmptyMarker  = ".empty" + escapeSuffix
	hexPrefix    = ".choir-hex-"
)

// nameKind is what a name in a tree names.
type nameKind int

const (
	nameFile nameKind = iota
	nameLink
	nameDir
)

// nameKindOf is the kind of an entry's name.
func nameKindOf(m wire.Mode) nameKind {
	switch m {
	case wire.ModeSymlink:
		return nameLink
	case wire.ModeEmptyDir:
		return nameDir
	}
	return nameFile
}

// escapeBase splits a name into its base and how many suffixes it has.
func escapeBase(name string) (base string, suffixes int) {
	for strings.HasSuffix(name, escapeSuffix) {
		name, suffixes = name[:len(name)-len(escapeSuffix)], suffixes+1
	}
	return name, suffixes
}

func reservedBase(base string) bool {
	return base == ".empty" || strings.EqualFold(base, ".git") || slices.ContainsFunc(readByGit, func(r gitFile) bool { return strings.EqualFold(base, "."+r.name) })
}

// escapeName returns a file name as it stands in a commit.
func escapeName(name string, kind nameKind) string {
	if defence.Off(defence.GitNames) {
		return name
	}
	if len(name) < 4 || !mayBeSpecial(name) && !strings.HasSuffix(name, escapeSuffix) {
		return name
	}
	base, n := escapeBase(name)
	if strings.HasSuffix(base, chunkBase) && n > 0 && !strings.HasPrefix(name, hexPrefix) && !refusedName(name, kind) {
		return name + escapeSuffix
	}
	if reservedBase(base) {
		if n > 0 || refusedName(name, kind) {
			return name + escapeSuffix
		}
		return name
	}
	if strings.HasPrefix(name, hexPrefix) || refusedName(name, kind) {
		return hexPrefix + hex.EncodeToString([]byte(name))
	}
	return name
}

// UnescapeName is the reverse of escapeName.
func UnescapeName(name string) string {
	if rest, ok := strings.CutPrefix(name, hexPrefix); ok {
		if raw, err := hex.DecodeString(rest); err == nil && len(raw) > 0 {
			return string(raw)
		}
		return name
	}
	if !strings.HasSuffix(name, escapeSuffix) {
		return name
	}
	base, n := escapeBase(name)
	if n > 1 && strings.HasSuffix(base, chunkBase) || n > 0 && reservedBase(base) {
		return name[:len(name)-len(escapeSuffix)]
	}
	return name
}

// escapeChunked returns a large file's name as it stands in a commit.
func escapeChunked(name string) string { return escapeName(name, nameFile) + chunkSuffix }

// IsChunked reports whether a file's name in a commit is a large file's.
func IsChunked(name string) bool { return strings.HasSuffix(name, chunkSuffix) }

// UnescapeFile returns a file's name in a commit, or a path that ends in it, as
// it stands in the tree, and whether the file is a large one.
func UnescapeFile(name string) (string, bool) {
	if IsChunked(name) {
		return UnescapeName(strings.TrimSuffix(name, chunkSuffix)), true
	}
	return UnescapeName(name), false
}

// EscapedPaths are the ways in which a path may stand in a commit, for its last
// name may be a file's, a link's, a folder's or, in the end, a large file's.
func EscapedPaths(p string) []string {
	parts := strings.Split(p, "/")
	last := len(parts) - 1
	for i := range last {
		parts[i] = escapeName(parts[i], nameDir)
	}
	name := parts[last]
	var out []string
	for _, kind := range []nameKind{nameFile, nameLink, nameDir} {
		parts[last] = escapeName(name, kind)
		if q := strings.Join(parts, "/"); !slices.Contains(out, q) {
			out = append(out, q)
		}
	}
	parts[last] = escapeChunked(name)
	return append(out, strings.Join(parts, "/"))
}

// pathKind is what a path in a commit stands for.
type pathKind int

const (
	pathFile    pathKind = iota // a file, a link or a folder
	pathEmpty                   // an empty directory, by its marker
	pathChunked                 // a large file, by its manifest
)

// unescapePath returns a commit's path as it stands in the tree; the path of
// an empty directory's marker gives the directory.
func unescapePath(p string) (string, pathKind) {
	kind := pathFile
	if p == EmptyMarker || strings.HasSuffix(p, "/"+EmptyMarker) {
		p, kind = strings.TrimSuffix(strings.TrimSuffix(p, EmptyMarker), "/"), pathEmpty
	} else if IsChunked(p) {
		p, kind = strings.TrimSuffix(p, chunkSuffix), pathChunked
	}
	if strings.Contains(p, ".choir") {
		parts := strings.Split(p, "/")
		for i := range parts {
			parts[i] = UnescapeName(parts[i])
		}
		p = strings.Join(parts, "/")
	}
	return p, kind
}

// inNestedGit reports whether a tree's path is inside (or is) a nested
// repository's .git, and returns that .git's path.
func inNestedGit(p string) (string, bool) {
	for i := 0; i < len(p); {
		j := strings.IndexByte(p[i:], '/')
		name, end := p[i:], len(p)
		if j >= 0 {
			name, end = p[i:i+j], i+j
		}
		if name == ".git" && i > 0 {
			return p[:end], true
		}
		i = end + 1
	}
	return "", false
}

// gitObeys reports whether git runs, obeys or is led elsewhere by what lies at a
// path in a nested repository's .git, "" being the .git itself where it is no
// folder. A submodule's or worktree's own data lies deeper in it.
func gitObeys(inside string) bool {
	parts := strings.Split(inside, "/")
	name := parts[len(parts)-1]
	switch {
	case parts[0] == "objects" || parts[0] == "refs" || parts[0] == "logs":
		return inside == "objects/info/alternates"
	case inside == "", name == "config", name == "config.worktree", name == "commondir", name == "gitdir", strings.HasSuffix(inside, "info/attributes"):
		return true
	}
	return slices.Contains(parts[:len(parts)-1], "hooks") && !strings.HasSuffix(name, ".sample")
}
