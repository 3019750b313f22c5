package engine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
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
	"choir.dev/choiros/internal/workspace/keeper/publish"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// What the host keeps by the SHA-256 of its content may be in the tree as well:
// something an agent wrote as a file, or a user uploaded. When the host's copy is
// damaged, this looks for another.

const maxFind = 200

// Find looks for contents in the live files, the trash and the history, in that
// order.
func (e *Engine) Find(ctx context.Context, req wire.FindRequest) (wire.FindReply, error) {
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
	for _, look := range []func(context.Context, *search) error{e.findLive, e.findTrash, e.findObjects} {
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
	wanted map[string]bool
	left   int64
	until  time.Time
	reply  wire.FindReply
}

// may reports whether there is room in the search for a content of some size. One
// that is too large for what is left is passed over: others are smaller.
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

// file looks at one file.
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
		return nil //nolint:nilerr // what can't be read is not it
	}
	s.is(h, at)
	return nil
}

func (e *Engine) findLive(ctx context.Context, s *search) error {
	e.mu.Lock()
	paths := make([]string, 0, e.look.Index.N)
	for p, t := range e.look.Index.All() {
		if t.IsRegular() && !t.Chunked { // its manifest is in the history
			paths = append(paths, p)
		}
	}
	e.mu.Unlock()
	slices.Sort(paths)
	for _, p := range paths {
		if err := s.file(ctx, e.look.Root, p, wire.Found{Path: wire.Path(p)}); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) findTrash(ctx context.Context, s *search) error {
	contents, err := filepath.Glob(e.moves.Trash("*", "content"))
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

func (e *Engine) findObjects(ctx context.Context, s *search) error {
	out, err := e.store.Git(ctx, nil, "cat-file", "--batch-all-objects", "--unordered", "--batch-check=%(objecttype) %(objectname) %(objectsize)")
	if err != nil && len(out) == 0 {
		return err
	}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] != "blob" {
			continue
		}
		size, err := strconv.ParseInt(f[2], 10, 64)
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
		var raw bytes.Buffer // of what may be a manifest, which says what its chunks have
		w := io.Writer(h)
		if size <= chunks.MaxManifest && size >= int64(chunks.ManifestHead) && (size-int64(chunks.ManifestHead))%int64(chunks.ManifestRef) == 0 {
			w = io.MultiWriter(h, &git.Head{To: &raw, Max: int(size)})
		}
		if _, _, err := e.store.Read(ctx, f[1], -1, w); err != nil {
			continue // damaged: the scrub says so
		}
		s.is(h, wire.Found{Object: f[1]})
		if m, err := chunks.DecodeManifest(raw.Bytes()); err == nil {
			s.isSum(m.Sum[:], wire.Found{Object: f[1], Chunked: true})
		}
	}
	return nil
}

// serveFound streams what Find found. It may be another content by now: whoever
// asks compares.
func (e *Engine) serveFound(ctx context.Context, w http.ResponseWriter, at wire.Found) error {
	const op = "keeper.Found"
	if at.Object != "" {
		if !wire.IsHex(at.Object) || len(at.Object) != 40 {
			return fault.New(op, fault.Invalid, "", fmt.Errorf("%q is no object", wire.Short(at.Object)))
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		_, err := e.store.ReadContent(ctx, gitstore.Entry{ID: at.Object, Chunked: at.Chunked}, 0, -1, w)
		return ignoreAfterStart(err)
	}
	root, p, asked := e.look.Root, string(at.Path), string(at.Path)
	if at.Trash != "" {
		if err := publish.CheckPlanID(at.Trash); err != nil {
			return fault.Wrap(op, err)
		}
		root, p, asked = unix.AT_FDCWD, e.moves.Trash(at.Trash, "content"), at.Trash
	} else if err := badPath(p, false); err != nil {
		return fault.Wrap(op, err)
	}
	r, st, err := disk.OpenContent(root, p, -1)
	if err != nil {
		return fileError(op, asked, err)
	}
	defer r.Close()
	if !st.IsRegular() {
		return fileError(op, asked, unix.EISDIR)
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	_, err = io.Copy(w, io.LimitReader(r, st.Size))
	return ignoreAfterStart(err)
}
