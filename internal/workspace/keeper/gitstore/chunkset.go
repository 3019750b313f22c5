package gitstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// ChunkSet are chunks by the SHA-256 of what they hold.
type ChunkSet map[[sha256.Size]byte]struct{}

// Any reports whether there are chunks at all.
func (s *Chunks) Any() (found bool, err error) {
	err = s.Each(func(string, fs.FileInfo) error {
		found = true
		return fs.SkipAll
	})
	if errors.Is(err, fs.SkipAll) {
		err = nil
	}
	return found, err
}

// Remove removes a chunk if nobody stored it again meanwhile.
func (s *Chunks) Remove(name string, grace time.Duration) (bool, error) {
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

// AddChunks adds what a manifest names.
func (s *Store) AddChunks(ctx context.Context, to ChunkSet, id string) error {
	m, err := s.Manifest(ctx, id)
	if err != nil {
		return fmt.Errorf("manifest %s: %w", id, err)
	}
	for _, c := range m.Chunks {
		to[c.Sum] = struct{}{}
	}
	return nil
}

// ManifestsOf lists the manifests that stand in the trees of commits. A commit is
// compared with its parents: what it has of them is theirs. It is asked by name,
// for a manifest may be a file of somebody's as well.
func (s *Store) ManifestsOf(ctx context.Context, reply *wire.CollectReply, revs ...string) (map[string]struct{}, error) {
	found := map[string]struct{}{}
	commits, err := s.Git(ctx, nil, append(append([]string{"rev-list", "--end-of-options"}, revs...), "--")...)
	if err != nil || len(commits) == 0 {
		return found, err
	}
	reply.Commits += bytes.Count(commits, []byte{'\n'})
	raw, err := s.Git(ctx, bytes.NewReader(commits), "diff-tree", "--stdin", "--root", "-r", "-m", "-z", "--raw", "--no-abbrev", "--no-commit-id", "--no-renames",
		"--", ":(top,glob)**/*"+chunkSuffix)
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

// Check reports whether a chunk is what its name says.
func (s *Chunks) Check(c ChunkRef) error {
	_, err := s.read(c, nil)
	return err
}

// Replace writes a chunk that is damaged or missing.
func (s *Chunks) Replace(c ChunkRef, b []byte) error {
	tmp, err := s.write(b)
	if err != nil {
		return err
	}
	batch := chunkBatch{s: s, dirs: map[string]bool{}, pending: []pendingChunk{{tmp, c.Name()}}}
	return batch.finish()
}
