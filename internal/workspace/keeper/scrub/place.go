package scrub

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io/fs"
	"os"

	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// The position of a pass is stored after each slice, so that a pass over a long history
// comes to its end even if its box ends sooner: what was read, by raw ids, and what is
// still to be read. It only saves work, so it is not synced, and a pass whose position
// can't be read begins anew. Objects are never removed, so those still to be read stay;
// chunks are removed when no commit reaches them any more. What was added later is left to
// the next pass.

const version = "choir scrub 1\n"

// maxKept is the largest pass whose position is stored, in objects: ten megabytes.
const maxKept = 500_000

const keySize = 21 // a raw id and a kind

// place is the header of the file; the keys of what was seen follow it.
type place struct {
	Objects int       `json:"objects"`
	Bytes   int64     `json:"bytes"`
	Queue   []waiting `json:"queue"`
}

type waiting struct {
	ID     string    `json:"id"`
	Kind   string    `json:"kind"`
	Commit string    `json:"commit"`
	Path   wire.Path `json:"path"`
	At     int64     `json:"at,omitempty"`
	Size   uint32    `json:"size,omitempty"`
}

// keep stores the position of the pass, or removes it if the pass is done.
func (sr *Scrubber) keep(done bool) error {
	p := sr.pass
	if done || len(p.seen) > maxKept {
		return disk.RemoveIfThere(sr.store.Work("scrub"))
	}
	place := place{Objects: p.objects, Bytes: p.bytes, Queue: make([]waiting, len(p.queue))}
	for i, it := range p.queue {
		place.Queue[i] = waiting{it.id, it.kind, it.commit, wire.Path(it.path), it.at, it.size}
	}
	head, err := json.Marshal(place)
	if err != nil {
		return err
	}
	body := bytes.NewBuffer(make([]byte, 0, len(head)+1+keySize*len(p.seen)))
	body.Write(append(head, '\n'))
	for k := range p.seen {
		body.Write(append(k.id[:], k.kind))
	}
	sum := sha256.Sum256(body.Bytes())
	tmp := sr.store.Work("scrub.tmp-choir")
	if err := os.WriteFile(tmp, append(append([]byte(version), sum[:]...), body.Bytes()...), 0o644); err != nil {
		return errors.Join(err, disk.RemoveIfThere(tmp))
	}
	return os.Rename(tmp, sr.store.Work("scrub"))
}

// resume returns the pass that an earlier engine began, or nil.
func (sr *Scrubber) resume(ctx context.Context) *pass {
	raw, err := os.ReadFile(sr.store.Work("scrub"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	p, ok := readPlace(raw)
	if err != nil || !ok {
		sr.logger.InfoContext(ctx, "where the scrub stood can't be read; it begins anew", "error", err)
		return nil
	}
	return p
}

func readPlace(raw []byte) (*pass, bool) {
	body, ok := bytes.CutPrefix(raw, []byte(version))
	if !ok || len(body) < sha256.Size {
		return nil, false
	}
	sum, body := body[:sha256.Size], body[sha256.Size:]
	if got := sha256.Sum256(body); !bytes.Equal(got[:], sum) {
		return nil, false
	}
	head, ids, ok := bytes.Cut(body, []byte{'\n'})
	var place place
	if !ok || len(ids)%keySize != 0 || json.Unmarshal(head, &place) != nil {
		return nil, false
	}
	p := &pass{seen: make(map[key]struct{}, len(ids)/keySize), objects: place.Objects, bytes: place.Bytes}
	for ; len(ids) > 0; ids = ids[keySize:] {
		p.seen[key{[20]byte(ids[:20]), ids[20]}] = struct{}{}
	}
	for _, w := range place.Queue {
		p.queue = append(p.queue, item{w.ID, w.Kind, w.Commit, string(w.Path), w.At, w.Size})
	}
	return p, len(p.queue) > 0
}

// letGoMeanwhile reports whether a chunk that a pass still had to read was removed
// legitimately: no ref reaches the commit any more in which it was found.
func (sr *Scrubber) letGoMeanwhile(ctx context.Context, commit string) (bool, error) {
	out, err := sr.store.GitLine(ctx, "for-each-ref", "--count=1", "--contains="+commit, "--format=%(refname)")
	return out == "", err
}
