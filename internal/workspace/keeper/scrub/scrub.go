package scrub

import (
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/chunks"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/heal"
	"choir.dev/choiros/internal/workspace/keeper/names"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Scrubber reads the history of one store, a slice at a time.
type Scrubber struct {
	store  *gitstore.Store
	heal   *heal.Healer
	head   func() string                // the newest commit
	asides func() ([]wire.Aside, error) // records that were set aside
	logger *slog.Logger

	mu   sync.Mutex // one slice at a time; guards what follows
	pass *pass      // nil between passes
}

// Options say what is scrubbed.
type Options struct {
	Store  *gitstore.Store
	Heal   *heal.Healer
	Head   func() string                // the newest commit
	Asides func() ([]wire.Aside, error) // records that were set aside, which are reported with the damage
	Logger *slog.Logger
}

// New returns a Scrubber of a store. No pass is under way.
func New(o Options) *Scrubber {
	return &Scrubber{store: o.Store, heal: o.Heal, head: o.Head, asides: o.Asides, logger: o.Logger}
}

// pass is a pass under way.
type pass struct {
	queue   []item           // still to be read; the next one is last
	seen    map[key]struct{} // everything that was or is to be read
	objects int              // how many were read
	bytes   int64            // how many they had
}

// item is an object, or a chunk, to be checked.
type item struct {
	id, kind, commit, path string // commit and path: where it was found first
	at                     int64  // of a chunk: its offset in its file
	size                   uint32 // of a chunk, in bytes
}

// key is the beginning of a raw id, and whether it is read as a manifest or as a chunk: a
// blob may be somebody's file and a manifest as well.
type key struct {
	id   [20]byte
	kind byte
}

// maxQueue limits the memory of a pass, in objects; of a longer history that many are
// scrubbed, newest first.
const maxQueue = 4_000_000

// chunk is the kind of an item that is not a git object.
const chunk = "chunk"

// Scrub reads a slice of a pass.
func (sr *Scrubber) Scrub(ctx context.Context, req wire.ScrubRequest) (wire.ScrubReply, error) {
	const op = "keeper.Scrub"
	if req.Objects <= 0 {
		req.Objects = 2000
	}
	if req.Bytes <= 0 {
		req.Bytes = 64 << 20
	}
	if req.Millis <= 0 {
		req.Millis = 2000
	}
	sr.mu.Lock()
	defer sr.mu.Unlock()
	if sr.pass == nil && !req.Restart {
		sr.pass = sr.resume(ctx)
	}
	if sr.pass == nil || req.Restart {
		p, err := sr.begin(ctx)
		if err != nil {
			return wire.ScrubReply{}, fault.Wrap(op, err)
		}
		sr.pass = p
	}
	p := sr.pass
	var reply wire.ScrubReply
	until := time.Now().Add(time.Duration(req.Millis) * time.Millisecond)
	bytesBefore, objectsBefore := p.bytes, p.objects
	for len(p.queue) > 0 && p.objects-objectsBefore < req.Objects && p.bytes-bytesBefore < req.Bytes && time.Now().Before(until) {
		it := p.queue[len(p.queue)-1]
		p.queue = p.queue[:len(p.queue)-1]
		d, err := sr.check(ctx, p, it)
		if err != nil {
			p.queue = append(p.queue, it)
			return reply, fault.Wrap(op, err)
		}
		if d != nil && it.kind == chunk && d.Healed == "" {
			gone, err := sr.letGoMeanwhile(ctx, it.commit)
			if err != nil {
				return reply, fault.Wrap(op, err)
			}
			if gone {
				d = nil
			}
		}
		switch {
		case d == nil:
		case len(reply.Damaged) < wire.MaxSkips:
			reply.Damaged = append(reply.Damaged, *d)
		default:
			reply.More++
		}
	}
	aside, err := sr.asides()
	if err != nil {
		return reply, fault.Wrap(op, err)
	}
	reply.Aside = aside
	reply.Objects, reply.Bytes, reply.Done = p.objects, p.bytes, len(p.queue) == 0
	if reply.Done {
		sr.pass = nil
	}
	return reply, fault.Wrap(op, sr.keep(reply.Done))
}

// begin begins a pass at everything that a ref names; the history is last in the queue and
// so is read first.
func (sr *Scrubber) begin(ctx context.Context) (*pass, error) {
	out, err := sr.store.Git(ctx, nil, "for-each-ref", "--format=%(objectname) %(refname)")
	if err != nil && len(out) == 0 {
		return nil, err
	}
	p := &pass{seen: map[key]struct{}{}}
	head := sr.head()
	for line := range strings.Lines(string(out)) {
		id, ref, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || !wire.IsHex(id) || id == head || strings.HasPrefix(ref, gitstore.DamagedRefs) {
			continue
		}
		p.add(item{id: id, kind: "commit", commit: id})
	}
	if head != "" {
		p.add(item{id: head, kind: "commit", commit: head})
	}
	return p, nil
}

func (it item) key() (k key) {
	_, _ = hex.Decode(k.id[:], []byte(it.id[:min(40, len(it.id))])) // the id of a damaged object equals no other
	if it.kind == gitstore.KindManifest || it.kind == chunk {
		k.kind = it.kind[0]
	}
	return k
}

func (p *pass) add(it item) {
	key := it.key()
	if _, ok := p.seen[key]; ok || len(it.id) != 40 && it.kind != chunk || len(p.seen) >= maxQueue {
		return
	}
	p.seen[key] = struct{}{}
	p.queue = append(p.queue, it)
}

// check checks one object, and queues what it names.
func (sr *Scrubber) check(ctx context.Context, p *pass, it item) (*wire.Damage, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if it.kind == chunk {
		p.objects++
		p.bytes += int64(it.size)
		return sr.checkChunk(ctx, it)
	}
	content, size, reason, err := sr.store.Check(ctx, it.id, it.kind)
	if err != nil {
		return nil, err
	}
	p.objects++
	p.bytes += size
	var d *wire.Damage
	if reason != "" {
		d = &wire.Damage{ID: it.id, Kind: it.kind, Commit: it.commit, Path: wire.Path(it.path), Reason: reason}
		if d.Healed, err = sr.heal.Object(ctx, it.kind, it.id, it.path); err != nil {
			return nil, err
		}
		if d.Healed == "" {
			return d, nil
		}
		if content, _, reason, err = sr.store.Check(ctx, it.id, it.kind); err != nil || reason != "" {
			d.Healed = ""
			return d, err
		}
	}
	switch it.kind {
	case "commit":
		tree, parents := gitstore.CommitNames(content)
		for _, c := range parents {
			p.add(item{id: c, kind: "commit", commit: c})
		}
		p.add(item{id: tree, kind: "tree", commit: it.commit})
	case "tree":
		for _, t := range gitstore.TreeNames(content) {
			sub := item{id: t.ID, kind: "blob", commit: it.commit, path: wire.JoinPath(it.path, names.Unescape(t.Name))}
			if t.Mode == "40000" {
				sub.kind = "tree"
			} else if names.IsChunked(t.Name) {
				name, _ := names.UnescapeFile(t.Name)
				sub.kind, sub.path = gitstore.KindManifest, wire.JoinPath(it.path, name)
			} else if t.Name == names.EmptyMarker {
				sub.path = it.path
			}
			p.add(sub)
		}
	case gitstore.KindManifest:
		m, err := chunks.DecodeManifest(content)
		if err != nil {
			return &wire.Damage{ID: it.id, Kind: "blob", Commit: it.commit, Path: wire.Path(it.path), Reason: err.Error()}, nil
		}
		var at int64
		for _, c := range m.Chunks {
			p.add(item{id: c.Name(), kind: chunk, commit: it.commit, path: it.path, at: at, size: c.Len})
			at += int64(c.Len)
		}
	}
	return d, nil
}

// checkChunk checks one chunk and, if it is damaged, restores it.
func (sr *Scrubber) checkChunk(ctx context.Context, it item) (*wire.Damage, error) {
	c, ok := chunks.Named(it.id, it.size)
	if !ok {
		return nil, nil
	}
	reason := chunkReason(sr.store.Chunks.Check(c))
	if reason == "" {
		return nil, ctx.Err()
	}
	d := &wire.Damage{ID: it.id, Kind: it.kind, Commit: it.commit, Path: wire.Path(it.path), Reason: reason}
	var err error
	d.Healed, err = sr.heal.Chunk(ctx, c, it.path, it.at)
	return d, err
}

func chunkReason(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, chunks.ErrMissing):
		return chunks.ErrMissing.Error()
	case errors.Is(err, chunks.ErrOther):
		return chunks.ErrOther.Error()
	}
	return "can't be read"
}
