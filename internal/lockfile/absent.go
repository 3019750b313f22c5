package lockfile

import (
	"path"
	"slices"
	"strings"
)

// Machine is the platform that packages are made for, in npm's terms: "linux", "x64",
// "glibc".
type Machine struct{ OS, CPU, LibC string }

// Absent returns a package that npm should have installed and left out, or "" if there is
// none. npm continues without an optional package that it could not fetch or unpack, and
// reports success, so whoever interrupts its connection or fills its disk could decide what
// the tree contains. Packages for other platforms may be absent, and so may packages that
// only those need. has reports whether a package exists at a path relative to the project.
// For other tools than npm nothing is absent, because they fail.
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
					continue // an optional peer dependency, which npm does not install
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

// resolve finds the package that a package at a path gets for a name: the nearest one.
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

// fits reports whether a package is for the machine.
func (e npmEntry) fits(m Machine) bool {
	return e.admits("os", m.OS) && e.admits("cpu", m.CPU) && e.admits("libc", m.LibC)
}

// admits evaluates a list of admitted values, or, with "!", of excluded ones.
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
