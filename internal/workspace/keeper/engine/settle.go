package engine

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/outage"
	"choir.dev/choiros/internal/workspace/keeper/publish"
	"choir.dev/choiros/internal/workspace/keeper/scan"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// What a program writes is only in memory until it is synced, and a power cut can leave
// such a file empty, or full of zeroes. So what a checkpoint captures is synced before the
// checkpoint counts, and what a command wrote before its end is reported (Settle). If it
// happens all the same, as with a program that was running, the file is restored from the
// newest checkpoint (Heal).

// syncPaths makes the files and links at paths, and their names, durable. A missing one, or
// one that can't be opened, needs nothing.
func (e *Engine) syncPaths(paths []string) error {
	all := map[string]bool{}
	for _, p := range paths {
		all[p] = true
		for d := wire.ParentDir(p); d != "." && !all[d]; d = wire.ParentDir(d) {
			all[d] = true
		}
		if len(all) > disk.SyncEachUpTo {
			return unix.Syncfs(e.scanner.Root)
		}
	}
	if len(all) == 0 {
		return nil
	}
	all["."] = true
	var g errgroup.Group
	g.SetLimit(8)
	for p := range all {
		g.Go(func() error { return disk.SyncBeneath(e.scanner.Root, p) })
	}
	return g.Wait()
}

// settled records that files which a program emptied, or made empty, were synced: they are
// meant to be empty, unless a newer checkpoint exists.
type settled struct {
	Head  string          `json:"head"`
	Empty []wire.Path     `json:"empty"`
	Files []publish.Inode `json:"files,omitempty"` // the same, wherever they are moved
}

// Settle makes everything durable that was written since the newest checkpoint and that the
// next one would capture.
func (e *Engine) Settle(ctx context.Context) error {
	const op = "keeper.Settle"
	e.mu.Lock()
	defer e.mu.Unlock()
	e.crash("settling")
	return fault.Wrap(op, e.settleTree(ctx))
}

