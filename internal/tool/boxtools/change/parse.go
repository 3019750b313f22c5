package change

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Bounds of a patch.
const (
	maxFiles = 100
	maxHunks = 1000
)

// Parse reads a patch: a unified diff, with or without git's headings, or the form that begins with
// *** Begin Patch. Counts of lines in the headings of hunks may be wrong.
func Parse(patch string) ([]Change, error) {
	patch = strings.TrimLeft(unix(patch), "\n")
	p := parser{lines: strings.Split(strings.TrimSuffix(patch, "\n"), "\n")}
	var err error
	if strings.TrimSpace(p.lines[0]) == "*** Begin Patch" {
		err = p.envelope()
	} else {
		err = p.unified()
	}
	if err != nil {
		return nil, fmt.Errorf("line %d of the patch: %w", min(p.n, len(p.lines)-1)+1, err)
	}
	if len(p.files) == 0 {
		return nil, errors.New("the patch changes nothing: it is neither a unified diff nor begins with *** Begin Patch")
	}
	hunks := 0
	for _, f := range p.files {
		hunks += len(f.Hunks)
		if f.Path == "" {
			return nil, errors.New("the patch changes a file without a name")
		}
		if f.Kind == Update && len(f.Hunks) == 0 && f.To == "" && f.Executable == nil {
			return nil, fmt.Errorf("the patch changes nothing in %s", f.Path)
		}
	}
	if len(p.files) > maxFiles || hunks > maxHunks {
		return nil, fmt.Errorf("the patch changes %d files by %d hunks; at most %d and %d are taken", len(p.files), hunks, maxFiles, maxHunks)
	}
	return p.files, nil
}

type parser struct {
	lines []string
	n     int
	files []Change
}

func (p *parser) more() bool { return p.n < len(p.lines) }

func (p *parser) next(prefix string) bool {
	return p.more() && strings.HasPrefix(p.lines[p.n], prefix)
}

func (p *parser) last() *Change { return &p.files[len(p.files)-1] }

// envelope reads *** Begin Patch … *** End Patch.
func (p *parser) envelope() error {
	for p.n++; p.more(); {
		l := strings.TrimRight(p.lines[p.n], blanks)
		kind, path, ok := strings.Cut(l, ": ")
		switch {
		case l == "*** End Patch":
			if p.n++; p.more() && strings.TrimSpace(strings.Join(p.lines[p.n:], "")) != "" {
				return errors.New("there is something behind *** End Patch")
			}
			return nil
		case l == "":
			p.n++
		case ok && kind == "*** Add File":
			p.n++
			f := Change{Kind: Add, Path: path}
			var h Hunk
			for ; p.next("+"); p.n++ {
				h.Lines = append(h.Lines, Line{Op: '+', Text: p.lines[p.n][1:]})
			}
			if len(h.Lines) > 0 {
				f.Hunks = []Hunk{h}
			}
			p.files = append(p.files, f)
		case ok && kind == "*** Delete File":
			p.n++
			p.files = append(p.files, Change{Kind: Delete, Path: path})
		case ok && kind == "*** Update File":
			p.n++
			p.files = append(p.files, Change{Kind: Update, Path: path})
			if p.next("*** Move to: ") {
				p.last().To = strings.TrimRight(strings.TrimPrefix(p.lines[p.n], "*** Move to: "), blanks)
				p.n++
			}
			if err := p.updates(); err != nil {
				return err
			}
		default:
			return fmt.Errorf("expected *** Add File:, *** Update File:, *** Delete File: or *** End Patch, not %.80q", l)
		}
	}
	return errors.New("*** End Patch is missing, so the patch may have been cut off")
}

