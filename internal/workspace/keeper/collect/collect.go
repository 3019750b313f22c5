package collect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"strings"
	"sync"
	"time"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/chunks"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/publish"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// chunkGrace is for how long a chunk that nothing names is kept since it was last stored:
// what was captured, such as for a dry run of a restore, may be needed again.
const chunkGrace = 24 * time.Hour

// collectAtOnce is how many chunks are removed while changes have to wait.
const collectAtOnce = 500

// Collector removes chunks of one store.
type Collector struct {
	store *gitstore.Store
	moves *publish.Mover
	alone func(func() error) error // runs what must not run during a change

	mu   sync.Mutex // one collection at a time; guards what follows
	main collected  // what is known of the main line
}

// Options say what is collected.
type Options struct {
	Store *gitstore.Store
	Moves *publish.Mover // its plans and trash name chunks
	// Alone runs what must not run during a change of the tree or its history; it refuses
	// where the history can't be read.
	Alone func(func() error) error
}

// New collects the chunks of a store.
func New(o Options) *Collector {
	return &Collector{store: o.Store, moves: o.Moves, alone: o.Alone}
}

// collected is what the main line needs, up to tip.
type collected struct {
	tip       string              // a commit, "" before the first
	manifests map[string]struct{} // that its history has
	chunks    chunks.Set          // that these name
}

// Collect removes the chunks that nothing needs.
func (c *Collector) Collect(ctx context.Context) (wire.CollectReply, error) {
	const op = "keeper.Collect"
	c.mu.Lock()
	defer c.mu.Unlock()
	var reply wire.CollectReply
	if any, err := c.store.Chunks.Any(); err != nil || !any {
		return reply, fault.Wrap(op, err)
	}
	// Most of the history is walked before anybody has to wait.
	if _, err := c.needed(ctx, &reply); err != nil {
		return reply, fault.Wrap(op, err)
	}
	for {
		var more bool
		err := c.alone(func() (err error) {
			more, err = c.some(ctx, &reply)
			return err
		})
		if err != nil || !more {
			return reply, fault.Wrap(op, err)
		}
	}
}

func (c *Collector) some(ctx context.Context, reply *wire.CollectReply) (more bool, err error) {
	need, err := c.needed(ctx, reply)
	if err != nil {
		return false, err
	}
	reply.Kept = 0
	before := reply.Removed
	err = c.store.Chunks.Each(func(name string, st fs.FileInfo) error {
		if reply.Removed-before == collectAtOnce {
			more = true
			return fs.SkipAll
		}
		gone := false
		ref, ok := chunks.Named(name, 1)
		if _, wanted := need[ref.Sum]; ok && !wanted {
			var err error
			if gone, err = c.store.Chunks.Remove(name, chunkGrace); err != nil {
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
func (c *Collector) needed(ctx context.Context, reply *wire.CollectReply) (chunks.Set, error) {
	out, err := c.store.Git(ctx, nil, "for-each-ref", "--format=%(objectname) %(refname)")
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
	if err := c.bringMain(ctx, main, reply); err != nil {
		return nil, err
	}
	need := maps.Clone(c.main.chunks)
	revs := others
	if main != "" {
		revs = append(revs, "^"+main)
	}
	found := map[string]struct{}{}
	if len(others) > 0 {
		if found, err = c.store.ManifestsOf(ctx, reply, revs...); err != nil {
			return nil, err
		}
	}
	if err := c.manifestsElsewhere(found); err != nil {
		return nil, err
	}
	for id := range found {
		if _, known := c.main.manifests[id]; known {
			continue
		}
		if err := c.store.AddChunks(ctx, need, id); err != nil {
			return nil, err
		}
	}
	return need, nil
}

// bringMain updates what is known of the main line to its newest commit.
func (c *Collector) bringMain(ctx context.Context, main string, reply *wire.CollectReply) error {
	if c.main.tip == main && c.main.chunks != nil {
		return nil
	}
	next := collected{tip: main, manifests: map[string]struct{}{}, chunks: chunks.Set{}}
	revs := []string{main}
	if was := c.main.tip; was != "" && main != "" {
		if _, err := c.store.Git(ctx, nil, "merge-base", "--is-ancestor", was, main); err == nil {
			next.manifests, next.chunks = maps.Clone(c.main.manifests), maps.Clone(c.main.chunks)
			revs = append(revs, "^"+was)
		} // otherwise the history was repaired, and all of it is walked again
	}
	if main != "" {
		found, err := c.store.ManifestsOf(ctx, reply, revs...)
		if err != nil {
			return err
		}
		for id := range found {
			if _, known := next.manifests[id]; known {
				continue
			}
			if err := c.store.AddChunks(ctx, next.chunks, id); err != nil {
				return err
			}
			next.manifests[id] = struct{}{}
		}
	}
	c.main = next
	return nil
}

// manifestsElsewhere adds the manifests that plans and the trash name.
func (c *Collector) manifestsElsewhere(found map[string]struct{}) error {
	add := func(en gitstore.Entry) {
		if en.Chunked {
			found[en.ID] = struct{}{}
		}
	}
	ids, err := c.moves.Plans()
	if err != nil {
		return err
	}
	for _, id := range ids {
		p, err := c.moves.LoadPlan(id)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was removed in the meantime
		}
		if err != nil {
			return err
		}
		for _, s := range p.Ops {
			add(s.From)
			add(s.To)
		}
		r, _, err := c.moves.LoadResult(id)
		if err != nil {
			return err
		}
		for _, en := range r.Seen {
			add(en)
		}
	}
	entries, err := os.ReadDir(c.moves.Trash())
	if err != nil {
		return disk.IgnoreGone(err)
	}
	for _, en := range entries {
		m, err := c.moves.Entry(en.Name())
		if err := disk.IgnoreGone(err); err != nil {
			return fmt.Errorf("entry %s of the trash: %w", en.Name(), err)
		}
		add(m.New)
	}
	return nil
}
