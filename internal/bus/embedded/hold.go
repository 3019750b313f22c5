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

// A server that can't open the files of a stream deletes them: that the disk has no
// room for one more file is enough. So each file has a second name, in heldDir, from
// before the server opens its stream until it has; what is gone then is put back by
// that. A process that dies meanwhile leaves the names to the next one, which puts
// back before it looks what there is (recovery.Look).

// heldDir is beside the server's own directory. The names in it are the files' paths
// below that one, escaped, so that a disk that is nearly full need make no directory.
const heldDir = "held"

// Opening calls open, which is to have the server open a stream, whose files outlive
// that it fails.
func (s *Server) Opening(name string, open func() error) error {
	s.opening.Lock()
	defer s.opening.Unlock()
	if err := s.hold(name); err != nil {
		return err
	}
	err := open()
	if apiErr := (*jetstream.APIError)(nil); err != nil && !errors.As(err, &apiErr) {
		return err // the server may still be at it: the names stay
	}
	if err == nil {
		delete(s.shut, name)
	}
	return errors.Join(err, s.release(name))
}

// Looking calls look, which reads or moves files of streams that are closed, while no
// server is being started on them.
func (s *Server) Looking(look func() error) error {
	s.starting.RLock()
	defer s.starting.RUnlock()
	return look()
}

// hold gives each file of a stream, or with no name of every stream, a second name.
func (s *Server) hold(name string) error {
	if err := s.release(name); err != nil { // of who never learned what became of it
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

// release puts back what the server deleted, tells it, and takes the second names away.
func (s *Server) release(name string) error {
	back, err := putBack(s.dir, name)
	if len(back) > 0 {
		s.log.Warn("the server deleted files of a log that it could not open; they were put back", "files", back)
	}
	return err
}

// PutBack puts back what a server that has ended deleted of a stream that it could not
// open, or with no name of every one, in the store at dir. On disk nothing is left of the
// second names when it returns: whoever moves the stream then moves all of it.
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

// putBack does that, and says what was gone.
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
	for h := range held { // once all are there
		if err := os.Remove(filepath.Join(dir, heldDir, h)); err != nil {
			return back, fault.Wrap("release the files of a log", err)
		}
	}
	return back, nil
}

// restore gives a file below dir its first name again, on disk.
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

// Held names streams of which a server deleted what is there by its second name only,
// in the store at dir, from which nobody runs a server. Nothing is written.
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

// held are the second names of a stream's files, or of every one's, with what they
// stand for.
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
