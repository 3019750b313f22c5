package keeper

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"strings"
	"time"

	"choir.dev/choiros/internal/fault"
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

type chunkSet map[[sha256.Size]byte]struct{}

// collected is what the main line, up to tip, needs.
type collected struct {
	tip       string
	manifests map[string]struct{}
	chunks    chunkSet
}

// Collect removes the chunks that nothing needs.
func (e *Engine) Collect(ctx context.Context) (wire.CollectReply, error) {
	const op = "keeper.Collect"
	e.collectMu.Lock()
	defer e.collectMu.Unlock()
	var reply wire.CollectReply
	if any, err := e.chunks.any(); err != nil || !any {
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
	err = e.chunks.each(func(name string, st fs.FileInfo) error {
		if reply.Removed-before == collectAtOnce {
			more = true
			return fs.SkipAll
		}
		gone := false
		c, ok := chunkNamed(name, 1)
		if _, wanted := need[c.sum]; ok && !wanted {
			var err error
			if gone, err = e.chunks.remove(name, chunkGrace); err != nil {
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

// any reports whether there are chunks at all.
func (s *chunkStore) any() (found bool, err error) {
	err = s.each(func(string, fs.FileInfo) error {
		found = true
		return fs.SkipAll
	})
	if errors.Is(err, fs.SkipAll) {
		err = nil
	}
	return found, err
}

// remove removes a chunk if nobody stored it again meanwhile.
func (s *chunkStore) remove(name string, grace time.Duration) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, err := os.Lstat(s.path(name))
	if err != nil || time.Since(st.ModTime()) < grace {
		return false, ignoreGone(err)
	}
	if err := os.Remove(s.path(name)); err != nil {
		return false, err
	}
	s.taken -= st.Size()
	return true, nil
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// needed returns the chunks that anything needs.
func (e *Engine) needed(ctx context.Context, reply *wire.CollectReply) (chunkSet, error) {
	out, err := e.git(ctx, nil, "for-each-ref", "--format=%(objectname) %(refname)")
	if err != nil {
		return nil, err
	}
	main, others := "", []string{}
	for line := range strings.Lines(string(out)) {
		id, ref, ok := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case !ok || !isHex(id):
			return nil, fmt.Errorf("git for-each-ref answered %q", wire.Short(line))
		case ref == branch:
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
		if found, err = e.manifestsOf(ctx, reply, revs...); err != nil {
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
		if err := e.addChunks(ctx, need, id); err != nil {
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
	next := collected{tip: main, manifests: map[string]struct{}{}, chunks: chunkSet{}}
	revs := []string{main}
	if was := e.collected.tip; was != "" && main != "" {
		if _, err := e.git(ctx, nil, "merge-base", "--is-ancestor", was, main); err == nil {
			next.manifests, next.chunks = maps.Clone(e.collected.manifests), maps.Clone(e.collected.chunks)
			revs = append(revs, "^"+was)
		} // else the history was repaired: all of it is walked again
	}
	if main != "" {
		found, err := e.manifestsOf(ctx, reply, revs...)
		if err != nil {
			return err
		}
		for id := range found {
			if _, known := next.manifests[id]; known {
				continue
			}
			if err := e.addChunks(ctx, next.chunks, id); err != nil {
				return err
			}
			next.manifests[id] = struct{}{}
		}
	}
	e.collected = next
	return nil
}

// addChunks adds what a manifest names.
func (e *Engine) addChunks(ctx context.Context, to chunkSet, id string) error {
	m, err := e.manifest(ctx, id)
	if err != nil {
		return fmt.Errorf("manifest %s: %w", id, err)
	}
	for _, c := range m.chunks {
		to[c.sum] = struct{}{}
	}
	return nil
}

// manifestsOf lists the manifests that stand in the trees of commits. A commit is
// compared with its parents: what it has of them is theirs. It is asked by name,
// for a manifest may be a file of somebody's as well.
func (e *Engine) manifestsOf(ctx context.Context, reply *wire.CollectReply, revs ...string) (map[string]struct{}, error) {
	found := map[string]struct{}{}
	commits, err := e.git(ctx, nil, append(append([]string{"rev-list", "--end-of-options"}, revs...), "--")...)
	if err != nil || len(commits) == 0 {
		return found, err
	}
	reply.Commits += bytes.Count(commits, []byte{'\n'})
	raw, err := e.git(ctx, bytes.NewReader(commits), "diff-tree", "--stdin", "--root", "-r", "-m", "-z", "--raw", "--no-abbrev", "--no-commit-id", "--no-renames",
		"--", ":(top,glob)**/*"+chunkSuffix)
	if err != nil {
		return nil, err
	}
	fields := bytes.Split(raw, []byte{0})
	for i := 0; i+1 < len(fields); i += 2 {
		meta := strings.Fields(string(fields[i]))
		if len(meta) != 5 || meta[0][0] != ':' {
			return nil, fmt.Errorf("git diff-tree answered %q", wire.Short(string(fields[i])))
		}
		if id := meta[3]; strings.Trim(id, "0") != "" {
			found[id] = struct{}{}
		}
	}
	return found, nil
}

// manifestsElsewhere adds what plans and the trash name.
func (e *Engine) manifestsElsewhere(found map[string]struct{}) error {
	add := func(en Entry) {
		if en.Chunked {
			found[en.ID] = struct{}{}
		}
	}
	ids, err := e.plans()
	if err != nil {
		return err
	}
	for _, id := range ids {
		p, err := e.loadPlan(id)
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
		r, _, err := e.loadResult(id)
		if err != nil {
			return err
		}
		for _, en := range r.Seen {
			add(en)
		}
	}
	entries, err := os.ReadDir(e.trash())
	if err != nil {
		return ignoreGone(err)
	}
	for _, en := range entries {
		m, err := e.entry(en.Name())
		if err := ignoreGone(err); err != nil {
			return fmt.Errorf("entry %s of the trash: %w", en.Name(), err)
		}
		add(m.New)
	}
	return nil
}
