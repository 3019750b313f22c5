package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/scan"
	"choir.dev/choiros/internal/workspace/keeper/wire"
	"golang.org/x/sys/unix"
)

// A new file that the machine's end emptied, or filled with zeroes, can't be put
// back: no checkpoint holds it. It must not become somebody's work either. So
// what looks like one is left out of checkpoints, and said, until somebody
// touches it again, by whatever way: that they mean it is all that it takes.

// doubt is such a file, in the state in which it was found.
type doubt struct {
	Path   wire.Path `json:"path"`
	Reason string    `json:"reason"`
	Stat   disk.Stat `json:"stat"`
}

// cutWindow is how long before the machine's end a file may have been written
// whose content never came to the disk: kernels write back after half a minute,
// and file systems commit some seconds later.
const cutWindow = int64(2 * time.Minute)

// maxDoubted bounds how many are remembered.
const maxDoubted = 10_000

// doubt finds, after an end of the machine without a goodbye, the new files that
// it may have emptied: in the state in which they are nobody has acknowledged
// them, and they were made shortly before the last trace of life.
func (e *Engine) doubt(ctx context.Context, cap *scan.Capture, meant map[string]bool) ([]wire.Healed, error) {
	if e.end != endUnknown {
		return nil, nil
	}
	var last int64
	for _, l := range e.look.Index.All() {
		last = max(last, l.Stat.Ctime)
	}
	for _, t := range cap.Tracked {
		last = max(last, t.Stat.Ctime)
	}
	for _, c := range cap.Changes {
		if st, err := e.look.Lstat(c.Path); err == nil {
			last = max(last, st.Ctime)
		}
	}
	head, err := e.store.Commit(ctx, e.moves.Head)
	if err != nil {
		return nil, err
	}
	last = max(last, head.Time*1e9)
	var out []wire.Healed
	for _, c := range cap.Changes {
		if c.From.Exists() || !c.To.IsRegular() || beneathAny(c.Path, meant) || len(e.doubted) >= maxDoubted {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		st, err := e.look.Lstat(c.Path)
		if err != nil || !st.IsRegular() || st.Ctime < max(last-cutWindow, head.Time*1e9) {
			if err := disk.IgnoreUnreachable(err); err != nil {
				return nil, err
			}
			continue
		}
		reason, err := e.fateOf(c.Path, nil)
		if err != nil {
			return nil, err
		}
		if reason == "" {
			continue
		}
		e.doubted[c.Path] = doubt{wire.Path(c.Path), reason, st}
		out = append(out, wire.Healed{Path: wire.Path(c.Path), Reason: reason})
	}
	slices.SortFunc(out, func(a, b wire.Healed) int { return strings.Compare(string(a.Path), string(b.Path)) })
	if len(out) == 0 {
		return nil, nil
	}
	return out, e.saveDoubts()
}

// beneathAny reports whether p, or a folder that it is in, is among paths.
func beneathAny(p string, paths map[string]bool) bool {
	for ; p != "."; p = wire.ParentDir(p) {
		if paths[p] {
			return true
		}
	}
	return false
}

// withoutDoubted leaves out what is doubted, as long as nobody has touched it.
func (e *Engine) withoutDoubted(cap *scan.Capture, cands []scan.Candidate, write bool) ([]scan.Candidate, error) {
	if len(e.doubted) == 0 {
		return cands, nil
	}
	still := map[string]doubt{}
	kept := cands[:0]
	for _, c := range cands {
		d, ok := e.doubted[c.Path]
		if !ok || c.Prev.Exists() || c.Stat != d.Stat {
			kept = append(kept, c)
			continue
		}
		still[c.Path] = d
		what := "is empty"
		if d.Reason != fateEmptied {
			what = "is full of zeroes"
		}
		cap.Skipped = append(cap.Skipped, wire.Skip{Path: d.Path, Reason: fmt.Sprintf("%s since the machine stopped without a goodbye: write it again, or touch it if that is how it should be", what)})
	}
	if !write || len(still) == len(e.doubted) {
		return kept, nil
	}
	e.doubted = still
	return kept, e.saveDoubts()
}

func (e *Engine) saveDoubts() error {
	if len(e.doubted) == 0 {
		return disk.RemoveIfThere(e.store.Work("doubted.json"))
	}
	list := make([]doubt, 0, len(e.doubted))
	for _, d := range e.doubted {
		list = append(list, d)
	}
	raw, err := json.Marshal(list)
	if err != nil {
		return err
	}
	return disk.WriteDurably(e.store.Work("doubted.json"), raw)
}

func (e *Engine) loadDoubts() error {
	e.doubted = map[string]doubt{}
	var list []doubt
	err := disk.ReadJSON(e.store.Work("doubted.json"), &list)
	var no unix.Errno
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.As(err, &no):
		return err
	case err != nil:
		e.opts.Logger.Warn("the list of files that a power cut may have emptied can't be read", "error", err)
	}
	for _, d := range list {
		e.doubted[string(d.Path)] = d
	}
	return nil
}
