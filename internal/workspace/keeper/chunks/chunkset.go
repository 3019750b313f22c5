package chunks

import (
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"time"

	"choir.dev/choiros/internal/workspace/keeper/disk"
)

// Set is a set of chunks by their SHA-256.
type Set map[[sha256.Size]byte]struct{}

// Any reports whether there are chunks at all.
func (s *Store) Any() (found bool, err error) {
	err = s.Each(func(string, fs.FileInfo) error {
		found = true
		return fs.SkipAll
	})
	if errors.Is(err, fs.SkipAll) {
		err = nil
	}
	return found, err
}

// Remove removes a chunk unless somebody stored it again meanwhile.
func (s *Store) Remove(name string, grace time.Duration) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, err := os.Lstat(s.Path(name))
	if err != nil || time.Since(st.ModTime()) < grace {
		return false, disk.IgnoreGone(err)
	}
	if err := os.Remove(s.Path(name)); err != nil {
		return false, err
	}
	s.taken -= st.Size()
	return true, nil
}

// Check reports whether a chunk's content matches its name.
func (s *Store) Check(c Ref) error {
	_, err := s.read(c, nil)
	return err
}

// Replace writes a chunk that is damaged or missing.
func (s *Store) Replace(c Ref, b []byte) error {
	tmp, err := s.write(b)
	if err != nil {
		return err
	}
	one := batch{store: s, dirs: map[string]bool{}, pending: []pending{{tmp, c.Name()}}}
	return one.finish()
}
