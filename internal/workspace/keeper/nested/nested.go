package nested

import (
	"slices"
	"strings"
)

// In reports whether a tree's path is inside (or is) a nested
// repository's .git, and returns that .git's path.
func In(p string) (string, bool) {
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

// Obeyed reports whether git runs or obeys the file at a path in a nested repository's
// .git, or is redirected by it; "" is the .git itself if it is not a folder. The data of a
// submodule or worktree lies deeper in it.
func Obeyed(inside string) bool {
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

// IsObject reports whether a tree's path is an object of a nested repository.
func IsObject(p string) bool {
	git, ok := In(p)
	return ok && strings.HasPrefix(p[len(git):], "/objects/")
}
