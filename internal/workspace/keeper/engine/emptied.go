package engine

import (
	"context"
	"slices"
	"strings"
	"time"

	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/outage"
	"choir.dev/choiros/internal/workspace/keeper/publish"
	"choir.dev/choiros/internal/workspace/keeper/scan"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// A new file that a crash of the machine emptied, or filled with zeroes, can't be
// restored: no checkpoint holds it. It must not be taken for somebody's work either.
// So a file that looks like one is left out of checkpoints, and reported, until
// somebody writes it again in whatever way, which shows that its content is meant.

// cutWindow is how long before a crash of the machine a file may have been written
// without its content having reached the disk: kernels write back after half a minute,
// and file systems commit some seconds later.
const cutWindow = int64(2 * time.Minute)

// findEmptied finds, after a crash of the machine, the new files that it may have
// emptied: no acknowledged change made them what they are now, and they were made
// shortly before the last sign of activity.
func (e *Engine) findEmptied(ctx context.Context, cap *scan.Capture, meant *publish.Meant) ([]wire.Healed, error) {
	if e.end != outage.Unknown {
		return nil, nil
	}
	var last int64
	for _, l := range e.scanner.Index.All() {
		last = max(last, l.Stat.Ctime)
	}
	for _, t := range cap.Tracked {
		last = max(last, t.Stat.Ctime)
	}
	for _, c := range cap.Changes {
		if st, err := e.scanner.Lstat(c.Path); err == nil {
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
		if c.From.Exists() || !c.To.IsRegular() || e.suspects.Full() {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		st, err := e.scanner.Lstat(c.Path)
		if err != nil || !st.IsRegular() || st.Ctime < max(last-cutWindow, head.Time*1e9) {
			if err := disk.IgnoreUnreachable(err); err != nil {
				return nil, err
			}
			continue
		}
		reason, err := outage.Inspect(e.scanner.Root, c.Path, nil)
		if err != nil {
			return nil, err
		}
		if reason == "" {
			continue
		}
		if is, err := meant.Has(e.scanner.Root, c.Path); err != nil || is {
			if err != nil {
				return nil, err
			}
			continue
		}
		e.suspects.Add(c.Path, reason, st)
		out = append(out, wire.Healed{Path: wire.Path(c.Path), Reason: reason})
	}
	slices.SortFunc(out, func(a, b wire.Healed) int { return strings.Compare(string(a.Path), string(b.Path)) })
	if len(out) == 0 {
		return nil, nil
	}
	return out, e.suspects.Save()
}
