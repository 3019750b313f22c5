package names

import (
	"encoding/hex"
	"slices"
	"strings"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Suffixes that are added to names in commits.
const (
	EscapeSuffix = ".choir"
	chunkBase    = ".chunks"
	ChunkSuffix  = chunkBase + EscapeSuffix
	EmptyMarker  = ".empty" + EscapeSuffix
	hexPrefix    = ".choir-hex-"
)

// Kind is the kind of file that a name in a tree stands for.
type Kind int

const (
	File Kind = iota
	Link
	Folder
)

// KindOf is the kind of an entry's name.
func KindOf(m wire.Mode) Kind {
	switch m {
	case wire.ModeSymlink:
		return Link
	case wire.ModeEmptyDir:
		return Folder
	}
	return File
}

// escapeBase splits a name into its base and how many suffixes it has.
func escapeBase(name string) (base string, suffixes int) {
	for strings.HasSuffix(name, EscapeSuffix) {
		name, suffixes = name[:len(name)-len(EscapeSuffix)], suffixes+1
	}
	return name, suffixes
}

func reservedBase(base string) bool {
	return base == ".empty" || strings.EqualFold(base, ".git") || slices.ContainsFunc(readByGit, func(r gitFile) bool { return strings.EqualFold(base, "."+r.name) })
}

// Escape returns the name that a file has in a commit.
func Escape(name string, kind Kind) string {
	if defence.Off(defence.GitNames) {
		return name
	}
	if len(name) < 4 || !mayBeSpecial(name) && !strings.HasSuffix(name, EscapeSuffix) {
		return name
	}
	base, n := escapeBase(name)
	if strings.HasSuffix(base, chunkBase) && n > 0 && !strings.HasPrefix(name, hexPrefix) && !refusedName(name, kind) {
		return name + EscapeSuffix
	}
	if reservedBase(base) {
		if n > 0 || refusedName(name, kind) {
			return name + EscapeSuffix
		}
		return name
	}
	if strings.HasPrefix(name, hexPrefix) || refusedName(name, kind) {
		return hexPrefix + hex.EncodeToString([]byte(name))
	}
	return name
}

// Unescape is the reverse of Escape.
func Unescape(name string) string {
	if rest, ok := strings.CutPrefix(name, hexPrefix); ok {
		if raw, err := hex.DecodeString(rest); err == nil && len(raw) > 0 {
			return string(raw)
		}
		return name
	}
	if !strings.HasSuffix(name, EscapeSuffix) {
		return name
	}
	base, n := escapeBase(name)
	if n > 1 && strings.HasSuffix(base, chunkBase) || n > 0 && reservedBase(base) {
		return name[:len(name)-len(EscapeSuffix)]
	}
	return name
}

// EscapeChunked returns the name that a large file has in a commit.
func EscapeChunked(name string) string { return Escape(name, File) + ChunkSuffix }

// IsChunked reports whether a file's name in a commit is a large file's.
func IsChunked(name string) bool { return strings.HasSuffix(name, ChunkSuffix) }

// UnescapeFile takes a file's name in a commit, or a path that ends in one, and returns its
// name in the tree, and whether the file is a large one.
func UnescapeFile(name string) (string, bool) {
	if IsChunked(name) {
		return Unescape(strings.TrimSuffix(name, ChunkSuffix)), true
	}
	return Unescape(name), false
}

// Ways returns the paths that a path may have in a commit, for its last name may be a
// file's, a link's, a folder's or a large file's.
func Ways(p string) []string {
	parts := strings.Split(p, "/")
	last := len(parts) - 1
	for i := range last {
		parts[i] = Escape(parts[i], Folder)
	}
	name := parts[last]
	var out []string
	for _, kind := range []Kind{File, Link, Folder} {
		parts[last] = Escape(name, kind)
		if q := strings.Join(parts, "/"); !slices.Contains(out, q) {
			out = append(out, q)
		}
	}
	parts[last] = EscapeChunked(name)
	return append(out, strings.Join(parts, "/"))
}

// pathKind is the kind of file that a path in a commit stands for.
type pathKind int

const (
	PathPlain   pathKind = iota // a file, a link or a folder
	PathEmpty                   // an empty directory, by its marker
	PathChunked                 // a large file, by its manifest
)

// UnescapePath returns the path in the tree of a path in a commit; the path of an empty
// directory's marker gives the directory.
func UnescapePath(p string) (string, pathKind) {
	kind := PathPlain
	if p == EmptyMarker || strings.HasSuffix(p, "/"+EmptyMarker) {
		p, kind = strings.TrimSuffix(strings.TrimSuffix(p, EmptyMarker), "/"), PathEmpty
	} else if IsChunked(p) {
		p, kind = strings.TrimSuffix(p, ChunkSuffix), PathChunked
	}
	if strings.Contains(p, ".choir") {
		parts := strings.Split(p, "/")
		for i := range parts {
			parts[i] = Unescape(parts[i])
		}
		p = strings.Join(parts, "/")
	}
	return p, kind
}
