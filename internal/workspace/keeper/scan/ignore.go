package scan

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"strings"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// .gitignore files are followed as git does, with two exceptions that keep them from hiding
// a person's work. What was captured stays captured. And a pattern without a letter (such
// as `*`), which ignores everything, has no effect in the places where people keep things
// (see scaffold), though it has inside a cache that ignores itself.

// maxIgnoreFile bounds a .gitignore that is read, in bytes.
const maxIgnoreFile = 256 << 10

// Bounds of one .gitignore. A real one has a few hundred short patterns; beyond these
// bounds the whole file counts as absent, and that is reported: a part of it could mean the
// opposite.
const (
	maxIgnoreRules   = 2000
	maxIgnorePattern = 1024        // bytes
	ignoreWorkBase   = 20_000_000  // steps for the file
	ignoreWorkEach   = 5_000       // and for each path it is asked of
	ignoreWorkScan   = 400_000_000 // steps of all files below the root's together
)

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
	slow  slowIgnore
	work  *ignoreWork
}

// ignoreWork is the remaining budget of a set; over says that it is used up, and its rules
// count as absent.
type ignoreWork struct {
	left  int64
	over  bool
	total *int64 // of the scan; nil for the root's, which others can't use up
}

// ignoreFiles collects the .gitignore files of one scan, and what is wrong with them.
type ignoreFiles struct {
	sets  []ignoreSet
	total int64
	bad   []wire.Skip
	slow  map[slowIgnore]bool // files that took too long before
	none  bool                // only the root's applies
}

// slowIgnore is a .gitignore that spent its budget, by directory and content.
type slowIgnore struct {
	dir string
	sum [sha256.Size]byte
}

// maxSlowIgnores bounds how many are remembered.
const maxSlowIgnores = 10_000

const tooSlow = "its patterns take too long"

// add reads a directory's .gitignore; false means that it does not apply.
func (f *ignoreFiles) add(dir string, content []byte, keepAll bool) (ignoreSet, bool) {
	set, why := parseIgnore(dir, content, keepAll)
	set.slow = slowIgnore{set.dir, sha256.Sum256(content)}
	if f.slow[set.slow] || f.none && set.dir != "" {
		why = tooSlow
	}
	if why != "" {
		f.bad = append(f.bad, wire.Skip{Path: wire.Path(wire.JoinPath(dir, ".gitignore")), Reason: "is not followed: " + why, Kept: true})
		return set, false
	}
	if len(set.rules) == 0 {
		return set, false
	}
	if f.total == 0 {
		f.total = ignoreWorkScan
	}
	set.work = &ignoreWork{left: ignoreWorkBase}
	if set.dir != "" {
		set.work.total = &f.total
	}
	f.sets = append(f.sets, set)
	return set, true
}

// over notes the files that used up their budget. If there are any, what they decided
// before counts for nothing, and the scan starts again.
func (f *ignoreFiles) over(slow map[slowIgnore]bool) bool {
	any := false
	for _, s := range f.sets {
		if s.work.over {
			if len(slow) >= maxSlowIgnores {
				clear(slow)
			}
			slow[s.slow], any = true, true
		}
	}
	return any
}

// spend takes steps from the budget.
func (w *ignoreWork) spend(steps int64) {
	w.left -= steps
	if w.total != nil {
		*w.total -= steps
	}
	if (w.left < 0 || w.total != nil && *w.total < 0) && !defence.Off(defence.KeeperIgnoreBudget) {
		w.over = true
	}
}

// scaffold reports whether a directory is one in which a catch-all rule is not followed:
// the root, those directly in it, and those directly in workspace/ (projects).
func scaffold(dir string) bool {
	if dir == "" || dir == "." || !strings.Contains(dir, "/") {
		return true
	}
	rest, ok := strings.CutPrefix(dir, "workspace/")
	return ok && !strings.Contains(rest, "/")
}

// parseIgnore reads a .gitignore. keepAll drops catch-all rules. A file that is
// beyond the bounds has no rules, and the reason is returned.
func parseIgnore(dir string, content []byte, keepAll bool) (ignoreSet, string) {
	if dir == "." {
		dir = ""
	}
	set := ignoreSet{dir: dir}
	bounded := !defence.Off(defence.KeeperIgnoreBudget)
	if bounded && len(content) > maxIgnoreFile {
		return set, fmt.Sprintf("it has more than %d bytes", maxIgnoreFile)
	}
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
		if bounded && len(r.pattern) > maxIgnorePattern {
			return ignoreSet{dir: dir}, fmt.Sprintf("a pattern has more than %d bytes", maxIgnorePattern)
		}
		if bounded && len(set.rules) == maxIgnoreRules {
			return ignoreSet{dir: dir}, fmt.Sprintf("it has more than %d patterns", maxIgnoreRules)
		}
		set.rules = append(set.rules, r)
	}
	return set, ""
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

