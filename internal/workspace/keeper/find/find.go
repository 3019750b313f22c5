package find

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/chunks"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/git"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Finder looks for contents in all places where a computer has them.
type Finder struct {
	store *gitstore.Store
	root  int             // the live tree, open
	trash string          // the folder of its entries
	live  func() []string // the captured files that are kept whole
}

// Options say where to look.
type Options struct {
	Store *gitstore.Store
	Root  int             // the live tree, open
	Trash string          // the folder of its entries
	Live  func() []string // the captured files that are kept whole
}

// New makes a Finder.
func New(o Options) *Finder {
	return &Finder{store: o.Store, root: o.Root, trash: o.Trash, live: o.Live}
}

const maxFind = 200

// Find looks for contents in the live files, the trash and the history, in that
// order.
func (f *Finder) Find(ctx context.Context, req wire.FindRequest) (wire.FindReply, error) {
	const op = "keeper.Find"
	if len(req.SHA256) > maxFind || slices.ContainsFunc(req.SHA256, func(s string) bool { return len(s) != 64 || !wire.IsHex(s) }) {
		return wire.FindReply{}, fault.New(op, fault.Invalid, "", fmt.Errorf("name at most %d SHA-256 sums in hex", maxFind))
	}
	if req.Bytes <= 0 {
		req.Bytes = 256 << 20
	}
	if req.Millis <= 0 {
		req.Millis = 20_000
	}
	s := &search{wanted: map[string]bool{}, left: req.Bytes, until: time.Now().Add(time.Duration(req.Millis) * time.Millisecond)}
	for _, sum := range req.SHA256 {
		s.wanted[sum] = true
	}
	for _, look := range []func(context.Context, *search) error{f.inLive, f.inTrash, f.inObjects} {
		if len(s.wanted) == 0 {
			break
		}
		if err := look(ctx, s); err != nil && !errors.Is(err, errSearched) {
			return s.reply, fault.Wrap(op, err)
		}
	}
	return s.reply, nil
}

var errSearched = errors.New("that is all there is time for")

// search is a Find under way.
type search struct {
	wanted map[string]bool // SHA-256 sums, in hex, that were not found yet
	left   int64           // bytes that may still be read
	until  time.Time       // when the search ends
	reply  wire.FindReply
}

// may reports whether the search may still read a content of this size. One that is too
// large is skipped, as others may be smaller.
func (s *search) may(ctx context.Context, size int64) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if len(s.wanted) == 0 {
		return false, errSearched
	}
	if time.Now().After(s.until) {
		s.reply.Partial = true
		return false, errSearched
	}
	if size > s.left {
		s.reply.Partial = true
		return false, nil
	}
	s.left -= size
	return true, nil
}

func (s *search) is(h hash.Hash, at wire.Found) { s.isSum(h.Sum(nil), at) }

func (s *search) isSum(sum []byte, at wire.Found) {
	at.SHA256 = hex.EncodeToString(sum)
	if s.wanted[at.SHA256] {
		delete(s.wanted, at.SHA256)
		s.reply.Found = append(s.reply.Found, at)
	}
}

// file reads one file and compares.
func (s *search) file(ctx context.Context, rootfd int, p string, at wire.Found) error {
	r, st, err := disk.OpenContent(rootfd, p, -1)
	if err != nil || !st.IsRegular() {
		if err == nil {
			err = r.Close()
		}
		return disk.IgnoreUnreachable(err)
	}
	defer r.Close()
	if ok, err := s.may(ctx, st.Size); !ok {
		return err
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(r, st.Size)); err != nil {
		return nil //nolint:nilerr // a file that can't be read is not it
	}
	s.is(h, at)
	return nil
}

func (f *Finder) inLive(ctx context.Context, s *search) error {
	paths := f.live()
	slices.Sort(paths)
	for _, p := range paths {
		if err := s.file(ctx, f.root, p, wire.Found{Path: wire.Path(p)}); err != nil {
			return err
		}
	}
	return nil
}

func (f *Finder) inTrash(ctx context.Context, s *search) error {
	contents, err := filepath.Glob(filepath.Join(f.trash, "*", "content"))
	if err != nil {
		return err
	}
	for _, file := range contents {
		if err := s.file(ctx, unix.AT_FDCWD, file, wire.Found{Trash: filepath.Base(filepath.Dir(file))}); err != nil {
			return err
		}
	}
	return nil
}

func (f *Finder) inObjects(ctx context.Context, s *search) error {
	out, err := f.store.Git(ctx, nil, "cat-file", "--batch-all-objects", "--unordered", "--batch-check=%(objecttype) %(objectname) %(objectsize)")
	if err != nil && len(out) == 0 {
		return err
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[0] != "blob" {
			continue
		}
		size, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			continue
		}
		ok, err := s.may(ctx, size)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		h := sha256.New()
		var raw bytes.Buffer // the object if it may be a manifest, whose chunks are then read
		w := io.Writer(h)
		if size <= chunks.MaxManifest && size >= int64(chunks.ManifestHead) && (size-int64(chunks.ManifestHead))%int64(chunks.ManifestRef) == 0 {
			w = io.MultiWriter(h, &git.PrefixBuffer{To: &raw, Max: int(size)})
		}
		if _, _, err := f.store.Read(ctx, fields[1], -1, w); err != nil {
			continue // damaged, which the scrub reports
		}
		s.is(h, wire.Found{Object: fields[1]})
		if m, err := chunks.DecodeManifest(raw.Bytes()); err == nil {
			s.isSum(m.Sum[:], wire.Found{Object: fields[1], Chunked: true})
		}
	}
	return nil
}

// Open opens what Find found. Its content may have changed: the caller compares it.
func (f *Finder) Open(ctx context.Context, at wire.Found) (func(io.Writer) error, error) {
	const op = "keeper.Found"
	if at.Object != "" {
		if !wire.IsHex(at.Object) || len(at.Object) != 40 {
			return nil, fault.New(op, fault.Invalid, "", fmt.Errorf("%q is no object", wire.Short(at.Object)))
		}
		return func(w io.Writer) error {
			_, err := f.store.ReadContent(ctx, gitstore.Entry{ID: at.Object, Chunked: at.Chunked}, 0, -1, w)
			return err
		}, nil
	}
	root, p := f.root, string(at.Path)
	if at.Trash != "" {
		root, p = unix.AT_FDCWD, filepath.Join(f.trash, at.Trash, "content")
	}
	r, st, err := disk.OpenContent(root, p, -1)
	if err != nil {
		return nil, err
	}
	if !st.IsRegular() {
		return nil, errors.Join(unix.EISDIR, r.Close())
	}
	return func(w io.Writer) error {
		_, err := io.Copy(w, io.LimitReader(r, st.Size))
		return errors.Join(err, r.Close())
	}, nil
}
