package gitstore

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"

	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// StoreOptions say which repository a store works on.
type StoreOptions struct {
	Root   string // the tree whose .git it is
	Git    string // the program
	Limits wire.Limits
	Crash  func(point string)
}

// Store is the repository of one tree: objects, chunks of large files, trees,
// commits and refs. Reading, and changing refs, may be done concurrently;
// whatever writes objects takes turns.
type Store struct {
	root      string
	gitDir    string
	program   string
	fileBytes int64 // above it a file is kept as chunks

	known map[string]bool // trees that exist
	batch *[]pendingObject

	refs   sync.Mutex  // one change of the refs at a time
	begins atomic.Bool // the history was made by this process and has no commit yet

	reads  *reader // of content
	names  *reader // of commits and trees
	memory memory
	Chunks *Chunks
}

// NewStore returns the store of a tree. It opens nothing yet.
func NewStore(o StoreOptions) *Store {
	s := &Store{root: o.Root, gitDir: filepath.Join(o.Root, ".git"), program: o.Git, fileBytes: o.Limits.FileBytes, known: map[string]bool{}}
	s.reads, s.names = &reader{s: s}, &reader{s: s}
	s.Chunks = &Chunks{dir: s.Work("chunks"), max: o.Limits.ChunkBytes, crash: o.Crash}
	return s
}

// Close ends the helper processes.
func (s *Store) Close() error { return errors.Join(s.reads.close(), s.names.close()) }

// Read streams one object to w and returns its kind and size. Content beyond max
// (when max >= 0) is not delivered; the returned size is the whole.
func (s *Store) Read(ctx context.Context, id string, max int64, w io.Writer) (kind string, size int64, err error) {
	return s.reads.read(ctx, id, max, w)
}

// ForgetTrees has every tree written anew that is not read meanwhile.
func (s *Store) ForgetTrees() { s.known = map[string]bool{} }

// HasRefFile reports whether the file of a ref is there, whatever it holds.
func (s *Store) HasRefFile(ref string) (bool, error) {
	return disk.Exists(filepath.Join(s.gitDir, filepath.FromSlash(ref)))
}

// RemoveRefFile removes the file of a ref that may be unreadable.
func (s *Store) RemoveRefFile(ref string) error {
	return disk.RemoveIfThere(filepath.Join(s.gitDir, filepath.FromSlash(ref)))
}
