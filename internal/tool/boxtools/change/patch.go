package change

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Kind is what a patch does to a file.
type Kind string

// What a patch does to a file.
const (
	Add    Kind = "add"
	Update Kind = "update"
	Delete Kind = "delete"
)

// Change is what a patch does to one file.
type Change struct {
	Kind Kind
	Path string
	To   string // where it is moved to, or ""
	// Executable is what the patch makes of the mode, or nil.
	Executable *bool
	Hunks      []Hunk
}

// Hunk is a change of some lines.
type Hunk struct {
	At    int      // the number that the patch gives its first line, from 1; 0: none
	Under []string // lines above it, that say where it belongs
	Lines []Line
	End   bool // it is at the end of the file
}

// Line is a line of a hunk.
type Line struct {
	Op    byte // ' ', '-' or '+'
	Text  string
	NoEnd bool // the file ends with it, without a line end
}

func (h Hunk) side(ops string) []string {
	var out []string
	for _, l := range h.Lines {
		if strings.IndexByte(ops, l.Op) >= 0 {
			out = append(out, l.Text)
		}
	}
	return out
}

// placed is a hunk and where it goes.
type placed struct {
	Hunk
	at    int
	width int
	loose bool
}

// Apply returns the text of the file after the patch. All hunks are placed in the text as it is
// before, so none depends on what another adds. Its errors are sentences for whoever wrote the
// patch.
func (f Change) Apply(text string) (string, error) {
	lines := split(text)
	var hunks []placed
	for i, h := range f.Hunks {
		p, err := place(lines, text, h)
		if err != nil {
			return "", fmt.Errorf("hunk %d of %d: %w", i+1, len(f.Hunks), err)
		}
		hunks = append(hunks, p)
	}
	slices.SortStableFunc(hunks, func(a, b placed) int { return a.at - b.at })
	var out []line
	done := 0
	for _, p := range hunks {
		if p.at < done {
			return "", fmt.Errorf("two hunks change the same lines, at line %d", p.at+1)
		}
		out = append(out, lines[done:p.at]...)
		fresh, err := p.lines(lines)
		if err != nil {
			return "", err
		}
		out = append(out, fresh...)
		done = p.at + p.width
	}
	out = append(out, lines[done:]...)
	end := endOf(nil, lines)
	var b strings.Builder
	for i, l := range out {
		b.WriteString(l.text)
		if l.end == "" && i < len(out)-1 {
			l.end = end // it was the last line, and is not any more
		}
		b.WriteString(l.end)
	}
	return b.String(), nil
}

// place finds the one place of a hunk.
func place(lines []line, text string, h Hunk) (placed, error) {
	want := h.side(" -")
	if len(want) == 0 {
		at, err := insertion(lines, h)
		return placed{Hunk: h, at: at}, err
	}
	at := find(lines, want, same)
	if one, ok := h.choose(lines, at, len(want)); ok {
		return placed{Hunk: h, at: one, width: len(want)}, nil
	}
	if len(at) > 1 {
		return placed{}, fmt.Errorf("its lines are there %s; add lines of context until they are at one place only", times(plusOne(at)))
	}
	if !allBlank(want) {
		at = find(lines, want, bare)
	}
	switch len(at) {
	case 0:
		return placed{}, fmt.Errorf("its lines are not there%s", nearest(text, strings.Join(want, "\n")))
	case 1:
		return placed{Hunk: h, at: at[0], width: len(want), loose: true}, nil
	}
	return placed{}, fmt.Errorf("its lines are not there as they are written, and but for white space they are there %s; give them to the byte", times(plusOne(at)))
}

// choose picks the place that the hunk itself names, if it names exactly one: the only one, the one at
// its line number, the only one under its heading, or the one at the file's end.
func (h Hunk) choose(lines []line, at []int, width int) (int, bool) {
	if len(at) == 1 {
		return at[0], true
	}
	if len(at) > manyPlaces {
		return 0, false // not all of them are known
	}
	if h.At > 0 && slices.Contains(at, h.At-1) {
		return h.At - 1, true
	}
	if h.End {
		at = slices.DeleteFunc(slices.Clone(at), func(i int) bool { return i+width != len(lines) })
	} else if len(h.Under) > 0 {
		at = h.under(lines, at)
	} else {
		return 0, false
	}
	if len(at) == 1 {
		return at[0], true
	}
	return 0, false
}

// under keeps the places below the hunk's headings, each of which reaches to the next line that is
// not indented more than it is.
func (h Hunk) under(lines []line, at []int) []int {
	from, to := 0, len(lines)
	spans := [][2]int{{from, to}}
	for _, heading := range h.Under {
		var next [][2]int
		for _, s := range spans {
			for i := s[0]; i < s[1]; i++ {
				if bare(lines[i].text) != bare(heading) {
					continue
				}
				end := i + 1
				for deep := len(indentOf(lines[i].text)); end < s[1]; end++ {
					if t := lines[end].text; bare(t) != "" && len(indentOf(t)) <= deep {
						break
					}
				}
				next = append(next, [2]int{i, end})
			}
		}
		spans = next
	}
	return slices.DeleteFunc(slices.Clone(at), func(i int) bool {
		return !slices.ContainsFunc(spans, func(s [2]int) bool { return s[0] <= i && i < s[1] })
	})
}

// insertion is where a hunk that only adds lines puts them.
func insertion(lines []line, h Hunk) (int, error) {
	switch {
	case len(lines) == 0 || h.End:
		return len(lines), nil
	case len(h.Under) > 0:
		heads := find(lines, h.Under[len(h.Under)-1:], bare)
		if len(heads) == 1 {
			return heads[0] + 1, nil
		}
		return 0, fmt.Errorf("it only adds lines, and its heading is there %d times", len(heads))
	}
	return 0, errors.New("it has no line of context, so nobody can tell where it belongs; give some lines around it")
}

// lines are the lines that stand at the hunk's place afterwards. Lines of context stay as the file
// has them.
func (p placed) lines(lines []line) ([]line, error) {
	there := lines[p.at : p.at+p.width]
	end := endOf(there, lines)
	fresh := p.side("+")
	if p.loose {
		var err error
		if fresh, err = indented(p.side(" -"), lines, p.at, fresh); err != nil {
			return nil, err
		}
	}
	var out []line
	for _, l := range p.Lines {
		switch l.Op {
		case ' ':
			out, there = append(out, there[0]), there[1:]
		case '-':
			there = there[1:]
		case '+':
			next := line{text: fresh[0], end: end}
			if strings.HasSuffix(next.text, "\r") && end == "\r\n" {
				next.text = strings.TrimSuffix(next.text, "\r")
			}
			if fresh = fresh[1:]; l.NoEnd {
				next.end = ""
			}
			out = append(out, next)
		}
	}
	return out, nil
}