func (e *Engine) settleTree(ctx context.Context) error {
	now, err := e.scanner.FileClock()
	if err != nil {
		return err
	}
	cap, cands, err := e.scanner.Scan(ctx, now, false)
	if err != nil {
		return err
	}
	s := settled{Head: e.moves.Head}
	for _, c := range cands {
		if e.suspects.Has(c.Path) || !c.Stat.IsRegular() || c.Prev.ID == gitstore.EmptyBlob {
			continue
		}
		fate := outage.Emptied
		if c.Stat.Size > 0 {
			if fate, err = outage.Inspect(e.scanner.Root, c.Path, nil); err != nil {
				return err
			}
		}
		if fate != "" {
			in, err := e.moves.InodeOf(c.Path)
			if err != nil {
				return err
			}
			s.Empty, s.Files = append(s.Empty, wire.Path(c.Path)), append(s.Files, in)
		}
	}
	paths := cap.Touched // the names of removed files must be durably gone too
	if err := errors.Join(e.syncPaths(paths), e.moves.SettleActs()); err != nil || len(s.Empty) == 0 {
		return err
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return disk.WriteDurably(e.store.Work("settled.json"), raw)
}

// Heal restores files that a crash of the machine emptied or filled with zeroes. It does so
// once after an opening that found such a crash, and only while no program works in the
// tree.
func (e *Engine) Heal(ctx context.Context) (wire.HealReply, error) {
	const op = "keeper.Heal"
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.whole(); err != nil {
		return wire.HealReply{}, fault.Wrap(op, err)
	}
	if e.end == outage.Clean || e.moves.Head == "" {
		e.end = outage.Clean
		return wire.HealReply{}, nil
	}
	if err := e.moves.RollForward(ctx); err != nil {
		return wire.HealReply{}, fault.Wrap(op, err)
	}
	reply := wire.HealReply{Checkpoint: e.moves.Head}
	meant, err := e.emptiedOnPurpose(ctx)
	if err != nil {
		return reply, fault.Wrap(op, err)
	}
	cap, err := e.scanner.Capture(ctx, false)
	if err != nil {
		return reply, fault.Wrap(op, err)
	}
	for p, t := range cap.Tracked {
		if e.scanner.Index.At(p).Entry == t.Entry {
			e.scanner.Index.Set(p, t) // the next checkpoint need not read it again
		}
	}
	if reply.Suspect, err = e.findEmptied(ctx, cap, meant); err != nil {
		return reply, fault.Wrap(op, err)
	}
	for _, c := range cap.Changes {
		if !c.From.IsRegular() || !c.To.IsRegular() || c.From.Holds() == c.To.Holds() {
			continue
		}
		is, err := meant.Has(e.scanner.Root, c.Path)
		if err = errors.Join(err, ctx.Err()); err != nil {
			return reply, fault.Wrap(op, err)
		}
		if is {
			continue
		}
		h, lost, err := e.healFile(ctx, c.Path, e.scanner.Index.At(c.Path))
		switch {
		case err != nil:
			return reply, fault.Wrap(op, err)
		case h.Reason == "":
		case lost:
			reply.Lost = append(reply.Lost, h)
		default:
			reply.Healed = append(reply.Healed, h)
		}
	}
	byPath := func(a, b wire.Healed) int { return strings.Compare(string(a.Path), string(b.Path)) }
	slices.SortFunc(reply.Healed, byPath)
	slices.SortFunc(reply.Lost, byPath)
	e.end = outage.Clean
	return reply, nil
}

// healFile restores one file if its content is such as no program left it.
func (e *Engine) healFile(ctx context.Context, p string, t scan.Tracked) (h wire.Healed, lost bool, err error) {
	st, err := e.scanner.Lstat(p)
	if err != nil {
		return h, false, disk.IgnoreUnreachable(err)
	}
	if !st.IsRegular() {
		return h, false, nil
	}
	h.Path = wire.Path(p)
	if h.Reason, err = outage.Inspect(e.scanner.Root, p, nil); err != nil {
		return h, false, err
	}
	was, ok, berr := e.store.SmallContent(ctx, t.Entry)
	if h.Reason == outage.Emptied && e.end == outage.Apart {
		h.Reason = "" // it was emptied while nothing was being written, so it is meant
		return h, false, nil
	}
	if h.Reason == "" && berr == nil && ok && st.Size > 4096 {
		h.Reason, err = outage.Inspect(e.scanner.Root, p, was)
	}
	if err != nil || h.Reason == "" {
		return h, false, err
	}
	if h.Reason == outage.Zeroed && berr == nil && ok && len(strings.Trim(string(was), "\x00")) == 0 {
		h.Reason = "" // it was all zeroes before
		return h, false, nil
	}
	dir, err := disk.OpenDir(e.scanner.Root, wire.ParentDir(p))
	if err != nil {
		return h, false, err
	}
	defer unix.Close(dir)
	e.scanner.Invalidate()
	tmp := e.store.Work("incoming-" + publish.Token())
	if err := e.store.Materialize(ctx, tmp, t.Entry, true); err != nil {
		return h, true, disk.RemoveIfThere(tmp) // the copy is damaged as well, which is reported
	}
	m, err := e.moves.Intend(tmp, publish.TrashEntry{Trashed: wire.Trashed{Path: wire.Path(p)}, Op: "heal", New: t.Entry}, nil)
	if err != nil {
		return h, false, err
	}
	if _, _, err := e.moves.Swap(m, dir, path.Base(p), false); err != nil {
		return h, false, err
	}
	h.Trash = m.ID
	return h, false, errors.Join(e.moves.MarkLogged(m.ID), unix.Fsync(dir))
}

// emptiedOnPurpose are the files that an acknowledged change emptied, or made empty, since HEAD,
// and folders in which that is true of all.
func (e *Engine) emptiedOnPurpose(ctx context.Context) (*publish.Meant, error) {
	head, err := e.store.Commit(ctx, e.moves.Head)
	if err != nil {
		return nil, err
	}
	meant, err := e.moves.MeantSince(head.Time * 1000)
	if err != nil {
		return nil, err
	}
	var s settled
	if err := disk.ReadJSON(e.store.Work("settled.json"), &s); err == nil && s.Head == e.moves.Head {
		for _, p := range s.Empty {
			meant.AddPath(string(p))
		}
		for _, in := range s.Files {
			meant.AddFile(in)
		}
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		e.opts.Logger.WarnContext(ctx, "the list of what was meant to be empty can't be read", "error", err)
	}
	return meant, nil
}
