package chunks

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/restic/chunker"
	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/durable"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Parameters of where cuts are made. They are part of the format: other values cut the same
// file in other places and give it another manifest.
const (
	polynomial  = chunker.Pol(0x3DA3358B4DC173)
	averageBits = 21 // 2 MiB on average
	minChunk    = 512 << 10
	maxChunk    = 8 << 20
)

// Store is the directory of chunks. Its methods may be called concurrently.
type Store struct {
	dir   string
	max   int64              // bytes that chunks may take
	crash func(point string) // called at the points at which tests end the process

	// mu is held for a moment whenever a chunk is found, made or removed, so that
	// one is never removed between being found and being counted on.
	mu    sync.Mutex
	taken int64 // bytes that chunks take, when known
	known bool
}

// Open is the store of chunks in a directory, of at most max bytes together. crash is
// called at the points at which tests end the process.
func Open(dir string, max int64, crash func(point string)) *Store {
	return &Store{dir: dir, max: max, crash: crash}
}

// Path is where a chunk's file is.
func (s *Store) Path(name string) string { return filepath.Join(s.dir, name[:2], name) }

// cutter cuts a stream into chunks.
type cutter struct {
	chunker *chunker.Chunker
	buf     []byte
}

// cutters are kept from file to file: one has buffers of some megabytes.
var cutters = sync.Pool{New: func() any {
	c := chunker.NewWithBoundaries(nil, polynomial, minChunk, maxChunk)
	return &cutter{chunker: c, buf: make([]byte, maxChunk)}
}}

// Cut reads exactly size bytes of r, hands each chunk to visit in turn, and
// returns the manifest. The bytes are visit's until it returns.
func Cut(ctx context.Context, r io.Reader, size int64, visit func(c Ref, b []byte) error) (*Manifest, error) {
	k := cutters.Get().(*cutter)
	defer cutters.Put(k)
	whole := sha256.New()
	k.chunker.ResetWithBoundaries(io.TeeReader(io.LimitReader(r, size), whole), polynomial, minChunk, maxChunk)
	k.chunker.SetAverageBits(averageBits)
	m := &Manifest{Size: size}
	var total int64
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c, err := k.chunker.Next(k.buf)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if len(m.Chunks) == maxChunks {
			return nil, fault.New("", fault.Exhausted, "", fmt.Errorf("a file of %d bytes has too many chunks", size))
		}
		ref := Ref{Sum: sha256.Sum256(c.Data), Len: uint32(c.Length)}
		total += int64(c.Length)
		m.Chunks = append(m.Chunks, ref)
		if visit != nil {
			if err := visit(ref, c.Data); err != nil {
				return nil, err
			}
		}
	}
	if total != size {
		return nil, disk.ErrGone // it is being written to
	}
	whole.Sum(m.Sum[:0])
	return m, nil
}

// Add keeps a stream of size bytes and returns its manifest. When it returns
// the chunks are on disk.
func (s *Store) Add(ctx context.Context, r io.Reader, size int64) (_ *Manifest, err error) {
	b := batch{store: s, dirs: map[string]bool{}}
	m, err := Cut(ctx, r, size, b.add)
	if err != nil {
		return nil, errors.Join(err, b.drop())
	}
	return m, b.finish()
}

// batch is new chunks that are being written.
type batch struct {
	store   *Store
	pending []pending
	linked  int
	dirs    map[string]bool
}

type pending struct{ tmp, name string }

// together is how many chunks are written before they are synced, which bounds what a crash
// leaves incomplete.
const together = 64

func (b *batch) add(c Ref, data []byte) error {
	name := c.Name()
	if there, err := b.store.Use(name, int64(c.Len)); err != nil || there {
		return err
	}
	if slices.ContainsFunc(b.pending, func(p pending) bool { return p.name == name }) {
		return nil
	}
	if err := b.store.take(int64(c.Len)); err != nil {
		return err
	}
	tmp, err := b.store.write(data)
	if err != nil {
		return err
	}
	b.pending = append(b.pending, pending{tmp, name})
	if len(b.pending) < together {
		return nil
	}
	return b.flush()
}

// ErrQuota says that chunks already use all the space that they may.
var ErrQuota = errors.New("large files take all the space that they may")

// take counts the bytes of a new chunk. If the chunk is not kept after all, the next
// recount corrects that (see count).
func (s *Store) take(n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.known || s.taken+n > s.max {
		var err error
		if s.taken, err = s.count(); err != nil {
			return err
		}
		s.known = true
	}
	if s.taken+n > s.max {
		return fault.New("", fault.Exhausted, "Raise storage.large_files_mb, or remove large files: what no checkpoint holds is given back.",
			fmt.Errorf("%w: %d of %d bytes", ErrQuota, s.taken, s.max))
	}
	s.taken += n
	return nil
}

// count adds up the chunks that are stored, or about to be.
func (s *Store) count() (int64, error) {
	var total int64
	pending, err := filepath.Glob(filepath.Join(s.dir, "tmp-*"))
	if err != nil {
		return 0, err
	}
	for _, name := range pending {
		if st, err := os.Lstat(name); err == nil { // otherwise it has its final name by now
			total += st.Size()
		}
	}
	err = s.Each(func(_ string, st fs.FileInfo) error {
		total += st.Size()
		return nil
	})
	return total, err
}