// inIgnoredFolder is the reason for something that is in an ignored folder of which other
// files are captured.
const inIgnoredFolder = "is in an ignored folder"

// ignoredBy says why a path is ignored; "" when it is not. folder says that its parents
// are.
func ignoredBy(sets []ignoreSet, p string, isDir, folder bool) string {
	if folder {
		return inIgnoredFolder
	}
	if set := ignored(sets, p, isDir); set != nil {
		return "is ignored by " + wire.Short(wire.JoinPath(cmp.Or(set.dir, "."), ".gitignore"))
	}
	return ""
}

// ignored returns the set, of sets from the outermost, that ignores a path whose parents
// are not ignored; nil when none does.
func ignored(sets []ignoreSet, p string, isDir bool) *ignoreSet {
	for i := len(sets) - 1; i >= 0; i-- {
		s := &sets[i]
		if s.work.over {
			continue
		}
		s.work.left += ignoreWorkEach
		if said, ignore := s.says(p, isDir); said && !s.work.over {
			if ignore {
				return s
			}
			return nil
		}
	}
	return nil
}

// says reports whether one of the set's rules matches a path, and what it says.
func (s *ignoreSet) says(p string, isDir bool) (said, ignore bool) {
	name := p[strings.LastIndexByte(p, '/')+1:]
	rel := p
	if s.dir != "" {
		rel = p[len(s.dir)+1:]
	}
	for j := len(s.rules) - 1; j >= 0 && !s.work.over; j-- {
		r := s.rules[j]
		steps := int64(1)
		if r.dirOnly && !isDir {
			s.work.spend(steps)
			continue
		}
		pattern, subject := r.pattern, rel
		if r.base {
			subject = name
		} else if n := strings.IndexAny(pattern, `*?[\`); n > 0 {
			// Git compares the literal beginning first, so a ** right after it counts as
			// one at the start.
			if !strings.HasPrefix(subject, pattern[:n]) {
				s.work.spend(steps)
				continue
			}
			pattern, subject = pattern[n:], subject[n:]
		}
		match := wildmatch(pattern, subject, &steps)
		s.work.spend(steps)
		if match {
			return true, !r.negate
		}
	}
	return false, false
}

// wildmatch matches as git does for paths: `*` and `?` don't match a slash,
// `**/`, `/**` and `/**/` match directories. steps counts the work, which is at
// most in proportion to both lengths: behind a later star, what an earlier one
// took makes no difference, so there are only two places to go back to, the last
// `*` and the last `**/`.
func wildmatch(p, t string, steps *int64) bool {
	pi, ti := 0, 0
	starP, starT := -1, 0 // behind the last `*`, and where it ends so far
	deepP, deepT := -1, 0 // behind the last `**/`, likewise
	for {
		*steps++
		ok := false
		switch {
		case pi == len(p):
			if ti == len(t) {
				return true
			}
		case p[pi] == '*':
			stars := len(p) - pi - len(strings.TrimLeft(p[pi:], "*"))
			rest := p[pi+stars:]
			deep := stars > 1 && (pi == 0 || p[pi-1] == '/')
			switch {
			case deep && rest == "":
				return true
			case deep && strings.HasPrefix(rest, "/"):
				pi += stars + 1
				deepP, deepT, starP = pi, ti, -1
			case deep && strings.HasPrefix(rest, `\/`):
				pi += stars + 2
				deepP, deepT, starP = pi, ti, -1
			default:
				pi += stars
				starP, starT = pi, ti
			}
			continue
		case p[pi] == '?':
			if ok = ti < len(t) && t[ti] != '/'; ok {
				pi, ti = pi+1, ti+1
			}
		case p[pi] == '[':
			n, in := wildClass(p[pi:], t[ti:])
			*steps += int64(n)
			if ok = n > 0 && in; ok {
				pi, ti = pi+n, ti+1
			}
		default:
			c, n := p[pi], 1
			if c == '\\' {
				if pi+1 == len(p) {
					return false
				}
				c, n = p[pi+1], 2
			}
			if ok = ti < len(t) && t[ti] == c; ok {
				pi, ti = pi+n, ti+1
			}
		}
		if ok {
			continue
		}
		if starP >= 0 && starT < len(t) && t[starT] != '/' {
			starT++
			pi, ti = starP, starT
			continue
		}
		next := -1
		if deepP >= 0 {
			next = strings.IndexByte(t[deepT:], '/')
		}
		if next < 0 {
			return false
		}
		deepT += next + 1
		pi, ti, starP = deepP, deepT, -1
	}
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
