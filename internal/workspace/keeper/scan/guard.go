package scan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// guard removes candidates that break a limit; what was captured before keeps its last
// captured content. If there are too many new files, those in the largest folders (heaps)
// are left out, so that a stray node_modules never displaces somebody's work.
func (s *Scanner) guard(cap *Capture, cands []Candidate) []Candidate {
	lim := s.limits
	leave := func(c Candidate, reason string) {
		cap.Skipped = append(cap.Skipped, wire.Skip{Path: wire.Path(c.Path), Reason: reason})
		if c.Prev.Exists() {
			c.Prev.Stat = disk.Stat{}
			cap.Tracked[c.Path] = c.Prev
			cap.held++
		}
	}
	kept := cands[:0]
	var bytes int64
	fresh, news := 0, 0
	for _, c := range cands {
		if c.Stat.IsRegular() && c.Stat.Size > lim.LargestFile {
			leave(c, fmt.Sprintf("has %d bytes; at most %d are captured", c.Stat.Size, lim.LargestFile))
			continue
		}
		if !c.Prev.Exists() {
			fresh++
			news++
		}
		bytes += s.newBytes(c)
		kept = append(kept, c)
	}
	var skippedDirs []*skippedDir
	if cap.Scan != nil {
		skippedDirs = cap.Scan.known
	}
	for _, l := range skippedDirs {
		fresh, bytes = fresh+l.files, bytes+l.bytes
	}
	if cap.Scan != nil && cap.Scan.all {
		bytes = 0
	}
	room := max(0, lim.Files-cap.held-(len(kept)-news))
	if fresh <= room && bytes <= lim.NewBytes {
		return kept
	}
	return s.leaveHeaps(cap, kept, skippedDirs, load{fresh, room, bytes})
}

// load is how far a limit is exceeded.
type load struct {
	fresh int // new files
	room  int // for so many
	bytes int64
}

// leaveHeaps leaves out the largest heaps until the rest fits.
func (s *Scanner) leaveHeaps(cap *Capture, kept []Candidate, skippedDirs []*skippedDir, l load) []Candidate {
	lim, fresh, room, bytes := s.limits, l.fresh, l.room, l.bytes
	heaps := map[string]*heap{}
	heapAt := func(p string) *heap {
		name := heapOf(p)
		h := heaps[name]
		if h == nil {
			h = &heap{name: name}
			heaps[name] = h
		}
		return h
	}
	for _, l := range skippedDirs {
		heapAt(l.dir+"/.").add(l.files, l.bytes, true)
	}
	for _, c := range kept {
		heapAt(c.Path).add(1, s.newBytes(c), !c.Prev.Exists())
	}
	order := make([]*heap, 0, len(heaps))
	for _, h := range heaps {
		order = append(order, h)
	}
	largest := func(key func(*heap) int64) []*heap {
		slices.SortFunc(order, func(a, b *heap) int {
			return cmp.Or(cmp.Compare(key(b), key(a)), strings.Compare(a.name, b.name))
		})
		return order
	}
	// If there are too many files, the new ones are left out; if too many bytes, all that
	// changed.
	cap.tooMany = map[string]bool{}
	for _, h := range largest(func(h *heap) int64 { return int64(h.fresh) }) {
		if fresh <= room {
			break
		}
		if h.fresh > 0 {
			cap.tooMany[h.name] = true
			fresh, bytes = fresh-h.fresh, bytes-h.freshBytes
			h.bytes -= h.freshBytes
			cap.leaveHeap(h, h.fresh, fmt.Sprintf("%d new files", h.fresh), fmt.Sprintf(", or raise storage.files, which is %d", lim.Files))
		}
	}
	tooLarge := map[string]bool{}
	for _, h := range largest(func(h *heap) int64 { return h.bytes }) {
		if bytes <= lim.NewBytes {
			break
		}
		tooLarge[h.name] = true
		bytes -= h.bytes
		if !cap.tooMany[h.name] {
			cap.leaveHeap(h, h.files, fmt.Sprintf("%d files of %d bytes that are new or changed", h.files, h.bytes), "")
		}
	}
	out := kept[:0]
	for _, c := range kept {
		name := heapOf(c.Path)
		if !tooLarge[name] && (c.Prev.Exists() || !cap.tooMany[name]) {
			out = append(out, c)
			continue
		}
		cap.drop(c.Path)
		if c.Prev.Exists() {
			c.Prev.Stat = disk.Stat{}
			cap.Tracked[c.Path] = c.Prev
		}
	}
	return out
}

// leaveHeap leaves out files of a heap, and says why, or what would help.
func (cap *Capture) leaveHeap(h *heap, files int, what, or string) {
	cap.Skipped = append(cap.Skipped, wire.Skip{
		Path: wire.Path(h.name), Files: files,
		Reason: fmt.Sprintf("holds %s, more than one checkpoint takes: remove them, have a .gitignore name them%s", what, or),
	})
}

// newBytes is the size that a candidate counts for. How much of a large file is new is not
// known yet; the limit on chunks bounds it.
func (s *Scanner) newBytes(c Candidate) int64 {
	if s.store.Chunked(c.Stat) || c.Stat.IsDir() {
		return 0
	}
	return c.Stat.Size
}

type heap struct {
	name              string
	files, fresh      int   // that changed, and of them new ones
	bytes, freshBytes int64 // of them
}

func (h *heap) add(files int, bytes int64, fresh bool) {
	h.files, h.bytes = h.files+files, h.bytes+bytes
	if fresh {
		h.fresh, h.freshBytes = h.fresh+files, h.freshBytes+bytes
	}
}

// heapOf is the heap that a path belongs to: the outermost directory that a package manager
// or build fills, otherwise its own directory.
func heapOf(p string) string {
	for i, part := range strings.Split(p, "/") {
		switch part {
		case "node_modules", "vendor", "target", "dist", "build", "__pycache__", ".venv", "venv", ".cache", ".npm", ".cargo", ".gradle":
			return strings.Join(strings.Split(p, "/")[:i+1], "/")
		}
	}
	return wire.ParentDir(p)
}
