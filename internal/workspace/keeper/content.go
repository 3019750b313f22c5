package keeper

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"strings"

	"choir.dev/choiros/internal/fault"
)

// What stands for a file's content in a tree: its blob, or, where it is large,
// the blob of the manifest of its chunks. Which of the two follows from the
// file's size alone, so that the same bytes always give the same entry.

// chunked reports whether a file is kept as chunks.
func (e *Engine) chunked(st fileStat) bool {
	return st.isRegular() && st.Size > e.opts.Limits.FileBytes
}

// holds is an entry without its mode: two files hold the same when it is equal.
func (en Entry) holds() Entry { return Entry{ID: en.ID, Chunked: en.Chunked} }

// hashEntry returns the entry of what r reads, and stores nothing.
func (e *Engine) hashEntry(r io.Reader, st fileStat) (Entry, error) {
	if e.chunked(st) {
		m, err := cut(context.Background(), r, st.Size, nil)
		if err != nil {
			return none, err
		}
		return Entry{Mode: st.gitMode(), ID: objectID("blob", m.encode()), Chunked: true}, nil
	}
	size := st.Size
	if l, ok := r.(linkReader); ok {
		size = int64(l.Len())
	}
	h := newObjectHash("blob", size)
	if err := copyExactly(h, r, size); err != nil {
		return none, err
	}
	return Entry{Mode: st.gitMode(), ID: hex.EncodeToString(h.Sum(nil))}, nil
}

// isOneOf reports whether a large file that r reads is one of likely, and which.
// That takes a fraction of what cutting it takes: its manifest has the SHA-256 of
// the whole. It is asked only where one of them has the file's size.
func (e *Engine) isOneOf(r io.Reader, st fileStat, likely []Entry) (Entry, bool, error) {
	if !e.chunked(st) {
		return none, false, nil
	}
	sums := map[[sha256.Size]byte]string{}
	for _, en := range likely {
		if !en.Chunked {
			continue
		}
		m, err := e.manifest(context.Background(), en.ID)
		if err != nil {
			continue // a scrub tells of it
		}
		if m.size == st.Size {
			sums[m.sum] = en.ID
		}
	}
	if len(sums) == 0 {
		return none, false, nil
	}
	h := sha256.New()
	if err := copyExactly(h, r, st.Size); err != nil {
		return none, false, err
	}
	id, is := sums[[sha256.Size]byte(h.Sum(nil))]
	return Entry{Mode: st.gitMode(), ID: id, Chunked: is}, is, nil
}

// contentObject is the object that stands for a file. Its chunks, if it is
// large, are stored when its turn comes, and so are on disk before it is. en
// gets what is known of the file by then, and with the object's id is its entry.
// Why a file could not be read or kept goes to refused, and the object is left
// out; without refused it is an error.
func (e *Engine) contentObject(ctx context.Context, en *Entry, refused *error, open func() (io.ReadCloser, fileStat, error)) object {
	fail := func(err error) (io.ReadCloser, int64, error) {
		if refused != nil && ctx.Err() == nil && !fault.NoSpace(err) {
			*refused, err = err, errGone
		}
		return nil, 0, err
	}
	return object{kind: "blob", source: func() (io.ReadCloser, int64, error) {
		r, st, err := open()
		if err != nil {
			return fail(err)
		}
		*en = Entry{Mode: st.gitMode(), Chunked: e.chunked(st)}
		if l, ok := r.(linkReader); ok {
			return r, int64(l.Len()), nil
		}
		if !en.Chunked {
			return r, st.Size, nil
		}
		m, err := e.chunks.store(ctx, r, st.Size)
		if err = errors.Join(err, r.Close()); err != nil {
			return fail(err)
		}
		raw := m.encode()
		return io.NopCloser(strings.NewReader(string(raw))), int64(len(raw)), nil
	}}
}

// manifest reads the manifest of a chunked entry.
func (e *Engine) manifest(ctx context.Context, id string) (*manifest, error) {
	raw, err := e.blob(ctx, id, maxManifest)
	if err != nil {
		return nil, err
	}
	m, err := decodeManifest(raw)
	if err != nil {
		return nil, fault.New("keeper.manifest", fault.Damaged, "", err)
	}
	return m, nil
}

// readContent streams the content of an entry to w: from skip on, at most max
// bytes when max is not negative. It returns the size of the whole.
func (e *Engine) readContent(ctx context.Context, en Entry, skip, max int64, w io.Writer) (int64, error) {
	if !en.Chunked {
		if skip > 0 {
			w = &window{w: w, skip: skip, left: max, all: max < 0}
			max = -1
		}
		_, size, err := e.reads.read(ctx, en.ID, max, w)
		return size, err
	}
	m, err := e.manifest(ctx, en.ID)
	if err != nil {
		return 0, err
	}
	return m.size, e.chunks.copyTo(ctx, m, skip, max, w)
}

// smallContent reads an entry that can be merged; false means it is too large.
func (e *Engine) smallContent(ctx context.Context, en Entry) ([]byte, bool, error) {
	if en.Chunked {
		return nil, false, nil
	}
	b, err := e.blob(ctx, en.ID, maxMerge)
	if fault.Is(err, fault.Exhausted) {
		return nil, false, nil
	}
	return b, err == nil, err
}