// updates reads the hunks below *** Update File.
func (p *parser) updates() error {
	f := p.last()
	var h Hunk
	flush := func() {
		for n := len(h.Lines); n > 0 && h.Lines[n-1].Op == 0; n-- {
			h.Lines = h.Lines[:n-1] // an empty line between this hunk and what follows
		}
		for i := range h.Lines {
			if h.Lines[i].Op == 0 {
				h.Lines[i].Op = ' '
			}
		}
		if len(h.Lines) > 0 {
			f.Hunks = append(f.Hunks, h)
		}
		h = Hunk{}
	}
	defer flush()
	for ; p.more(); p.n++ {
		l := p.lines[p.n]
		switch {
		case l == "*** End of File":
			h.End = true
			flush()
		case strings.HasPrefix(l, "*** "):
			return nil
		case strings.HasPrefix(l, "@@"):
			if len(h.Lines) > 0 {
				flush()
			}
			if at, _, _, ok := ranges(l); ok {
				h.At = at
			} else if head := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(l, "@@"), " "), " @@"); bare(head) != "" {
				h.Under = append(h.Under, head)
			}
		case l == "":
			h.Lines = append(h.Lines, Line{})
		case strings.IndexByte(" +-", l[0]) >= 0:
			h.Lines = append(h.Lines, Line{Op: l[0], Text: l[1:]})
		default:
			return fmt.Errorf("a line of a hunk begins with a blank, + or -, not like %.80q", l)
		}
	}
	return nil
}

// ranges reads the heading of a hunk, @@ -1,2 +1,3 @@.
func ranges(l string) (at, old, fresh int, ok bool) {
	words := strings.Fields(l)
	if len(words) < 4 || words[0] != "@@" || words[3] != "@@" || !strings.HasPrefix(words[1], "-") || !strings.HasPrefix(words[2], "+") {
		return 0, 0, 0, false
	}
	counts := [2]int{1, 1}
	starts := [2]int{}
	for i, w := range words[1:3] {
		start, count, two := strings.Cut(w[1:], ",")
		var err error
		if starts[i], err = strconv.Atoi(start); err != nil || starts[i] < 0 {
			return 0, 0, 0, false
		}
		if two {
			if counts[i], err = strconv.Atoi(count); err != nil || counts[i] < 0 {
				return 0, 0, 0, false
			}
		}
	}
	return starts[0], counts[0], counts[1], true
}

// unified reads a unified diff.
func (p *parser) unified() error {
	var git *Change // what git's headings say, until --- and +++ or the next file
	flush := func() error {
		if git == nil {
			return nil
		}
		f := *git
		git = nil
		if f.Path == "" {
			return errors.New("the heading above names no file")
		}
		p.files = append(p.files, f)
		return nil
	}
	for p.more() {
		l := p.lines[p.n]
		switch {
		case strings.HasPrefix(l, "diff --git "):
			if err := flush(); err != nil {
				return err
			}
			git = &Change{Kind: Update, Path: twice(strings.TrimPrefix(l, "diff --git "))}
			p.n++
		case strings.HasPrefix(l, "--- ") && p.n+1 < len(p.lines) && strings.HasPrefix(p.lines[p.n+1], "+++ "):
			f := Change{Kind: Update}
			if git != nil {
				f, git = *git, nil
			}
			if err := f.names(l[4:], p.lines[p.n+1][4:]); err != nil {
				return err
			}
			p.n += 2
			p.files = append(p.files, f)
		case strings.HasPrefix(l, "@@ "):
			if len(p.files) == 0 || git != nil {
				return errors.New("a hunk without --- and +++ lines above it")
			}
			if err := p.hunk(); err != nil {
				return err
			}
		case git != nil:
			if err := git.heading(l); err != nil {
				return err
			}
			p.n++
		case len(p.files) > 0 && len(p.last().Hunks) > 0 && strings.TrimSpace(l) != "" && strings.IndexByte(" +-", l[0]) >= 0:
			return fmt.Errorf("%.80q belongs to no hunk", l)
		default:
			p.n++ // words between files
		}
	}
	return flush()
}

