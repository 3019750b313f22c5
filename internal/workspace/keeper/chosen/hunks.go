package chosen

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/nested"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// hunk is a place at which two files differ: lines [old, oldEnd) of the one are [new, newEnd) of
// the other, counted from 0. They begin and end with up to three lines that both have.
type hunk struct {
	id                       string
	old, oldEnd, new, newEnd int
	text                     []byte // of the patch, one line each
}

// Change is what Tree changes of Base, two trees of a store.
type Change struct {
	Store      *gitstore.Store
	Base, Tree string
	Paths      []gitstore.Change
}

// Between compares two trees.
func Between(ctx context.Context, store *gitstore.Store, base, tree string) (Change, error) {
	paths, err := store.Differences(ctx, base, tree)
	return Change{store, base, tree, paths}, err
}

// List describes what is changed with its hunks, within bounds.
func (b Change) List(ctx context.Context) (wire.HunksReply, error) {
	reply := wire.HunksReply{Files: []wire.HunkFile{}}
	text, diffs, seen := 0, 0, map[string]bool{}
	for _, c := range b.Paths {
		at := c.Path
		git, inside := nested.In(c.Path)
		if inside {
			at = git
		}
		switch {
		case seen[at], emptied(c) && b.beneath(c.Path):
			continue
		case len(reply.Files) == wire.MaxHunkFiles:
			reply.More++
			continue
		}
		seen[at] = true
		f := wire.HunkFile{Path: wire.Path(at), Op: op(c)}
		if inside {
			f.Op, f.Plain = "modified", "repository"
		} else if f.Plain = plain(c); f.Plain == "" {
			if diffs++; diffs > wire.MaxHunkDiffs || text >= wire.MaxHunkText {
				f.Plain = "cut"
			} else if err := b.fill(ctx, c, &f, &text); err != nil {
				return reply, err
			}
		}
		reply.Files = append(reply.Files, f)
	}
	return reply, nil
}

// fill lists the hunks of a changed file.
func (b Change) fill(ctx context.Context, c gitstore.Change, f *wire.HunkFile, text *int) error {
	d, why, err := b.compare(ctx, c)
	if f.Plain = why; err != nil || why != "" {
		return err
	}
	for _, h := range d.hunks {
		for line := range bytes.Lines(h.text) {
			if len(line) > wire.MaxHunkLine { // nobody takes what they were not shown
				f.Plain, f.Hunks = "cut", nil
				return nil
			}
		}
		shown := wire.Hunk{ID: h.id, Old: place(h.old, h.oldEnd), OldLines: h.oldEnd - h.old, New: place(h.new, h.newEnd), NewLines: h.newEnd - h.new, Text: strings.ToValidUTF8(string(h.text), "\uFFFD")}
		if *text += len(shown.Text) + 5*strings.Count(shown.Text, "<") + 5*strings.Count(shown.Text, ">") + 5*strings.Count(shown.Text, "&") + 160; *text > wire.MaxHunkText {
			f.Plain, f.Hunks = "cut", nil
			return nil
		}
		f.Hunks = append(f.Hunks, shown)
	}
	return nil
}

// place is where lines from a to b are, as a patch says it.
func place(a, b int) int {
	if a == b {
		return a
	}
	return a + 1
}

// emptied reports whether a change is that an empty folder is none any more.
func emptied(c gitstore.Change) bool { return c.From.Mode == wire.ModeEmptyDir && !c.To.Exists() }

// beneath reports whether something else is changed beneath a path.
func (b Change) beneath(p string) bool {
	return slices.ContainsFunc(b.Paths, func(c gitstore.Change) bool { return strings.HasPrefix(c.Path, p+"/") && c.To.Exists() })
}

func op(c gitstore.Change) string {
	switch {
	case !c.From.Exists():
		return "added"
	case !c.To.Exists():
		return "deleted"
	case c.From.IsRegular() && c.To.IsRegular() && c.From.Holds() == c.To.Holds():
		return "mode"
	}
	return "modified"
}

// plain is why a change has no hunks, as far as its entries tell.
func plain(c gitstore.Change) string {
	for _, en := range []gitstore.Entry{c.From, c.To} {
		switch {
		case !en.Exists():
		case en.Mode == wire.ModeSymlink:
			return "link"
		case !en.IsRegular():
			return "folder"
		case en.Chunked:
			return "large"
		}
	}
	if op(c) == "mode" {
		return "mode"
	}
	return ""
}

// difference is how a file was changed: what its lines were and are, and where they differ.
type difference struct {
	from, to [][]byte
	hunks    []hunk
}

