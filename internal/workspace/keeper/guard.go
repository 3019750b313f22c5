package keeper

import (
	"fmt"
	"slices"
	"strings"
)

// guard drops candidates that break a limit; what was captured before keeps its
// last captured content. When there are too many new files it is the largest
// heaps that are left out, so that a stray node_modules never crowds out work.
func (e *Engine) guard(cap *capture, cands []candidate) []candidate {
	lim := e.opts.Limits
	leave := func(c candidate, reason string) {
		cap.skipped = append(cap.skipped, Skip{Path: Path(c.path), Reason: reason})
		if c.prev.exists() {
			c.prev.stat = fileStat{}
			cap.tracked[c.path] = c.prev
		}
	}
	kept := cands[:0]
	var bytes int64
	fresh := 0
	for _, c := range cands {
		if c.stat.isRegular() && c.stat.Size > lim.LargestFile {
			leave(c, fmt.Sprintf("has %d bytes; at most %d are captured", c.stat.Size, lim.LargestFile))
			continue
		}
		if !c.prev.exists() {
			fresh++
		}
		bytes += e.newBytes(c)
		kept = append(kept, c)
	}
	room := max(0, lim.Files-len(cap.tracked)-(len(kept)-fresh))
	if fresh <= room && bytes <= lim.NewBytes {
		return kept
	}
	heaps := map[string]*heap{}
	for _, c := range kept {
		h := heaps[heapOf(c.path)]
		if h == nil {
			h = &heap{name: heapOf(c.path)}
			heaps[h.name] = h
		}
		h.bytes += e.newBytes(c)
		if !c.prev.exists() {
			h.fresh++
		}
	}
	order := make([]*heap, 0, len(heaps))
	for _, h := range heaps {
		order = append(order, h)
	}
	dropped := map[string]bool{}
	drop := func(key func(*heap) int64, over func() bool) {
		slices.SortFunc(order, func(a, b *heap) int {
			if d := key(b) - key(a); d != 0 {
				return map[bool]int{true: 1, false: -1}[d > 0]
			}
			return strings.Compare(a.name, b.name)
		})
		for _, h := range order {
			if !over() {
				return
			}
			if !dropped[h.name] {
				dropped[h.name] = true
				fresh -= h.fresh
				bytes -= h.bytes
				cap.skipped = append(cap.skipped, Skip{
					Path: Path(h.name), Reason: fmt.Sprintf("holds %d new files of %d bytes, more than one checkpoint takes", h.fresh, h.bytes), Files: h.fresh,
				})
			}
		}
	}
	drop(func(h *heap) int64 { return int64(h.fresh) }, func() bool { return fresh > room })
	drop(func(h *heap) int64 { return h.bytes }, func() bool { return bytes > lim.NewBytes })
	out := kept[:0]
	for _, c := range kept {
		if !dropped[heapOf(c.path)] {
			out = append(out, c)
			continue
		}
		if len(cap.dropped) < maxListed {
			cap.dropped = append(cap.dropped, c.path)
		}
		if c.prev.exists() {
			c.prev.stat = fileStat{}
			cap.tracked[c.path] = c.prev
		}
	}
	return out
}

// newBytes is what a candidate counts for. Of a large file nobody knows yet how
// much is new; it is bounded by what chunks may take in all.
func (e *Engine) newBytes(c candidate) int64 {
	if e.chunked(c.stat) {
		return 0
	}
	return c.stat.Size
}

type heap struct {
	name  string
	fresh int
	bytes int64
}

// heapOf names the heap a path belongs to: the outermost directory that a
// package manager or build fills, else the directory it is in.
func heapOf(p string) string {
	for i, part := range strings.Split(p, "/") {
		switch part {
		case "node_modules", "vendor", "target", "dist", "build", "__pycache__", ".venv", "venv", ".cache", ".npm", ".cargo", ".gradle":
			return strings.Join(strings.Split(p, "/")[:i+1], "/")
		}
	}
	return parentDir(p)
}
