package names

import (
	"strings"
	"unicode/utf8"
)

// The rules by which git's fsck refuses names in a tree; servers refuse them in a push,
// too. Git looks at names as HFS+ and NTFS would read them, and these functions follow it
// exactly.

// gitFile is a file in the tree that git itself reads; short is the beginning of the short
// name that NTFS makes up for it when the usual short names are taken.
type gitFile struct{ name, short string }

var readByGit = []gitFile{{"gitmodules", "gi7eba"}, {"gitattributes", "gi7d29"}, {"gitignore", "gi250a"}, {"mailmap", "maba30"}}

// mayBeSpecial reports whether a name needs a closer look.
func mayBeSpecial(name string) bool {
	switch name[0] {
	case '.', 'g', 'G', 'm', 'M':
		return true
	}
	return name[0] >= 0x80 || strings.IndexByte(name, '\\') >= 0
}

// refusedName reports whether git refuses a name of that kind. Git refuses a .gitmodules
// because of its content, so the name is always escaped.
func refusedName(name string, kind Kind) bool {
	if hfsDot(name, "git") || ntfsDotGit(name) {
		return true
	}
	for i := range len(name) {
		if name[i] == '\\' && (ntfsDotGit(name[i+1:]) || ntfsDot(name[i+1:], readByGit[0])) {
			return true
		}
	}
	for i, f := range readByGit {
		if (i == 0 || kind != File) && (hfsDot(name, f.name) || ntfsDot(name, f)) {
			return true
		}
	}
	return false
}

// hfsDot reports whether HFS+ reads a name as "."+want: it ignores case and some characters
// without width. To git, a byte that is not valid UTF-8 ends the name.
func hfsDot(name, want string) bool {
	next := func() (r rune) {
		for name != "" {
			r, n := utf8.DecodeRuneInString(name)
			if r == utf8.RuneError && n < 2 {
				name = ""
				return 0
			}
			name = name[n:]
			switch {
			case r >= 0x200c && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x206a && r <= 0x206f, r == 0xfeff:
				continue
			}
			return r
		}
		return 0
	}
	if next() != '.' {
		return false
	}
	for i := range len(want) {
		r := next()
		if r >= 'A' && r <= 'Z' {
			r += 'a' - 'A'
		}
		if r != rune(want[i]) {
			return false
		}
	}
	return next() == 0
}

// ntfsDotGit reports whether NTFS reads a name as .git.
func ntfsDotGit(name string) bool {
	rest := ""
	switch {
	case len(name) >= 4 && strings.EqualFold(name[:4], ".git"):
		rest = name[4:]
	case len(name) >= 5 && strings.EqualFold(name[:5], "git~1"):
		rest = name[5:]
	default:
		return false
	}
	rest = strings.TrimLeft(rest, ". ")
	return rest == "" || rest[0] == '\\' || rest[0] == ':'
}

// ntfsDot reports whether NTFS reads a name as one of the files that git reads.
func ntfsDot(name string, f gitFile) bool {
	ends := func(rest string) bool {
		rest = strings.TrimLeft(rest, ". ")
		return rest == "" || rest[0] == ':'
	}
	if n := len(f.name) + 1; len(name) >= n && strings.EqualFold(name[:n], "."+f.name) {
		return ends(name[n:])
	}
	if len(name) >= 8 && strings.EqualFold(name[:6], f.name[:6]) && name[6] == '~' && name[7] >= '1' && name[7] <= '4' {
		return ends(name[8:])
	}
	tilde := false
	i := 0
	for ; i < 8; i++ {
		switch {
		case i >= len(name):
			return false
		case tilde:
			if name[i] < '0' || name[i] > '9' {
				return false
			}
		case name[i] == '~':
			if i++; i >= len(name) || name[i] < '1' || name[i] > '9' {
				return false
			}
			tilde = true
		case i >= 6 || name[i]|0x20 != f.short[i] && name[i] != f.short[i]:
			return false
		}
	}
	return ends(name[min(i, len(name)):])
}
