package change

import (
	"errors"
	"fmt"
	"strings"
)

// Edit replaces Old by New: at the one place where Old is, or with All everywhere.
type Edit struct {
	Old string `json:"old"`
	New string `json:"new"`
	All bool   `json:"all"`
}

// Done says what an edit did.
type Done struct {
	Count int // of places
	Line  int // of the first one
	Loose bool
}

// Apply returns the text after the edit. Its errors are sentences for whoever wrote the edit,
// and say where in the text what they looked for may be.
func (e Edit) Apply(text string) (string, Done, error) {
	if e.Old == "" {
		return "", Done{}, errors.New("old is empty")
	}
	if e.Old == e.New {
		return "", Done{}, errors.New("old and new are the same")
	}
	if strings.Contains(text, e.Old) {
		fresh := e.New
		if allCRLF(text) {
			fresh = ended(fresh, "\r\n")
		}
		return e.exactly(text, text, e.Old, fresh)
	}
	if plain, old := unix(text), unix(e.Old); strings.Contains(plain, old) {
		// Only the line ends differ.
		pos, i := positions(text, plain), strings.Index(plain, old)
		end := "\n"
		if start := pos(i); strings.Contains(text[start:pos(i+len(old))], "\r\n") {
			end = "\r\n"
		}
		return e.exactly(text, plain, old, ended(unix(e.New), end))
	}
	if e.All {
		return "", Done{}, fmt.Errorf("old is not there, and all replaces only what is the same to the byte%s", nearest(text, e.Old))
	}
	return e.loosely(text)
}

// positions returns the function that maps offsets in plain, which is text with plain line ends,
// to offsets in text. It is called with offsets that do not fall.
func positions(text, plain string) func(int) int {
	if len(text) == len(plain) {
		return func(n int) int { return n }
	}
	i, k := 0, 0
	return func(n int) int {
		for ; k < n; k++ {
			if strings.HasPrefix(text[i:], "\r\n") {
				i++
			}
			i++
		}
		return i
	}
}

// exactly replaces old in plain, which is text but for its line ends.
func (e Edit) exactly(text, plain, old, fresh string) (string, Done, error) {
	var at []int
	step := 1 // two places that overlap are two places
	if e.All {
		step = len(old)
	}
	for from := 0; from <= len(plain) && (e.All || len(at) <= manyPlaces); {
		i := strings.Index(plain[from:], old)
		if i < 0 {
			break
		}
		at = append(at, from+i)
		from += i + step
	}
	if len(at) > 1 && !e.All {
		numbers := make([]int, len(at))
		for i, n := range at {
			numbers[i] = lineAt(plain, n)
		}
		return "", Done{}, fmt.Errorf("old is there %s; add lines around it until it is at one place only, or set all", times(numbers))
	}
	if grown := len(at) * (len(fresh) - len(old)); grown > maxGrowth {
		return "", Done{}, fmt.Errorf("the file would grow by %d bytes; at most %d are added at once", grown, maxGrowth)
	}
	var out strings.Builder
	last, pos := 0, positions(text, plain)
	for _, n := range at {
		out.WriteString(text[last:pos(n)])
		out.WriteString(fresh)
		last = pos(n + len(old))
	}
	out.WriteString(text[last:])
	return out.String(), Done{Count: len(at), Line: lineAt(plain, at[0])}, nil
}

func lineAt(s string, offset int) int { return 1 + strings.Count(s[:offset], "\n") }

// maxGrowth bounds what one edit adds to a text, in bytes.
const maxGrowth = 8 << 20

// loosely replaces whole lines that are old's but for white space at their ends.
func (e Edit) loosely(text string) (string, Done, error) {
	old, fresh := unix(e.Old), unix(e.New)
	final := strings.HasSuffix(old, "\n")
	want := strings.Split(strings.TrimSuffix(old, "\n"), "\n")
	lines := split(text)
	var at []int
	if !allBlank(want) {
		at = find(lines, want, bare)
	}
	switch {
	case len(at) == 0:
		return "", Done{}, fmt.Errorf("old is not there%s", nearest(text, e.Old))
	case len(at) > 1:
		return "", Done{}, fmt.Errorf("old is not there as it is written, and but for white space it is there %s; give it to the byte, with lines around it until it is at one place only", times(plusOne(at)))
	}
	place := lines[at[0] : at[0]+len(want)]
	first, last := place[0], place[len(place)-1]
	done := Done{Count: 1, Line: at[0] + 1, Loose: true}
	if final && fresh == "" {
		return text[:first.at] + text[last.at+len(last.text)+len(last.end):], done, nil
	}
	if final {
		fresh = strings.TrimSuffix(fresh, "\n")
	}
	in, err := indented(want, lines, at[0], strings.Split(fresh, "\n"))
	if err != nil {
		return "", Done{}, err
	}
	return text[:first.at] + strings.Join(in, endOf(place, lines)) + text[last.at+len(last.text):], done, nil
}

// indented gives new lines the indentation that the file's own lines have at the place.
func indented(written []string, lines []line, at int, fresh []string) ([]string, error) {
	place := lines[at : at+len(written)]
	file := make([]string, len(place))
	for i, l := range place {
		file[i] = l.text
	}
	no := errors.New("old is there but for its indentation, and how to indent what is new can't be told from that; give old as the file has it" + show(lines, at, at+len(written)))
	rule := shift(written, file, fresh)
	if rule == nil {
		return nil, no
	}
	out := make([]string, len(fresh))
	for i, l := range fresh {
		var ok bool
		if out[i], ok = rule(l); !ok {
			return nil, no
		}
	}
	return out, nil
}
