package heal

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/chunks"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/objects"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Healer restores objects that are damaged.
type Healer struct {
	store     *gitstore.Store
	root      string // the live tree
	snapshots string // the folder of their layers
	trash     string // the folder of its entries
	// writes a tree of the newest checkpoint anew, if it has it
	ofNewest func(tree string) (bool, error)
	logger   *slog.Logger
}

// Options say where copies are looked for.
type Options struct {
	Store     *gitstore.Store
	Root      string // the live tree
	Snapshots string // the folder of their layers
	Trash     string // the folder of its entries
	// Newest writes a tree of the newest checkpoint anew, if it has it.
	Newest func(tree string) (bool, error)
	Logger *slog.Logger
}

// New makes a Healer for a store.
func New(o Options) *Healer {
	return &Healer{store: o.Store, root: o.Root, snapshots: o.Snapshots, trash: o.Trash, ofNewest: o.Newest, logger: o.Logger}
}

// Object restores a damaged object from a copy, and says which; "" means that there is
// none.
func (h *Healer) Object(ctx context.Context, kind, id, p string) (string, error) {
	switch kind {
	case "blob":
		return h.blob(ctx, gitstore.Entry{ID: id}, p)
	case gitstore.KindManifest:
		return h.blob(ctx, gitstore.Entry{ID: id, Chunked: true}, p)
	case "tree":
		return h.tree(ctx, id)
	}
	return "", nil
}

// blob looks for a blob's content in the live tree, the snapshots and the
// trash. A manifest's file brings its chunks along.
func (h *Healer) blob(ctx context.Context, want gitstore.Entry, p string) (string, error) {
	if want.ID == gitstore.EmptyBlob {
		return "nothing, as it is empty", h.store.Replace(objects.Object{Kind: "blob"}, want.ID)
	}
	return h.eachCopy(ctx, p, func(root, p string) (bool, error) { return h.from(ctx, want, root, p) })
}

