package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"strings"
	"time"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/chunks"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Chunks are removed when nothing needs them any more. What is needed is found
// from the history, not counted: every commit that a ref reaches, every plan
// that is kept and every entry of the trash. Where one of these can't be read
// nothing is removed, for nobody knows what it needs.

// chunkGrace is for how long a chunk that nothing names is kept since it was last
// stored: what was looked at (such as what a dry run of a restore captured) may be asked for again.
const chunkGrace = 24 * time.Hour

// collectAtOnce is how many chunks are removed while everybody waits.
const collectAtOnce = 500

// collected is what the main line, up to tip, needs.
type collected struct {
	tip       string
	manifests map[string]struct{}
	chunks    chunks.Set
}

// Collect removes the chunks that nothing needs.
func (e *Engine) Collect(ctx context.Context) (wire.CollectReply, error) {
	const op = "keeper.Collect"
	e.collectMu.Lock()
	defer e.collectMu.Unlock()
	var reply wire.CollectReply
	if any, err := e.store.Chunks.Any(); err != nil || !any {
		return reply, fault.Wrap(op, err)
	}
	// Most of the walking is done before anybody has to wait for it.
	if _, err := e.needed(ctx, &reply); err != nil {
		return reply, fault.Wrap(op, err)
	}
	for {
		more, err := e.collectSome(ctx, &reply)
		if err != nil || !more {
			return reply, fault.Wrap(op, err)
		}
	}
}

func (e *Engine) collectSome(ctx context.Context, reply *wire.CollectReply) (more bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.whole(); err != nil {
		return false, err
	}
	need, err := e.needed(ctx, reply)
	if err != nil {
		return false, err
	}
	reply.Kept = 0
	before := reply.Removed
	err = e.store.Chunks.Each(func(name string, st fs.FileInfo) error {
		if reply.Removed-before == collectAtOnce {
			more = true
			return fs.SkipAll
		}
		gone := false
		c, ok := chunks.Named(name, 1)
		if _, wanted := need[c.Sum]; ok && !wanted {
			var err error
			if gone, err = e.store.Chunks.Remove(name, chunkGrace); err != nil {
				return err
			}
		}
		if !gone {
			reply.Kept++
			return ctx.Err()
		}
		reply.Removed++
		reply.Bytes += st.Size()
		return nil
	})
	if errors.Is(err, fs.SkipAll) {
		err = nil
	}
	return more, err
}

// needed returns the chunks that anything needs.
func (e *Engine) needed(ctx context.Context, reply *wire.CollectReply) (chunks.Set, error) {
	out, err := e.store.Git(ctx, nil, "for-each-ref", "--format=%(objectname) %(refname)")
	if err != nil {
		return nil, err
	}
	main, others := "", []string{}
	for line := range strings.Lines(string(out)) {
		id, ref, ok := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case !ok || !wire.IsHex(id):
			return nil, fmt.Errorf("git for-each-ref answered %q", wire.Short(line))
		case ref == gitstore.Main:
			main = id
		default:
			others = append(others, id)
		}
	}
	if err := e.collectMain(ctx, main, reply); err != nil {
		return nil, err
	}
	need := maps.Clone(e.collected.chunks)
	revs := others
	if main != "" {
		revs = append(revs, "^"+main)
	}
	found := map[string]struct{}{}
	if len(others) > 0 {
		if found, err = e.store.ManifestsOf(ctx, reply, revs...); err != nil {
			return nil, err
		}
	}
	if err := e.manifestsElsewhere(found); err != nil {
		return nil, err
	}
	for id := range found {
		if _, known := e.collected.manifests[id]; known {
			continue
		}
		if err := e.store.AddChunks(ctx, need, id); err != nil {
			return nil, err
		}
	}
	return need, nil
}

// collectMain brings what is known of the main line up to its newest commit.
func (e *Engine) collectMain(ctx context.Context, main string, reply *wire.CollectReply) error {
	if e.collected.tip == main && e.collected.chunks != nil {
		return nil
	}
	next := collected{tip: main, manifests: map[string]struct{}{}, chunks: chunks.Set{}}
	revs := []string{main}
	if was := e.collected.tip; was != "" && main != "" {
		if _, err := e.store.Git(ctx, nil, "merge-base", "--is-ancestor", was, main); err == nil {
			next.manifests, next.chunks = maps.Clone(e.collected.manifests), maps.Clone(e.collected.chunks)
			revs = append(revs, "^"+was)
		} // else the history was repaired: all of it is walked again
	}
	if main != "" {
		found, err := e.store.ManifestsOf(ctx, reply, revs...)
		if err != nil {
			return err
		}
		for id := range found {
			if _, known := next.manifests[id]; known {
				continue
			}
			if err := e.store.AddChunks(ctx, next.chunks, id); err != nil {
				return err
			}
			next.manifests[id] = struct{}{}
		}
	}
	e.collected = next
	return nil
}

// manifestsElsewhere adds what plans and the trash name.
func (e *Engine) manifestsElsewhere(found map[string]struct{}) error {
	add := func(en gitstore.Entry) {
		if en.Chunked {
			found[en.ID] = struct{}{}
		}
	}
	ids, err := e.moves.Plans()
	if err != nil {
		return err
	}
	for _, id := range ids {
		p, err := e.moves.LoadPlan(id)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was let go of
		}
		if err != nil {
			return err
		}
		for _, s := range p.Ops {
			add(s.From)
			add(s.To)
		}
		r, _, err := e.moves.LoadResult(id)
		if err != nil {
			return err
		}
		for _, en := range r.Seen {
			add(en)
		}
	}
	entries, err := os.ReadDir(e.moves.Trash())
	if err != nil {
		return disk.IgnoreGone(err)
	}
	for _, en := range entries {
		m, err := e.moves.Entry(en.Name())
		if err := disk.IgnoreGone(err); err != nil {
			return fmt.Errorf("entry %s of the trash: %w", en.Name(), err)
		}
		add(m.New)
	}
	return nil
}
