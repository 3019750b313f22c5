package engine

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/chunks"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/publish"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// kindChunk is what a scrub checks beside objects.
const kindChunk = "chunk"

// scrubChunk checks one chunk and, if it is damaged, makes it again.
func (e *Engine) scrubChunk(ctx context.Context, it scrubItem) (*wire.Damage, error) {
	c, ok := chunks.Named(it.id, it.size)
	if !ok {
		return nil, nil
	}
	reason := chunkReason(e.store.Chunks.Check(c))
	if reason == "" {
		return nil, ctx.Err()
	}
	d := &wire.Damage{ID: it.id, Kind: it.kind, Commit: it.commit, Path: wire.Path(it.path), Reason: reason}
	var err error
	d.Healed, err = e.healChunk(ctx, c, it.path, it.at)
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

// healNewest makes again what is missing of the chunks of the newest checkpoint,
// from the live files: who changes one of those next would take the last copy
// away, and a scrub comes by later. Chunks are looked for, not read.
func (e *Engine) healNewest(ctx context.Context) error {
	healed, missing := 0, 0
	for p, t := range e.look.Index.All() {
		if !t.Chunked {
			continue
		}
		m, err := e.store.Manifest(ctx, t.ID)
		if err := ctx.Err(); err != nil {
			return err
		}
		if err != nil {
			continue // a scrub tells of it
		}
		var at int64
		for _, c := range m.Chunks {
			if st, err := os.Lstat(e.store.Chunks.Path(c.Name())); err != nil || st.Size() != int64(c.Len) {
				missing++
				ok, err := e.chunkFrom(c, e.opts.Root, p, at)
				if fault.NoSpace(err) {
					e.opts.Logger.ErrorContext(ctx, "chunks of large files are missing, and there is no space to make them again", "error", err)
					return nil
				}
				if err := errors.Join(err, ctx.Err()); err != nil {
					return err
				}
				if ok {
					healed++
				}
			}
			at += int64(c.Len)
		}
	}
	if missing > 0 {
		e.opts.Logger.ErrorContext(ctx, "chunks of large files were missing", "chunks", missing, "made again from the live files", healed)
	}
	return nil
}

// healEntry makes again what is damaged of an entry: its blob, or those of its
// chunks that are. It says from what, "" when something could not be had.
func (e *Engine) healEntry(ctx context.Context, en gitstore.Entry, p string) (string, error) {
	if !en.Chunked {
		return e.healBlob(ctx, en, p)
	}
	m, err := e.store.Manifest(ctx, en.ID)
	if err != nil {
		return e.healBlob(ctx, en, p)
	}
	from := ""
	var at int64
	for _, c := range m.Chunks {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		if e.store.Chunks.Check(c) != nil {
			if from, err = e.healChunk(ctx, c, p, at); err != nil || from == "" {
				return "", err
			}
		}
		at += int64(c.Len)
	}
	return from, nil
}

// healChunk looks for a chunk's bytes where its file, or an earlier or later
// version of it, still is: at the same place first, then anywhere in it.
func (e *Engine) healChunk(ctx context.Context, c chunks.Ref, p string, at int64) (string, error) {
	if from, err := e.eachCopy(ctx, p, func(root, p string) (bool, error) { return e.chunkFrom(c, root, p, at) }); err != nil || from != "" {
		return from, err
	}
	return e.eachCopy(ctx, p, func(root, p string) (bool, error) { return e.chunkWithin(ctx, c, root, p) })
}

// chunkFrom makes a chunk again from the bytes at one place of a file.
func (e *Engine) chunkFrom(c chunks.Ref, root, p string, at int64) (bool, error) {
	f, _, err := openLarge(root, p)
	if err != nil {
		return false, nil //nolint:nilerr // gone, or it can't be read
	}
	defer f.Close()
	b := make([]byte, c.Len)
	if _, err := io.ReadFull(io.NewSectionReader(f, at, int64(c.Len)), b); err != nil || sha256.Sum256(b) != c.Sum {
		return false, nil //nolint:nilerr // it holds something else there
	}
	return true, e.store.Chunks.Replace(c, b)
}

// errFound ends a search.
var errFound = errors.New("found")

// chunkWithin makes a chunk again from a file that has it somewhere.
func (e *Engine) chunkWithin(ctx context.Context, c chunks.Ref, root, p string) (bool, error) {
	f, st, err := openLarge(root, p)
	if err != nil || !e.store.Chunked(st) {
		return false, nil //nolint:nilerr // likewise
	}
	defer f.Close()
	_, err = chunks.Cut(ctx, f, st.Size, func(got chunks.Ref, b []byte) error {
		if got != c {
			return nil
		}
		return errors.Join(e.store.Chunks.Replace(c, b), errFound)
	})
	if errors.Is(err, errFound) {
		return e.store.Chunks.Check(c) == nil, nil
	}
	return false, ctx.Err()
}

// openLarge opens a regular file beneath root.
func openLarge(root, p string) (*os.File, disk.Stat, error) {
	fd, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, disk.Stat{}, err
	}
	defer unix.Close(fd)
	r, st, err := disk.OpenContent(fd, p, -1)
	if err != nil {
		return nil, st, err
	}
	f, ok := r.(*os.File)
	if !ok {
		return nil, st, errors.Join(disk.ErrGone, r.Close())
	}
	return f, st, nil
}

// allThere makes sure that everything that an entry holds can be put in place,
// before anything is: it returns Damaged, with what is missing, when not even
// another copy has it. What it found is not collected for a while.
func (e *Engine) allThere(ctx context.Context, en gitstore.Entry, p wire.Path) error {
	if !en.Chunked {
		return nil
	}
	m, err := e.store.Manifest(ctx, en.ID)
	if err != nil {
		return err
	}
	var at int64
	for _, c := range m.Chunks {
		there, err := e.store.Chunks.Use(c.Name(), int64(c.Len))
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		if !there || e.store.Chunks.Check(c) != nil {
			from, err := e.healChunk(ctx, c, string(p), at)
			if err != nil {
				return err
			}
			if from == "" {
				return fault.New("", fault.Damaged, "Restore the other paths, or name another checkpoint; `choir doctor` names what is damaged.",
					fmt.Errorf("a part of %s is damaged: chunk %s", p.Shown(), c.Name()))
			}
		}
		at += int64(c.Len)
	}
	return nil
}

// stepsAllThere is allThere of what the steps of a plan put in place.
func (e *Engine) stepsAllThere(ctx context.Context, steps []publish.Step) error {
	for _, s := range steps {
		if err := e.allThere(ctx, s.To, s.Path); err != nil {
			return err
		}
	}
	return nil
}