// compare compares the contents of a change that has hunks; why says that it has none.
func (b Change) compare(ctx context.Context, c gitstore.Change) (d difference, why string, err error) {
	for _, side := range []struct {
		en    gitstore.Entry
		lines *[][]byte
	}{{c.From, &d.from}, {c.To, &d.to}} {
		if !side.en.Exists() {
			continue
		}
		content, small, err := b.Store.SmallContent(ctx, side.en)
		switch {
		case err != nil:
			return d, "", err
		case !small:
			return d, "large", nil
		case bytes.IndexByte(content, 0) >= 0:
			return d, "binary", nil
		}
		*side.lines = bytes.SplitAfter(content, []byte("\n"))
		if last := len(*side.lines) - 1; len((*side.lines)[last]) == 0 {
			*side.lines = (*side.lines)[:last]
		}
	}
	if !c.From.Exists() || !c.To.Exists() {
		d.hunks = []hunk{{oldEnd: len(d.from), newEnd: len(d.to), text: whole(d)}}
	} else if d.hunks, why, err = b.diff(ctx, c.Path); err != nil || why != "" {
		return d, why, err
	}
	for i := range d.hunks {
		if err := d.name(c.Path, &d.hunks[i]); err != nil {
			return d, "", err
		}
	}
	return d, "", nil
}

// whole is the text of a file that was added or deleted.
func whole(d difference) []byte {
	sign, lines := byte('+'), d.to
	if len(d.from) > 0 {
		sign, lines = '-', d.from
	}
	var b bytes.Buffer
	for _, l := range lines {
		b.WriteByte(sign)
		b.Write(bytes.TrimSuffix(l, []byte("\n")))
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// name gives a hunk its id, which says at which lines of which file it is and what it changes
// there. It is an error if the files have no such lines.
func (d difference) name(path string, h *hunk) error {
	if h.old < 0 || h.new < 0 || h.oldEnd > len(d.from) || h.newEnd > len(d.to) || h.old > h.oldEnd || h.new > h.newEnd {
		return fault.New("keeper.hunks", fault.Internal, "", fmt.Errorf("git named lines of %q that it does not have", wire.Short(path)))
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%d %s\n%d %d %d %d\n", len(path), path, h.old, h.oldEnd, h.new, h.newEnd)
	for _, lines := range [][][]byte{d.from[h.old:h.oldEnd], d.to[h.new:h.newEnd]} {
		for _, l := range lines {
			fmt.Fprintf(sum, "%d ", len(l))
			sum.Write(l)
		}
	}
	h.id = hex.EncodeToString(sum.Sum(nil)[:8])
	return nil
}

var header = regexp.MustCompile(`^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@`)

// maxPatch bounds the patch of one file, in bytes.
const maxPatch = 16 << 20

// diff has git compare a file in the two trees, by the means with which all trees are compared. What
// attributes call binary has no hunks.
func (b Change) diff(ctx context.Context, path string) (hunks []hunk, why string, err error) {
	d, err := b.Store.Diff(ctx, b.Base, b.Tree, wire.DiffRequest{Paths: []wire.Path{wire.Path(path)}, MaxBytes: maxPatch})
	if err != nil {
		return nil, "", err
	}
	if d.Truncated || len(d.Changes) != 1 {
		return nil, "cut", nil
	}
	for line := range bytes.Lines([]byte(d.Diff)) {
		m := header.FindSubmatch(line)
		switch {
		case m != nil:
			var h hunk
			h.old, h.oldEnd, err = span(m[1], m[2])
			if err == nil {
				h.new, h.newEnd, err = span(m[3], m[4])
			}
			if err != nil {
				return nil, "", err
			}
			hunks = append(hunks, h)
		case len(hunks) > 0 && line[0] != '\\': // “No newline at end of file” is in the lines' ends
			h := &hunks[len(hunks)-1]
			h.text = append(h.text, line...)
		}
	}
	switch {
	case len(hunks) == 0:
		return nil, "binary", nil
	case len(hunks) > wire.MaxFileHunks:
		return nil, "cut", nil
	}
	return hunks, "", nil
}

// span reads where a patch says that lines are, as their bounds from 0.
func span(start, count []byte) (a, b int, err error) {
	a, err = strconv.Atoi(string(start))
	n := 1
	if err == nil && len(count) > 0 {
		n, err = strconv.Atoi(string(count))
	}
	if n > 0 {
		a--
	}
	return a, a + n, err
}
