package lockfile

import (
	"path"
	"slices"
	"strings"
)

// Machine is what packages are made for, in npm's words: "linux", "x64", "glibc".
type Machine struct{ OS, CPU, LibC string }

// Absent names a package that npm was to install and left out, "" when there is
// none. npm goes on without an optional package that it could not fetch or unpack
// and calls that a success, so who took its connection away, or its disk, decides
// what the tree holds. One that is for other machines may be absent, and what only
// that one needs. has says what is there, by its path from the project. Of other
// tools nothing is absent: they fail.
func (l Lock) Absent(m Machine, has func(at string) bool) string {
	seen := map[string]bool{}
	var look func(at string) string
	look = func(at string) string {
		if seen[at] {
			return ""
		}
		seen[at] = true
		e := l.entries[at]
		for _, kind := range []string{"dependencies", "optionalDependencies", "peerDependencies", "devDependencies"} {
			wanted, _ := e[kind].(map[string]any)
			for name := range wanted {
				to, there := l.resolve(at, name)
				if !there {
					continue // nothing that npm installs: a peer that is optional
				}
				if !has(to) {
					if l.entries[to].fits(m) {
						return to
					}
					continue
				}
				if absent := look(to); absent != "" {
					return absent
				}
				if next := l.entries[to]; next.is("link") {
					if absent := look(path.Clean(next.text("resolved"))); absent != "" {
						return absent
					}
				}
			}
		}
		return ""
	}
	for at := range l.entries {
		if !strings.Contains("/"+at, "/node_modules/") { // the project and its workspaces
			if absent := look(at); absent != "" {
				return absent
			}
		}
	}
	return ""
}

// resolve finds the package that one at a place gets under a name: the nearest.
func (l Lock) resolve(at, name string) (string, bool) {
	for dir := at; ; dir = path.Dir(dir) {
		if dir == "." {
			dir = ""
		}
		if path.Base(dir) != "node_modules" {
			to := path.Join(dir, "node_modules", name)
			if _, ok := l.entries[to]; ok {
				return to, true
			}
		}
		if dir == "" {
			return "", false
		}
	}
}

// fits says whether a package is for such a machine.
func (e npmEntry) fits(m Machine) bool {
	return e.admits("os", m.OS) && e.admits("cpu", m.CPU) && e.admits("libc", m.LibC)
}

// admits reads a list of what is meant, or, with "!", of what is not.
func (e npmEntry) admits(key, value string) bool {
	var list []string
	switch v := e[key].(type) {
	case string:
		list = []string{v}
	case []any:
		for _, s := range v {
			s, _ := s.(string)
			list = append(list, s)
		}
	}
	if slices.Contains(list, "!"+value) {
		return false
	}
	only := slices.DeleteFunc(list, func(s string) bool { return strings.HasPrefix(s, "!") || s == "any" })
	return len(only) == 0 || slices.Contains(only, value)
}
