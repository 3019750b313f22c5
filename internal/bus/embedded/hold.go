package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"choir.dev/choiros/internal/durable"
	"choir.dev/choiros/internal/fault"
)

// A server that can't open the files of a stream deletes them; a disk without room for
// another file is enough. So each file has a second name (a hard link) in heldDir from
// before the server opens its stream until it has, from which a deleted file is restored.
// If the process dies meanwhile, the next one restores the files before it inspects them
// (recovery.FinishAndInspect).

// heldDir is beside the server's own directory. The names in it are the files' paths below
// that directory, escaped, so that no directories need to be made on a nearly full disk.
const heldDir = "held"

// OpenStream calls open, which makes the server open a stream, and preserves the stream's
// files if that fails.
func (s *Server) OpenStream(name string, open func() error) error {
	s.opening.Lock()
	defer s.opening.Unlock()
	if err := s.hold(name); err != nil {
		return err
	}
	err := open()
	if apiErr := (*jetstream.APIError)(nil); err != nil && !errors.As(err, &apiErr) {
		return err // the server may still be opening it, so the second names stay
	}
	if err == nil {
		delete(s.shut, name)
	}
	return errors.Join(err, s.release(name))
}

// WithFiles calls use, which reads or moves files of closed streams, while no server is
// being started on them.
func (s *Server) WithFiles(use func() error) error {
	s.starting.RLock()
	defer s.starting.RUnlock()
	return use()
}

// hold gives each file of a stream a second name; without a name, those of every stream.
func (s *Server) hold(name string) error {
	if err := s.release(name); err != nil { // left by a call that did not learn whether the stream was opened
		return err
	}
	if err := os.MkdirAll(filepath.Join(s.dir, heldDir), 0o700); err != nil {
		return fault.Wrap("keep the files of logs", err)
	}
	if name == "" {
		name = "*"
	}
	store := filepath.Join(s.dir, "jetstream")
	streams, err := filepath.Glob(filepath.Join(store, "*", "streams", name))
	for _, stream := range streams {
		if strings.HasPrefix(filepath.Base(stream), ".") {
			continue // it is being deleted
		}
		err = errors.Join(err, filepath.WalkDir(stream, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return err
			}
			below, err := filepath.Rel(store, path)
			if err != nil {
				return err
			}
			return os.Link(path, filepath.Join(s.dir, heldDir, url.PathEscape(below)))
		}))
	}
	return fault.Wrap("keep the files of logs while they are opened", err)
}

// release restores the files that the server deleted, logs that, and removes the second
// names.
func (s *Server) release(name string) error {
	back, err := putBack(s.dir, name)
	if len(back) > 0 {
		s.log.Warn("the server deleted files of a log that it could not open; they were put back", "files", back)
	}
	return err
}

// PutBack restores the files that a server, which has ended, deleted because it could not
// open a stream, or any stream without a name, in the store at dir. When it returns, the
// second names are durably removed, so that whoever moves the stream then moves all of it.
func PutBack(dir, name string) error {
	left, err := held(dir, name)
	if err != nil || len(left) == 0 {
		return fault.Wrap("look for files of logs", err)
	}
	if _, err := putBack(dir, name); err != nil {
		return err
	}
	return fault.Wrap("release the files of a log", durable.SyncDir(filepath.Join(dir, heldDir)))
}

// putBack does the same without syncing, and returns the files that were missing.
func putBack(dir, name string) (back []string, err error) {
	held, err := held(dir, name)
	if err != nil {
		return nil, fault.Wrap("look for files of logs", err)
	}
	for h, below := range held {
		to := filepath.Join(dir, "jetstream", below)
		if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
			if err := restore(dir, filepath.Join(dir, heldDir, h), to); err != nil {
				return back, fault.Wrap("put the files of a log back", err)
			}
			back = append(back, below)
		} else if err != nil {
			return back, fault.Wrap("look for files of logs", err)
		}
	}
	for h := range held { // only when all files exist again
		if err := os.Remove(filepath.Join(dir, heldDir, h)); err != nil {
			return back, fault.Wrap("release the files of a log", err)
		}
	}
	return back, nil
}

// restore gives a file below dir its first name again, durably.
func restore(dir, from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	if err := os.Link(from, to); err != nil {
		return err
	}
	for at := filepath.Dir(to); at != dir; at = filepath.Dir(at) {
		if err := durable.SyncDir(at); err != nil {
			return err
		}
	}
	return nil
}

// Held returns the streams that have files which exist only under their second names, in
// the store at dir, on which no server may run. It writes nothing.
func Held(dir string) ([]string, error) {
	held, err := held(dir, "")
	if err != nil {
		return nil, fault.Wrap("look for files of logs", err)
	}
	var gone []string
	for _, below := range held {
		_, err := os.Lstat(filepath.Join(dir, "jetstream", below))
		if parts := strings.Split(below, "/"); errors.Is(err, fs.ErrNotExist) && len(parts) > 2 {
			gone = append(gone, parts[2])
		} else if err != nil {
			return nil, fault.Wrap("look for files of logs", err)
		}
	}
	slices.Sort(gone)
	return slices.Compact(gone), nil
}

// held returns the second names of a stream's files, or of every stream's, with the paths
// that they stand for.
func held(dir, name string) (map[string]string, error) {
	entries, err := os.ReadDir(filepath.Join(dir, heldDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	out := map[string]string{}
	for _, e := range entries {
		below, err := url.PathUnescape(e.Name())
		if err != nil || !filepath.IsLocal(below) {
			return nil, fmt.Errorf("%s is no name of a log's file: %w", e.Name(), err)
		}
		if parts := strings.Split(below, "/"); name == "" || len(parts) > 2 && parts[2] == name {
			out[e.Name()] = below
		}
	}
	return out, nil
}
