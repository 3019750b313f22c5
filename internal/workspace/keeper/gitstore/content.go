package gitstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/chunks"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/names"
	"choir.dev/choiros/internal/workspace/keeper/objects"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// A file is represented in a tree by its blob or, if it is large, by the blob of the
// manifest of its chunks. The file's size alone decides which, so that the same bytes
// always give the same entry.

// Chunked reports whether a file is kept as chunks.
func (s *Store) Chunked(st disk.Stat) bool {
	return st.IsRegular() && st.Size > s.fileBytes
}

// Holds is an entry without its mode: it is equal for two files with the same content.
func (en Entry) Holds() Entry { return Entry{ID: en.ID, Chunked: en.Chunked} }

// HashEntry returns the entry of what r reads, and stores nothing.
func (s *Store) HashEntry(r io.Reader, st disk.Stat) (Entry, error) {
	if s.Chunked(st) {
		m, err := chunks.Cut(context.Background(), r, st.Size, nil)
		if err != nil {
			return None, err
		}
		return Entry{Mode: st.GitMode(), ID: objects.ID("blob", m.Encode()), Chunked: true}, nil
	}
	size := st.Size
	if l, ok := r.(disk.LinkReader); ok {
		size = int64(l.Len())
	}
	h := objects.NewHash("blob", size)
	if err := copyExactly(h, r, size); err != nil {
		return None, err
	}
	return Entry{Mode: st.GitMode(), ID: hex.EncodeToString(h.Sum(nil))}, nil
}

// IsOneOf reports whether a large file that r reads is one of likely, and which. That takes
// a fraction of the time of cutting it, for a manifest has the SHA-256 of the whole. It is
// only called when one of them has the file's size.
func (s *Store) IsOneOf(r io.Reader, st disk.Stat, likely []Entry) (Entry, bool, error) {
	if !s.Chunked(st) {
		return None, false, nil
	}
	sums := map[[sha256.Size]byte]string{}
	for _, en := range likely {
		if !en.Chunked {
			continue
		}
		m, err := s.Manifest(context.Background(), en.ID)
		if err != nil {
			continue // a scrub reports it
		}
		if m.Size == st.Size {
			sums[m.Sum] = en.ID
		}
	}
	if len(sums) == 0 {
		return None, false, nil
	}
	h := sha256.New()
	if err := copyExactly(h, r, st.Size); err != nil {
		return None, false, err
	}
	id, is := sums[[sha256.Size]byte(h.Sum(nil))]
	return Entry{Mode: st.GitMode(), ID: id, Chunked: is}, is, nil
}

// ContentObject is the object that represents a file. The chunks of a large file are stored
// when the object is read, and so are on disk before it is. en is filled in by then, and is
// the entry together with the object's id. If a file can't be read or kept, the reason is
// stored in refused and the object left out; without refused it is an error.
func (s *Store) ContentObject(ctx context.Context, en *Entry, refused *error, open func() (io.ReadCloser, disk.Stat, error)) objects.Object {
	fail := func(err error) (io.ReadCloser, int64, error) {
		if refused != nil && ctx.Err() == nil && !fault.NoSpace(err) {
			*refused, err = err, disk.ErrGone
		}
		return nil, 0, err
	}
	return objects.From("blob", func() (io.ReadCloser, int64, error) {
		if refused != nil {
			*refused = nil // it is asked again
		}
		r, st, err := open()
		if err != nil {
			return fail(err)
		}
		*en = Entry{Mode: st.GitMode(), Chunked: s.Chunked(st)}
		if l, ok := r.(disk.LinkReader); ok {
			return r, int64(l.Len()), nil
		}
		if !en.Chunked {
			return r, st.Size, nil
		}
		m, err := s.Chunks.Add(ctx, r, st.Size)
		if err = errors.Join(err, r.Close()); err != nil {
			return fail(err)
		}
		raw := m.Encode()
		return manifestReader{bytes.NewReader(raw), raw}, int64(len(raw)), nil
	})
}

// manifestReader reads the manifest of a large file whose chunks are stored.
type manifestReader struct {
	*bytes.Reader
	raw []byte
}

// Close does nothing.
func (manifestReader) Close() error { return nil }

// Whole is all that it reads.
func (m manifestReader) Whole() []byte { return m.raw }

// Manifest reads the manifest of a chunked entry.
func (s *Store) Manifest(ctx context.Context, id string) (*chunks.Manifest, error) {
	raw, err := s.Blob(ctx, id, chunks.MaxManifest)
	if err != nil {
		return nil, err
	}
	m, err := chunks.DecodeManifest(raw)
	if err != nil {
		return nil, fault.New("keeper.manifest", fault.Damaged, "", err)
	}
	return m, nil
}

// ReadContent streams the content of an entry to w: from skip on, at most max
// bytes when max is not negative. It returns the size of the whole.
func (s *Store) ReadContent(ctx context.Context, en Entry, skip, max int64, w io.Writer) (int64, error) {
	if !en.Chunked {
		if skip > 0 {
			w = &window{w: w, skip: skip, left: max, all: max < 0}
			max = -1
		}
		_, size, err := s.reads.Read(ctx, en.ID, max, w)
		return size, err
	}
	m, err := s.Manifest(ctx, en.ID)
	if err != nil {
		return 0, err
	}
	return m.Size, s.Chunks.CopyTo(ctx, m, skip, max, w)
}

// SmallContent reads an entry that can be merged; false means it is too large.
func (s *Store) SmallContent(ctx context.Context, en Entry) ([]byte, bool, error) {
	if en.Chunked {
		return nil, false, nil
	}
	b, err := s.Blob(ctx, en.ID, MaxMerge)
	if fault.Is(err, fault.Exhausted) {
		return nil, false, nil
	}
	return b, err == nil, err
}

// AddChunks adds the chunks that a manifest names to a set.
func (s *Store) AddChunks(ctx context.Context, to chunks.Set, id string) error {
	m, err := s.Manifest(ctx, id)
	if err != nil {
		return fmt.Errorf("manifest %s: %w", id, err)
	}
	for _, c := range m.Chunks {
		to[c.Sum] = struct{}{}
	}
	return nil
}

// ManifestsOf lists the manifests that stand in the trees of commits and of those before
// them, along the first parents: what was pushed has none of its own. A commit is
// compared with its parents: what it has of them is theirs. It is asked by name,
// for a manifest may be a file of somebody's as well.
func (s *Store) ManifestsOf(ctx context.Context, reply *wire.CollectReply, revs ...string) (map[string]struct{}, error) {
	found := map[string]struct{}{}
	commits, err := s.Git(ctx, nil, append(append([]string{"rev-list", "--first-parent", "--end-of-options"}, revs...), "--")...)
	if err != nil || len(commits) == 0 {
		return found, err
	}
	reply.Commits += bytes.Count(commits, []byte{'\n'})
	raw, err := s.Git(ctx, bytes.NewReader(commits), "diff-tree", "--stdin", "--root", "-r", "-m", "-z", "--raw", "--no-abbrev", "--no-commit-id", "--no-renames",
		"--", ":(top,glob)**/*"+names.ChunkSuffix)
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