// Each visits every stored chunk.
func (s *Store) Each(visit func(name string, st fs.FileInfo) error) error {
	dirs, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, d := range dirs {
		if !d.IsDir() || len(d.Name()) != 2 {
			continue
		}
		files, err := os.ReadDir(filepath.Join(s.dir, d.Name()))
		if err != nil {
			return err
		}
		for _, f := range files {
			if !isName(f.Name()) {
				continue
			}
			st, err := f.Info()
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				err = visit(f.Name(), st)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// write writes a chunk's bytes under a temporary name.
func (s *Store) write(data []byte) (string, error) {
	f, err := os.CreateTemp(s.dir, "tmp-")
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(0o444), f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// flush makes the pending chunks durable and gives them their names.
func (b *batch) flush() error {
	if len(b.pending) == 0 {
		return nil
	}
	b.store.crash("chunks.written")
	for _, p := range b.pending {
		if err := syncFile(p.tmp); err != nil {
			return err
		}
	}
	b.store.crash("chunks.synced")
	for len(b.pending) > 0 {
		p := b.pending[0]
		if err := b.store.link(p.tmp, p.name); err != nil {
			return err
		}
		b.dirs[filepath.Dir(b.store.Path(p.name))] = true
		b.pending = b.pending[1:]
		b.linked++
	}
	return nil
}

// finish makes the last chunks, and all names, durable.
func (b *batch) finish() error {
	if err := b.flush(); err != nil {
		return errors.Join(err, b.drop())
	}
	for d := range b.dirs {
		if err := durable.SyncDir(d); err != nil {
			return err
		}
	}
	if b.linked > 0 {
		if err := durable.SyncDir(b.store.dir); err != nil {
			return err
		}
		b.store.crash("chunks.named")
	}
	return nil
}

// drop removes chunks that have no final name yet.
func (b *batch) drop() error {
	var errs []error
	for _, p := range b.pending {
		errs = append(errs, disk.RemoveIfThere(p.tmp))
	}
	return errors.Join(errs...)
}

func syncFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// link gives a written and synced chunk its name.
func (s *Store) link(tmp, name string) error {
	final := s.Path(name)
	if err := os.Mkdir(filepath.Dir(final), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// The chunk under that name was found missing or damaged; this one is whole.
	return os.Rename(tmp, final)
}

// Use reports whether a chunk exists with the right size, and protects it from removal for
// as long as a new one is.
func (s *Store) Use(name string, size int64) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, err := os.Lstat(s.Path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || !st.Mode().IsRegular() || st.Size() != size {
		return false, err
	}
	now := time.Now()
	return true, os.Chtimes(s.Path(name), now, now)
}

// read returns a chunk's bytes, after comparing them with its name. buf is used if they
// fit.
func (s *Store) read(c Ref, buf []byte) ([]byte, error) {
	const op = "keeper.chunk"
	fd, err := unix.Open(s.Path(c.Name()), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, fault.New(op, fault.Damaged, "", fmt.Errorf("chunk %s %w", c.Name(), ErrMissing))
	}
	if err != nil {
		return nil, fault.Wrap(op, &os.PathError{Op: "open", Path: c.Name(), Err: err})
	}
	f := os.NewFile(uintptr(fd), c.Name())
	defer f.Close()
	if cap(buf) < int(c.Len)+1 {
		buf = make([]byte, c.Len+1)
	}
	n, err := io.ReadFull(f, buf[:c.Len+1])
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, fault.New(op, fault.Damaged, "", fmt.Errorf("chunk %s can't be read: %w", c.Name(), err))
	}
	if n != int(c.Len) || sha256.Sum256(buf[:n]) != c.Sum {
		return nil, fault.New(op, fault.Damaged, "", fmt.Errorf("chunk %s %w", c.Name(), ErrOther))
	}
	return buf[:n], nil
}

var (
	ErrMissing = errors.New("is missing")
	ErrOther   = errors.New("is other than its name")
)

// CopyTo writes bytes of a file: from skip on, at most max of them when max is
// not negative.
func (s *Store) CopyTo(ctx context.Context, m *Manifest, skip, max int64, w io.Writer) error {
	var buf []byte
	for _, c := range m.Chunks {
		if max == 0 {
			return nil
		}
		if n := int64(c.Len); skip >= n {
			skip -= n
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		b, err := s.read(c, buf)
		if err != nil {
			return err
		}
		buf = b
		b = b[skip:]
		skip = 0
		if max >= 0 {
			b = b[:min(max, int64(len(b)))]
			max -= int64(len(b))
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// SyncNames makes the names of all chunks durable: after an engine that died, an existing
// chunk may not be on disk yet.
func (s *Store) SyncNames() error {
	dirs, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, d := range dirs {
		if d.IsDir() {
			if err := durable.SyncDir(filepath.Join(s.dir, d.Name())); err != nil {
				return err
			}
		}
	}
	if len(dirs) == 0 {
		return nil
	}
	return durable.SyncDir(s.dir)
}

// isName reports whether a name is one that a chunk can have.
func isName(name string) bool { return len(name) == 2*sha256.Size && wire.IsHex(name) }

// Named is the reverse of name.
func Named(name string, size uint32) (c Ref, ok bool) {
	if !isName(name) || size == 0 || size > maxChunk {
		return c, false
	}
	_, err := hex.Decode(c.Sum[:], []byte(name))
	c.Len = size
	return c, err == nil
}
