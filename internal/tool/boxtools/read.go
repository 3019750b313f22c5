package boxtools

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"choir.dev/choiros/contract"
)

const maxLine = 2000 // bytes of a line that are shown

type readArgs struct {
	Path   string `json:"path"`
	Offset int    `json:"offset"`
	Limit  int    `json:"limit"`
}

// read shows whole lines from a line on, as many as a loop passes on uncut, and says which lines of how
// many they are.
func (b *Box) read(_ context.Context, a readArgs) (Result, error) {
	p, err := b.look(a.Path)
	if err != nil {
		return Result{}, err
	}
	data, _, err := b.load(p)
	if err != nil {
		return Result{}, err
	}
	media := http.DetectContentType(data)
	picture := slices.Contains([]string{"image/png", "image/jpeg", "image/gif", "image/webp"}, media) && binary(data) // a text may begin with GIF89a
	switch {
	case picture && len(data) > maxPicture:
		return Result{}, refuse("%s is a picture of %d bytes; at most %d are shown, so make a smaller one of it with a command", p.name, len(data), maxPicture)
	case !picture && binary(data):
		return Result{}, refuse("%s is binary (%d bytes)", p.name, len(data))
	}
	if p.root == b.root {
		b.saw(p.rel, data)
	}
	if picture {
		return Result{OK: true, Output: fmt.Sprintf("(a picture: %s, %s, %d bytes)", p.name, media, len(data)), Pictures: [][]byte{data}}, nil
	}
	if len(data) == 0 {
		return Result{OK: true, Output: "(empty file)"}, nil
	}
	first, limit := max(a.Offset, 1), a.Limit
	if limit <= 0 {
		limit = 2000
	}
	lines := strings.SplitAfter(string(data), "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	if first > len(lines) {
		return Result{}, refuse("%s has %d lines; there is no line %d", p.name, len(lines), first)
	}
	var out strings.Builder
	res := Result{OK: true}
	n := first
	for ; n <= len(lines) && n < first+limit; n++ {
		line := strings.TrimSuffix(strings.TrimSuffix(lines[n-1], "\n"), "\r")
		if len(line) > maxLine {
			res.Truncated = true
			shown := contract.Clip(line, maxLine)
			line = fmt.Sprintf("%s … (%d more bytes of this line are not shown; bash with cut -b %d- shows them)", shown, len(line)-len(shown), len(shown)+1)
		}
		if out.Len()+len(line) > maxShown-300 {
			break
		}
		fmt.Fprintf(&out, "%6d\t%s\n", n, line)
	}
	switch ends := strings.HasSuffix(string(data), "\r\n"); {
	case first == 1 && n > len(lines):
		fmt.Fprintf(&out, "(all %d lines%s)\n", len(lines), crlf(ends))
	case n > len(lines):
		fmt.Fprintf(&out, "(lines %d to %d of %d, the last one%s)\n", first, n-1, len(lines), crlf(ends))
	default:
		res.Truncated = true
		fmt.Fprintf(&out, "(lines %d to %d of %d%s; the others are not shown, read on with offset %d)\n", first, n-1, len(lines), crlf(ends), n)
	}
	res.Output = out.String()
	return res, nil
}

func crlf(ends bool) string {
	if ends {
		return ", which end in CRLF"
	}
	return ""
}
