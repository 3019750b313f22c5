package keeper

import (
	"bytes"
	"strings"
)

// Ignoring. .gitignore files are honoured as git does, with two differences
// that keep them from hiding a person's work: what was captured stays
// captured, and a pattern without a single letter (such as `*`), which ignores
// everything, has no effect in the places where people keep things (see
// scaffold); inside a cache that ignores itself it has.

// maxIgnoreFile bounds a .gitignore that is read, in bytes.
const maxIgnoreFile = 256 << 10

type ignoreRule struct {
	pattern string
	negate  bool
	dirOnly bool
	base    bool // matches the last part of a path only
}

// ignoreSet is the rules of one directory's .gitignore; dir is "" for the root.
type ignoreSet struct {
	dir   string
	rules []ignoreRule
}

// scaffold reports whether a directory is one in which a catch-all rule is not
// honoured: the root, what is directly in it, and what is directly in
// workspace/ (projects).
func scaffold(dir string) bool {
	if dir == "" || dir == "." || !strings.Contains(dir, "/") {
		return true
	}
	rest, ok := strings.CutPrefix(dir, "workspace/")
	return ok && !strings.Contains(rest, "/")
}

// parseIgnore reads a .gitignore. keepAll drops catch-all rules.
func parseIgnore(dir string, content []byte, keepAll bool) ignoreSet {
	if dir == "." {
		dir = ""
	}
	set := ignoreSet{dir: dir}
	content = bytes.TrimPrefix(content, []byte("\xef\xbb\xbf"))
	for raw := range bytes.SplitSeq(content, []byte{'\n'}) {
		line := strings.TrimSuffix(string(raw), "\r")
		line = trimTrailingSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		var r ignoreRule
		if line[0] == '!' {
			r.negate, line = true, line[1:]
		} else if strings.HasPrefix(line, `\!`) || strings.HasPrefix(line, `\#`) {
			line = line[1:]
		}
		if strings.HasSuffix(line, "/") {
			r.dirOnly, line = true, line[:len(line)-1]
		}
		if line == "" {
			continue
		}
		r.base = !strings.Contains(line, "/")
		r.pattern = strings.TrimPrefix(line, "/")
		if keepAll && !r.negate && strings.Trim(r.pattern, "*?./[]!^-") == "" {
			continue
		}
		set.rules = append(set.rules, r)
	}
	return set
}

// trimTrailingSpace removes trailing spaces that are not quoted by a backslash.
func trimTrailingSpace(s string) string {
	end := len(s)
	for end > 0 && s[end-1] == ' ' {
		if end > 1 && s[end-2] == '\\' {
			break
		}
		end--
	}
	return s[:end]
}

