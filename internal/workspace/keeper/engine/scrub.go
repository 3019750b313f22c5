package engine

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/chunks"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/names"
	"choir.dev/choiros/internal/workspace/keeper/scan"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// A disk that gives back other bytes than it was given is not noticed by git
// until somebody needs them. A scrub reads everything that the history reaches,
// newest first, and compares it with its name; it goes a slice at a time. What
// is damaged is made again from what still holds it, and the rest is named.

// scrubPass is a pass under way. seen holds the raw ids of what was read.
type scrubPass struct {
	queue   []scrubItem
	seen    map[scrubKey]struct{}
	objects int
	bytes   int64
}

// scrubItem is an object, or a chunk, to be checked.
type scrubItem struct {
	id, kind, commit, path string
	at                     int64 // of a chunk: where it is in its file
	size                   uint32
}

// scrubKey is the beginning of a raw id, and whether it is read as a manifest or
// as a chunk: a blob may be a file of somebody's and a manifest too.
type scrubKey struct {
	id   [20]byte
	kind byte
}

// maxScrubQueue bounds what a pass remembers, in objects; a history beyond it is
// scrubbed as far as that, newest first.
const maxScrubQueue = 4_000_000

// Scrub does a slice of a pass.
func (e *Engine) Scrub(ctx context.Context, req wire.ScrubRequest) (wire.ScrubReply, error) {
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
	e.scrubMu.Lock()
	defer e.scrubMu.Unlock()
	if e.scrub == nil && !req.Restart {
		e.scrub = e.resumeScrub(ctx)
	}
	if e.scrub == nil || req.Restart {
		p, err := e.newScrub(ctx)
		if err != nil {
			return wire.ScrubReply{}, fault.Wrap(op, err)
		}
		e.scrub = p
	}
	p := e.scrub
	var reply wire.ScrubReply
	until := time.Now().Add(time.Duration(req.Millis) * time.Millisecond)
	bytesBefore, objectsBefore := p.bytes, p.objects
	for len(p.queue) > 0 && p.objects-objectsBefore < req.Objects && p.bytes-bytesBefore < req.Bytes && time.Now().Before(until) {
		it := p.queue[len(p.queue)-1]
		p.queue = p.queue[:len(p.queue)-1]
		d, err := e.scrubItem(ctx, p, it)
		if err != nil {
			p.queue = append(p.queue, it)
			return reply, fault.Wrap(op, err)
		}
		if d != nil && it.kind == kindChunk && d.Healed == "" {
			gone, err := e.letGoMeanwhile(ctx, it.commit)
			if err != nil {
				return reply, fault.Wrap(op, err)
			}
			if gone {
				d = nil
			}
		}
		switch {
		case d == nil:
		case len(reply.Damaged) < scan.MaxSkips:
			reply.Damaged = append(reply.Damaged, *d)
		default:
			reply.More++
		}
	}
	aside, err := e.moves.SetAsides()
	if err != nil {
		return reply, fault.Wrap(op, err)
	}
	reply.Aside = aside
	reply.Objects, reply.Bytes, reply.Done = p.objects, p.bytes, len(p.queue) == 0
	if reply.Done {
		e.scrub = nil
	}
	return reply, fault.Wrap(op, e.keepScrub(reply.Done))
}

// newScrub begins a pass at everything that a ref names, the history last in
// the queue and so first in turn.
func (e *Engine) newScrub(ctx context.Context) (*scrubPass, error) {
	out, err := e.store.Git(ctx, nil, "for-each-ref", "--format=%(objectname) %(refname)")
	if err != nil && len(out) == 0 {
		return nil, err
	}
	p := &scrubPass{seen: map[scrubKey]struct{}{}}
	head := e.Head()
	for line := range strings.Lines(string(out)) {
		id, ref, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || !wire.IsHex(id) || id == head || strings.HasPrefix(ref, damagedRefs) {
			continue
		}
		p.add(scrubItem{id: id, kind: "commit", commit: id})
	}
	if head != "" {
		p.add(scrubItem{id: head, kind: "commit", commit: head})
	}
	return p, nil
}

func (it scrubItem) key() (k scrubKey) {
	_, _ = hex.Decode(k.id[:], []byte(it.id[:min(40, len(it.id))])) // a damaged id is none that anything has
	if it.kind == gitstore.KindManifest || it.kind == kindChunk {
		k.kind = it.kind[0]
	}
	return k
}

func (p *scrubPass) add(it scrubItem) {
	key := it.key()
	if _, ok := p.seen[key]; ok || len(it.id) != 40 && it.kind != kindChunk || len(p.seen) >= maxScrubQueue {
		return
	}
	p.seen[key] = struct{}{}
	p.queue = append(p.queue, it)
}