// eachCopy tries every place that may still have what was at a path, and returns
// the name of the one that did.
func (h *Healer) eachCopy(ctx context.Context, p string, try func(root, p string) (bool, error)) (string, error) {
	type place struct{ name, root, path string }
	places := []place{{"the live file", h.root, p}}
	for glob, name := range map[string]string{filepath.Join(h.snapshots, "*"): "a snapshot", filepath.Join(h.trash, "*"): "the trash"} {
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

// from restores a blob from a file beneath root if it has the content.
func (h *Healer) from(ctx context.Context, want gitstore.Entry, root, p string) (bool, error) {
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
	en, _, err := h.store.EntryAt(dir, path.Base(p))
	if err != nil || en.Holds() != want.Holds() {
		return false, nil //nolint:nilerr // it can't be read, or holds something else
	}
	return true, h.store.Replace(h.store.ContentObject(ctx, &en, nil, func() (io.ReadCloser, disk.Stat, error) {
		return disk.OpenContent(dir, path.Base(p), -1)
	}), want.ID)
}

// tree restores a tree of the newest checkpoint from what is known of its content.
func (h *Healer) tree(ctx context.Context, id string) (string, error) {
	done, err := h.ofNewest(id)
	if err != nil || !done {
		return "", errors.Join(err, ctx.Err())
	}
	return "what the newest checkpoint holds", nil
}

// Newest restores missing chunks of the newest checkpoint from the live files: whoever
// changes one of these next would destroy the last copy, before a scrub comes by. It only
// checks whether chunks exist, without reading them.
func (h *Healer) Newest(ctx context.Context, all iter.Seq2[string, gitstore.Entry]) error {
	healed, missing := 0, 0
	for p, en := range all {
		if !en.Chunked {
			continue
		}
		m, err := h.store.Manifest(ctx, en.ID)
		if err := ctx.Err(); err != nil {
			return err
		}
		if err != nil {
			continue // a scrub reports it
		}
		var at int64
		for _, c := range m.Chunks {
			if st, err := os.Lstat(h.store.Chunks.Path(c.Name())); err != nil || st.Size() != int64(c.Len) {
				missing++
				ok, err := h.chunkFrom(c, h.root, p, at)
				if fault.NoSpace(err) {
					h.logger.ErrorContext(ctx, "chunks of large files are missing, and there is no space to make them again", "error", err)
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
		h.logger.ErrorContext(ctx, "chunks of large files were missing", "chunks", missing, "made again from the live files", healed)
	}
	return nil
}

// Entry restores what is damaged of an entry: its blob, or its chunks. It says from what,
// "" when something could not be restored.
func (h *Healer) Entry(ctx context.Context, en gitstore.Entry, p string) (string, error) {
	if !en.Chunked {
		return h.blob(ctx, en, p)
	}
	m, err := h.store.Manifest(ctx, en.ID)
	if err != nil {
		return h.blob(ctx, en, p)
	}
	from := ""
	var at int64
	for _, c := range m.Chunks {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		if h.store.Chunks.Check(c) != nil {
			if from, err = h.Chunk(ctx, c, p, at); err != nil || from == "" {
				return "", err
			}
		}
		at += int64(c.Len)
	}
	return from, nil
}

// Chunk looks for a chunk's bytes where its file, or another version of it, still exists:
// at the same offset first, then anywhere in it.
func (h *Healer) Chunk(ctx context.Context, c chunks.Ref, p string, at int64) (string, error) {
	if from, err := h.eachCopy(ctx, p, func(root, p string) (bool, error) { return h.chunkFrom(c, root, p, at) }); err != nil || from != "" {
		return from, err
	}
	return h.eachCopy(ctx, p, func(root, p string) (bool, error) { return h.chunkWithin(ctx, c, root, p) })
}

// chunkFrom makes a chunk again from the bytes at one place of a file.
func (h *Healer) chunkFrom(c chunks.Ref, root, p string, at int64) (bool, error) {
	f, _, err := openLarge(root, p)
	if err != nil {
		return false, nil //nolint:nilerr // gone, or it can't be read
	}
	defer f.Close()
	b := make([]byte, c.Len)
	if _, err := io.ReadFull(io.NewSectionReader(f, at, int64(c.Len)), b); err != nil || sha256.Sum256(b) != c.Sum {
		return false, nil //nolint:nilerr // it holds something else there
	}
	return true, h.store.Chunks.Replace(c, b)
}

// errFound ends a search.
var errFound = errors.New("found")

// chunkWithin makes a chunk again from a file that has it somewhere.
func (h *Healer) chunkWithin(ctx context.Context, c chunks.Ref, root, p string) (bool, error) {
	f, st, err := openLarge(root, p)
	if err != nil || !h.store.Chunked(st) {
		return false, nil //nolint:nilerr // likewise
	}
	defer f.Close()
	_, err = chunks.Cut(ctx, f, st.Size, func(got chunks.Ref, b []byte) error {
		if got != c {
			return nil
		}
		return errors.Join(h.store.Chunks.Replace(c, b), errFound)
	})
	if errors.Is(err, errFound) {
		return h.store.Chunks.Check(c) == nil, nil
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

// There makes sure that everything an entry needs can be read before anything is changed:
// it returns Damaged, with what is missing, when no copy has it either. The chunks that it
// finds are protected from collection for a while.
func (h *Healer) There(ctx context.Context, en gitstore.Entry, p wire.Path) error {
	if !en.Chunked {
		return nil
	}
	m, err := h.store.Manifest(ctx, en.ID)
	if err != nil {
		return err
	}
	var at int64
	for _, c := range m.Chunks {
		there, err := h.store.Chunks.Use(c.Name(), int64(c.Len))
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		if !there || h.store.Chunks.Check(c) != nil {
			from, err := h.Chunk(ctx, c, string(p), at)
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