// ignored reports what the sets, outermost first, say of a path whose parents
// are not ignored.
func ignored(sets []ignoreSet, p string, isDir bool) bool {
	name := p[strings.LastIndexByte(p, '/')+1:]
	for i := len(sets) - 1; i >= 0; i-- {
		s := sets[i]
		rel := p
		if s.dir != "" {
			rel = p[len(s.dir)+1:]
		}
		for j := len(s.rules) - 1; j >= 0; j-- {
			r := s.rules[j]
			if r.dirOnly && !isDir {
				continue
			}
			pattern, subject := r.pattern, rel
			if r.base {
				subject = name
			} else if n := strings.IndexAny(pattern, `*?[\`); n > 0 {
				// Git compares the literal beginning first, so that a ** right
				// behind it counts as one at the start.
				if !strings.HasPrefix(subject, pattern[:n]) {
					continue
				}
				pattern, subject = pattern[n:], subject[n:]
			}
			if wildmatch(pattern, subject) {
				return !r.negate
			}
		}
	}
	return false
}

// wildBudget bounds the steps of one match, so that a pattern made of stars
// can't spin; a match that runs out counts as none.
const wildBudget = 20_000

// wildmatch matches as git does for paths: `*` and `?` don't match a slash,
// `**/`, `/**` and `/**/` match directories.
func wildmatch(pattern, text string) bool {
	budget := wildBudget
	return wild(pattern, text, true, &budget)
}

// wild is wildmatch at a position; atStart says that pattern begins, or follows a slash.
func wild(p, t string, atStart bool, budget *int) bool {
	for p != "" {
		if *budget--; *budget < 0 {
			return false
		}
		switch c := p[0]; c {
		case '*':
			stars := len(p) - len(strings.TrimLeft(p, "*"))
			rest := p[stars:]
			deep := stars > 1 && atStart && (rest == "" || rest[0] == '/' || strings.HasPrefix(rest, `\/`))
			if deep && rest == "" {
				return true
			}
			if deep && wild(strings.TrimPrefix(strings.TrimPrefix(rest, `\`), "/"), t, true, budget) {
				return true
			}
			for i := 0; ; i++ {
				if wild(rest, t[i:], false, budget) {
					return true
				}
				if i == len(t) || (!deep && t[i] == '/') || *budget < 0 {
					return false
				}
			}
		case '?':
			if t == "" || t[0] == '/' {
				return false
			}
			p, t = p[1:], t[1:]
		case '[':
			n, ok := wildClass(p, t)
			if n == 0 || !ok {
				return false
			}
			p, t = p[n:], t[1:]
		default:
			if c == '\\' {
				if len(p) == 1 {
					return false
				}
				p = p[1:]
				c = p[0]
			}
			if t == "" || t[0] != c {
				return false
			}
			p, t = p[1:], t[1:]
			atStart = c == '/'
			continue
		}
		atStart = false
	}
	return t == ""
}

// wildClass matches a bracket expression against the first byte of t and
// returns its length, 0 when it isn't closed.
func wildClass(p, t string) (int, bool) {
	if t == "" || t[0] == '/' {
		return 0, false
	}
	i, negate, found := 1, false, false
	if i < len(p) && (p[i] == '!' || p[i] == '^') {
		negate, i = true, i+1
	}
	for first := true; ; first = false {
		if i >= len(p) {
			return 0, false
		}
		if p[i] == ']' && !first {
			return i + 1, found != negate
		}
		if strings.HasPrefix(p[i:], "[:") {
			if end := strings.Index(p[i+2:], ":]"); end >= 0 {
				ok, known := posixClass(p[i+2:i+2+end], t[0])
				if !known {
					return 0, false
				}
				found = found || ok
				i += end + 4
				continue
			}
		}
		lo, n := classByte(p[i:])
		if n == 0 {
			return 0, false
		}
		i += n
		hi := lo
		if i+1 < len(p) && p[i] == '-' && p[i+1] != ']' {
			if hi, n = classByte(p[i+1:]); n == 0 {
				return 0, false
			}
			i += 1 + n
		}
		if lo <= t[0] && t[0] <= hi {
			found = true
		}
	}
}

func classByte(p string) (byte, int) {
	if p == "" {
		return 0, 0
	}
	if p[0] != '\\' {
		return p[0], 1
	}
	if len(p) == 1 {
		return 0, 0
	}
	return p[1], 2
}

func posixClass(name string, c byte) (match, known bool) {
	lower, upper, digit := c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9'
	graph := c > 32 && c < 127
	switch name {
	case "alpha":
		return lower || upper, true
	case "lower":
		return lower, true
	case "upper":
		return upper, true
	case "digit":
		return digit, true
	case "alnum":
		return lower || upper || digit, true
	case "xdigit":
		return digit || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F', true
	case "space":
		return c == ' ' || c >= 9 && c <= 13, true
	case "blank":
		return c == ' ' || c == '\t', true
	case "punct":
		return graph && !lower && !upper && !digit, true
	case "graph":
		return graph, true
	case "print":
		return graph || c == ' ', true
	case "cntrl":
		return c < 32 || c == 127, true
	}
	return false, false
}
