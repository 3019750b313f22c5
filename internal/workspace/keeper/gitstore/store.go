package gitstore

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"choir.dev/choiros/internal/durable"
	"choir.dev/choiros/internal/workspace/keeper/chunks"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/git"
	"choir.dev/choiros/internal/workspace/keeper/journal"
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
	root       string
	gitDir     string
	objects    string // the folder that it writes objects to
	quarantine bool   // that is not the repository's own: see MakeQuarantine
	git        *git.Program
	fileBytes  int64 // a file larger than this is kept as chunks

	known map[string]bool // trees that exist
	act   *act            // what is being written together

	refs   sync.Mutex  // one change of the refs at a time
	begins atomic.Bool // the history was made by this process and has no commit yet
	first  bool        // whether its first commit is being made

	reads  *git.Reader // of content
	names  *git.Reader // of commits and trees
	memory memory

	journal *journal.Journal
	crash   func(point string)
	Chunks  *chunks.Store
}

// NewStore returns the store of a tree. It opens nothing yet.
func NewStore(o StoreOptions) *Store {
	s := &Store{root: o.Root, gitDir: filepath.Join(o.Root, ".git"), fileBytes: o.Limits.FileBytes, known: map[string]bool{}}
	s.objects, s.git = s.File("objects"), git.New(o.Git, s.gitDir)
	s.reads, s.names = git.NewReader(s.git), git.NewReader(s.git)
	s.journal, s.crash = journal.New(s.gitDir), o.Crash
	s.Chunks = chunks.Open(s.Work("chunks"), o.Limits.ChunkBytes, o.Crash)
	return s
}

// Close makes what the journal names durable under its name, and ends the helper processes.
func (s *Store) Close() error { return errors.Join(s.journal.Close(), s.endReaders()) }

func (s *Store) endReaders() error { return errors.Join(s.reads.Close(), s.names.Close()) }

// Decided reports whether an act that failed is known to count for nothing. Otherwise the
// next start finds out whether it counts.
func (s *Store) Decided() bool { return s.journal.Whole() }

// OpenJournal applies what the journal contains, unless it is open. It must be called
// before anything is read.
func (s *Store) OpenJournal() error { return s.journal.Open() }

// Settle makes what the journal names durable under its name, and empties it.
func (s *Store) Settle() error { return s.journal.Settle() }

// Keep makes a record of a plan durable, together with what else the act writes, or before
// that if it is large.
func (s *Store) Keep(name string, content []byte) error {
	if err := s.counts(); err != nil {
		return err
	}
	if len(content) > journal.MaxRecord {
		// The journal's content for that name is older, and would be applied over it.
		if err := s.OpenJournal(); err != nil {
			return err
		}
		if err := s.journal.Outdate(); err != nil {
			return err
		}
		dir := filepath.Dir(s.Work(name))
		return errors.Join(os.MkdirAll(dir, 0o755), disk.WriteDurably(s.Work(name), content), durable.SyncDir(filepath.Dir(dir)), durable.SyncDir(s.Work()))
	}
	return s.keep(journal.File{Name: workDir + "/" + name, Content: content})
}

// Note is Keep for what need not be durable by itself: a later act makes it durable.
func (s *Store) Note(name string, content []byte) error {
	if len(content) > journal.MaxRecord || s.act != nil {
		return s.Keep(name, content)
	}
	if err := errors.Join(s.counts(), s.OpenJournal()); err != nil {
		return err
	}
	return s.journal.NoteAndPlace(journal.File{Name: workDir + "/" + name, Content: content})
}

// Forget removes records. After a crash they may come back, but only as if nothing had been
// removed.
func (s *Store) Forget(names ...string) error { return s.forget(names, false) }

// ForgetForGood is Forget for what must not come back without what is removed with it.
func (s *Store) ForgetForGood(names ...string) error {
	err := s.forget(names, true)
	if err == nil {
		s.crash("journal.synced")
	}
	return err
}

func (s *Store) forget(names []string, sync bool) error {
	var gone []journal.File
	for _, name := range names {
		gone = append(gone, journal.File{Name: workDir + "/" + name, Gone: true})
	}
	if err := s.OpenJournal(); err != nil {
		return err
	}
	return s.journal.Note(gone, sync)
}

// Read streams one object to w and returns its kind and size. Content beyond max
// (when max >= 0) is not delivered; the returned size is the whole.
func (s *Store) Read(ctx context.Context, id string, max int64, w io.Writer) (kind string, size int64, err error) {
	return s.reads.Read(ctx, id, max, w)
}

// ForgetTrees makes every tree be written again that is not read meanwhile.
func (s *Store) ForgetTrees() { s.known = map[string]bool{} }

// HasRefFile reports whether the file of a ref exists, whatever it contains.
func (s *Store) HasRefFile(ref string) (bool, error) {
	return disk.Exists(filepath.Join(s.gitDir, filepath.FromSlash(ref)))
}

// RemoveRefFile removes the file of a ref that may be unreadable.
func (s *Store) RemoveRefFile(ref string) error {
	return disk.RemoveIfThere(filepath.Join(s.gitDir, filepath.FromSlash(ref)))
}

// Git runs a git command and returns its standard output.
func (s *Store) Git(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error) {
	return s.git.Run(ctx, stdin, args...)
}

// GitLine runs a git command that prints one line.
func (s *Store) GitLine(ctx context.Context, args ...string) (string, error) {
	return s.git.Line(ctx, args...)
}
