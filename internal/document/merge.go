package document

import "strings"

// Conflict is a place where two changes to one base disagree. Lines count from
// 1 in the base; Base, Ours and Theirs are the text there in each version.
type Conflict struct {
	Line   int    `json:"line"`
	Base   string `json:"base"`
	Ours   string `json:"ours"`
	Theirs string `json:"theirs"`
}

// Merge applies two changes of base, ours and theirs, line by line. Changes
// that overlap or touch must be equal, or they conflict; the merged text then
// has theirs at that place.
func Merge(base, ours, theirs string) (merged string, conflicts []Conflict) {
	switch {
	case ours == theirs, theirs == base:
		return ours, nil
	case ours == base:
		return theirs, nil
	}
	lines := newInterner()
	b, o, t := lines.split(base), lines.split(ours), lines.split(theirs)
	return lines.merge(b, o, t)
}

// interner gives each distinct line a number, so that lines compare fast.
type interner struct {
	ids  map[string]int
	text []string
}

func newInterner() *interner { return &interner{ids: map[string]int{}} }

func (in *interner) split(s string) []int {
	var out []int
	for line := range strings.SplitAfterSeq(s, "\n") {
		if line == "" {
			continue
		}
		id, ok := in.ids[line]
		if !ok {
			id = len(in.text)
			in.ids[line] = id
			in.text = append(in.text, line)
		}
		out = append(out, id)
	}
	return out
}

func (in *interner) join(ids []int) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(in.text[id])
	}
	return b.String()
}

// hunk replaces base[from:to] by other[start:end].
type hunk struct{ from, to, start, end int }

func (in *interner) merge(base, ours, theirs []int) (string, []Conflict) {
	a, b := diff(base, ours), diff(base, theirs)
	var out strings.Builder
	var conflicts []Conflict
	at := 0 // in base
	for len(a) > 0 || len(b) > 0 {
		// A region of base that the next hunks of either side cover, grown until no other
		// hunk overlaps or touches it.
		lo := len(base) + 1
		if len(a) > 0 {
			lo = a[0].from
		}
		if len(b) > 0 {
			lo = min(lo, b[0].from)
		}
		hi, na, nb := lo, 0, 0
		for grown := true; grown; {
			grown = false
			for na < len(a) && a[na].from <= hi {
				hi, na, grown = max(hi, a[na].to), na+1, true
			}
			for nb < len(b) && b[nb].from <= hi {
				hi, nb, grown = max(hi, b[nb].to), nb+1, true
			}
		}
		out.WriteString(in.join(base[at:lo]))
		mine, yours := region(ours, a[:na], lo, hi), region(theirs, b[:nb], lo, hi)
		switch {
		case nb == 0:
			out.WriteString(in.join(mine))
		case na == 0, equal(mine, yours):
			out.WriteString(in.join(yours))
		default:
			conflicts = append(conflicts, Conflict{Line: lo + 1, Base: in.join(base[lo:hi]), Ours: in.join(mine), Theirs: in.join(yours)})
			out.WriteString(in.join(yours))
		}
		at, a, b = hi, a[na:], b[nb:]
	}
	out.WriteString(in.join(base[at:]))
	return out.String(), conflicts
}

// region is a side's text for base[lo:hi], given its hunks there.
func region(side []int, hunks []hunk, lo, hi int) []int {
	if len(hunks) == 0 {
		return nil // the side did not change it, and then the caller does not ask
	}
	first, last := hunks[0], hunks[len(hunks)-1]
	return side[first.start-(first.from-lo) : last.end+(hi-last.to)]
}

func equal(a, b []int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// maxEdits bounds the work of diff, in lines changed. Beyond it the texts have little in
// common, and all that differs counts as one change.
const maxEdits = 1500

// diff finds a shortest edit script from a to b (Myers' greedy algorithm), as
// hunks in order.
func diff(a, b []int) []hunk {
	pre := 0
	for pre < len(a) && pre < len(b) && a[pre] == b[pre] {
		pre++
	}
	post := 0
	for post < len(a)-pre && post < len(b)-pre && a[len(a)-1-post] == b[len(b)-1-post] {
		post++
	}
	x, y := a[pre:len(a)-post], b[pre:len(b)-post]
	if len(x) == 0 && len(y) == 0 {
		return nil
	}
	hunks := script(x, y)
	for i := range hunks {
		hunks[i].from += pre
		hunks[i].to += pre
		hunks[i].start += pre
		hunks[i].end += pre
	}
	return hunks
}

func script(a, b []int) []hunk {
	n, m := len(a), len(b)
	whole := []hunk{{0, n, 0, m}}
	if n == 0 || m == 0 {
		return whole
	}
	limit := min(n+m, maxEdits)
	v := make([]int, 2*limit+2) // furthest x on diagonal k, at v[k+limit]
	var trace [][]int           // v[-d..d] after each d
	for d := 0; d <= limit; d++ {
		for k := -d; k <= d; k += 2 {
			var x int
			if k == -d || k != d && v[k-1+limit] < v[k+1+limit] {
				x = v[k+1+limit]
			} else {
				x = v[k-1+limit] + 1
			}
			y := x - k
			for x < n && y < m && a[x] == b[y] {
				x, y = x+1, y+1
			}
			v[k+limit] = x
			if x >= n && y >= m {
				return walk(trace, d, n, m)
			}
		}
		trace = append(trace, append([]int(nil), v[limit-d:limit+d+1]...))
	}
	return whole
}

// walk reads the edit script back from the furthest points of each step.
func walk(trace [][]int, d, x, y int) []hunk {
	var out []hunk // last first
	edit := func(fromX, toX, fromY, toY int) {
		if n := len(out); n > 0 && out[n-1].from == toX && out[n-1].start == toY {
			out[n-1].from, out[n-1].start = fromX, fromY
			return
		}
		out = append(out, hunk{fromX, toX, fromY, toY})
	}
	for ; d > 0; d-- {
		prev := trace[d-1] // index k+(d-1)
		at := func(k int) int { return prev[k+d-1] }
		k := x - y
		down := k == -d || k != d && at2(prev, k-1, d) < at2(prev, k+1, d)
		if down {
			px := at(k + 1)
			py := px - (k + 1)
			edit(px, px, py, py+1)
			x, y = px, py
		} else {
			px := at(k - 1)
			py := px - (k - 1)
			edit(px, px+1, py, py)
			x, y = px, py
		}
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out
}

// at2 is the furthest point on diagonal k after step d-1, -1 outside it.
func at2(prev []int, k, d int) int {
	if i := k + d - 1; i >= 0 && i < len(prev) {
		return prev[i]
	}
	return -1
}