// scrubItem checks one object, and queues what it names.
func (e *Engine) scrubItem(ctx context.Context, p *scrubPass, it scrubItem) (*wire.Damage, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if it.kind == kindChunk {
		p.objects++
		p.bytes += int64(it.size)
		return e.scrubChunk(ctx, it)
	}
	content, size, reason, err := e.store.Check(ctx, it.id, it.kind)
	if err != nil {
		return nil, err
	}
	p.objects++
	p.bytes += size
	var d *wire.Damage
	if reason != "" {
		d = &wire.Damage{ID: it.id, Kind: it.kind, Commit: it.commit, Path: wire.Path(it.path), Reason: reason}
		if d.Healed, err = e.healObject(ctx, it.kind, it.id, it.path); err != nil {
			return nil, err
		}
		if d.Healed == "" {
			return d, nil
		}
		if content, _, reason, err = e.store.Check(ctx, it.id, it.kind); err != nil || reason != "" {
			d.Healed = ""
			return d, err
		}
	}
	switch it.kind {
	case "commit":
		tree, parents := gitstore.CommitNames(content)
		for _, c := range parents {
			p.add(scrubItem{id: c, kind: "commit", commit: c})
		}
		p.add(scrubItem{id: tree, kind: "tree", commit: it.commit})
	case "tree":
		for _, t := range gitstore.TreeNames(content) {
			sub := scrubItem{id: t.ID, kind: "blob", commit: it.commit, path: wire.JoinPath(it.path, names.Unescape(t.Name))}
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
			p.add(scrubItem{id: c.Name(), kind: kindChunk, commit: it.commit, path: it.path, at: at, size: c.Len})
			at += int64(c.Len)
		}
	}
	return d, nil
}

// healObject makes a damaged object again from what still holds it, and says
// from what; "" means that nothing does.
func (e *Engine) healObject(ctx context.Context, kind, id, p string) (string, error) {
	switch kind {
	case "blob":
		return e.healBlob(ctx, gitstore.Entry{ID: id}, p)
	case gitstore.KindManifest:
		return e.healBlob(ctx, gitstore.Entry{ID: id, Chunked: true}, p)
	case "tree":
		return e.healTree(ctx, id)
	}
	return "", nil
}

// healBlob looks for a blob's content in the live tree, the snapshots and the
// trash. A manifest's file brings its chunks along.
func (e *Engine) healBlob(ctx context.Context, want gitstore.Entry, p string) (string, error) {
	if want.ID == gitstore.EmptyBlob {
		return "nothing, as it is empty", e.store.Replace(gitstore.Object{Kind: "blob"}, want.ID)
	}
	return e.eachCopy(ctx, p, func(root, p string) (bool, error) { return e.healFrom(ctx, want, root, p) })
}

// eachCopy tries every place that may still have what was at a path, and returns
// the name of the one that did.
func (e *Engine) eachCopy(ctx context.Context, p string, try func(root, p string) (bool, error)) (string, error) {
	type place struct{ name, root, path string }
	places := []place{{"the live file", e.opts.Root, p}}
	for glob, name := range map[string]string{filepath.Join(e.opts.Snapshots, "*"): "a snapshot", e.moves.Trash("*"): "the trash"} {
		dirs, err := filepath.Glob(glob)
		if err != nil {
			return "", err
		}
		for _, dir := range dirs {
			if name == "the trash" {
				places = append(places, place{name, dir, "content"})
			} else {
				places = append(places, place{name, dir, p})
			}
		}
	}
	for _, at := range places {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		if wire.CheckPath(at.path, false) != nil {
			continue
		}
		ok, err := try(at.root, at.path)
		if err != nil || ok {
			return at.name, err
		}
	}
	return "", nil
}

// healFrom makes a blob again from a file beneath root if it fits.
func (e *Engine) healFrom(ctx context.Context, want gitstore.Entry, root, p string) (bool, error) {
	fd, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, nil //nolint:nilerr // gone, or no directory
	}
	defer unix.Close(fd)
	dir, err := disk.OpenDir(fd, wire.ParentDir(p))
	if err != nil {
		return false, nil //nolint:nilerr // likewise
	}
	defer unix.Close(dir)
	en, _, err := e.store.EntryAt(dir, path.Base(p))
	if err != nil || en.Holds() != want.Holds() {
		return false, nil //nolint:nilerr // it can't be read, or holds something else
	}
	return true, e.store.Replace(e.store.ContentObject(ctx, &en, nil, func() (io.ReadCloser, disk.Stat, error) {
		return disk.OpenContent(dir, path.Base(p), -1)
	}), want.ID)
}

// healTree makes a tree of the newest checkpoint again from what the engine
// knows of it.
func (e *Engine) healTree(ctx context.Context, id string) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	done, err := e.store.ReplaceTree(e.headTree(), id)
	if err != nil || !done {
		return "", errors.Join(err, ctx.Err())
	}
	return "what the newest checkpoint holds", nil
}