// heading reads one of git's lines between diff --git and ---.
func (f *Change) heading(l string) error {
	word := func(prefix string) (string, bool) { return strings.CutPrefix(l, prefix) }
	if v, ok := word("rename from "); ok {
		f.Path = unquoted(v)
	} else if v, ok := word("rename to "); ok {
		f.To = unquoted(v)
	} else if v, ok := word("new file mode "); ok {
		f.Kind = Add
		return f.mode(v)
	} else if _, ok := word("deleted file mode "); ok {
		f.Kind = Delete
	} else if v, ok := word("new mode "); ok {
		return f.mode(v)
	} else if strings.HasPrefix(l, "copy from ") || strings.HasPrefix(l, "GIT binary patch") || strings.HasPrefix(l, "Binary files ") {
		return fmt.Errorf("%.60q: copies and binary files can't be patched", l)
	}
	return nil
}

func (f *Change) mode(s string) error {
	switch x := s == "100755"; {
	case x || s == "100644":
		f.Executable = &x
		return nil
	}
	return fmt.Errorf("mode %.20q: only files of text are patched", s)
}

// names reads what stands behind --- and +++.
func (f *Change) names(from, to string) error {
	from, to = name(from), name(to)
	a, hasA := strings.CutPrefix(from, "a/")
	b, hasB := strings.CutPrefix(to, "b/")
	if (hasA || from == devNull) && (hasB || to == devNull) {
		from, to = orNull(from, a), orNull(to, b)
	}
	switch {
	case from == devNull && to == devNull:
		return errors.New("both names are /dev/null")
	case from == devNull:
		f.Kind, f.Path = Add, to
	case to == devNull:
		f.Kind, f.Path = Delete, from
	case from != to && f.To == "":
		return fmt.Errorf("the names %.200q and %.200q differ; a file is moved by rename from and rename to, or by *** Move to", from, to)
	default:
		f.Path = from
	}
	return nil
}

const devNull = "/dev/null"

func orNull(s, stripped string) string {
	if s == devNull {
		return s
	}
	return stripped
}

func name(s string) string {
	s, _, _ = strings.Cut(s, "\t") // what follows is a time
	return unquoted(strings.TrimRight(s, blanks))
}

// unquoted reads a name that git may have quoted.
func unquoted(s string) string {
	if u, err := strconv.Unquote(s); err == nil && strings.HasPrefix(s, `"`) {
		return u
	}
	return s
}

// twice reads "a/NAME b/NAME", which is all that names an empty file.
func twice(s string) string {
	if n := len(s) / 2; len(s) > 5 && s[n] == ' ' && strings.HasPrefix(s, "a/") && strings.HasPrefix(s[n+1:], "b/") && s[2:n] == s[n+3:] {
		return s[2:n]
	}
	return ""
}

// hunk reads a hunk of a unified diff. What its heading counts decides only whether lines that look
// like the next file's names belong to it.
func (p *parser) hunk() error {
	at, old, fresh, ok := ranges(p.lines[p.n])
	if !ok {
		return fmt.Errorf("%.80q is no heading of a hunk; one looks like @@ -1,2 +1,3 @@", p.lines[p.n])
	}
	h := Hunk{At: at}
	empty := 0 // lines at the end that have not even the blank of a line of context
	for p.n++; p.more(); p.n++ {
		l := p.lines[p.n]
		op := byte(' ')
		if l != "" {
			op = l[0]
		}
		if op == '\\' {
			if n := len(h.Lines); n > 0 {
				h.Lines[n-1].NoEnd = true
			}
			continue
		}
		if l == "-- " && old <= 0 && fresh <= 0 { // a mail's signature follows
			p.n = len(p.lines)
			break
		}
		names := strings.HasPrefix(l, "--- ") && p.n+1 < len(p.lines) && strings.HasPrefix(p.lines[p.n+1], "+++ ")
		if strings.IndexByte(" +-", op) < 0 || (names && (old <= 0 || fresh <= 0)) {
			break
		}
		if op != '+' {
			old--
		}
		if op != '-' {
			fresh--
		}
		if empty++; l != "" {
			empty = 0
			l = l[1:]
		}
		h.Lines = append(h.Lines, Line{Op: op, Text: l})
	}
	h.Lines = h.Lines[:len(h.Lines)-empty] // they may stand between hunks, and as context they change nothing
	if len(h.Lines) == 0 {
		return errors.New("the hunk above is empty")
	}
	p.last().Hunks = append(p.last().Hunks, h)
	return nil
}
