package gitstore

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/chunks"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/git"
	"choir.dev/choiros/internal/workspace/keeper/objects"
)

// KindManifest is a blob that is a manifest, beside git's own kinds of objects.
const KindManifest = "manifest"

// Check reads an object and compares it with its name. Content is returned only for objects
// that name others.
func (s *Store) Check(ctx context.Context, id, kind string) (content []byte, size int64, reason string, err error) {
	var buf bytes.Buffer
	h := &objectSum{}
	var w io.Writer = h
	switch kind {
	case "blob":
	case KindManifest:
		kind = "blob"
		w = io.MultiWriter(h, &git.PrefixBuffer{To: &buf, Max: int(chunks.MaxManifest)})
	default:
		w = io.MultiWriter(h, &buf)
	}
	got, size, err := s.reads.ReadWith(ctx, id, -1, w, h.begin)
	switch {
	case ctx.Err() != nil:
		return nil, 0, "", ctx.Err()
	case fault.Is(err, fault.NotFound):
		return nil, 0, "is missing", nil
	case fault.Is(err, fault.Missing): // git itself
		return nil, 0, "", err
	case err != nil:
		return nil, 0, "can't be read", nil
	case got != kind || h.sum() != id:
		return nil, size, "is other than its name", nil
	}
	return buf.Bytes(), size, "", nil
}

// objectSum hashes an object as it is read.
type objectSum struct{ h hash.Hash }

func (s *objectSum) begin(kind string, size int64) { s.h = objects.NewHash(kind, size) }

func (s *objectSum) Write(p []byte) (int, error) { return s.h.Write(p) }

func (s *objectSum) sum() string {
	if s.h == nil {
		return ""
	}
	return hex.EncodeToString(s.h.Sum(nil))
}

// CommitNames returns the tree and parents that a commit names.
func CommitNames(content []byte) (tree string, parents []string) {
	for line := range bytes.Lines(content) {
		key, val, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), " ")
		switch key {
		case "tree":
			tree = val
		case "parent":
			parents = append(parents, val)
		default:
			return tree, parents
		}
	}
	return tree, parents
}

// TreeNames returns the entries of a tree object, as far as it is one.
func TreeNames(content []byte) []TreeItem {
	items, _ := treeItems("", structure{kindTree, content})
	return items
}

// Replace writes an object that is damaged or missing. A damaged file under its name is
// kept aside.
func (s *Store) Replace(o objects.Object, id string) error {
	got, tmp, err := s.deflate(o)
	if err != nil {
		return err
	}
	if got != id {
		return errors.Join(fmt.Errorf("object %s changed while it was made again", id), os.Remove(tmp))
	}
	final := filepath.Join(s.gitDir, "objects", id[:2], id[2:])
	if there, err := disk.Exists(final); err != nil {
		return errors.Join(err, os.Remove(tmp))
	} else if there {
		if err := os.MkdirAll(s.Work("damaged"), 0o755); err != nil {
			return errors.Join(err, os.Remove(tmp))
		}
		if err := os.Rename(final, s.Work("damaged", id)); err != nil {
			return errors.Join(err, os.Remove(tmp))
		}
	}
	if err := s.settleLarge([]pendingObject{{tmp, final}}); err != nil {
		return err
	}
	// The long-lived processes may have cached that they could not read it.
	return s.endReaders()
}
