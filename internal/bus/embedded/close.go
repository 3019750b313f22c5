package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"unsafe" // for linkname

	"github.com/nats-io/nats-server/v2/server"

	"choir.dev/choiros/internal/durable"
	"choir.dev/choiros/internal/fault"
)

// The server closes a stream without deleting it whenever it ends, and lets nobody
// else have one closed: its requests know a delete only, and taking JetStream from an
// account closes all of that account's streams. So the method with which it ends is
// called here by its name. TestTheServerClosesStreamsAsItIsCalled holds both
// declarations against the source of the server that go.mod names.

//go:linkname lookupStream github.com/nats-io/nats-server/v2/server.(*Account).lookupStream
func lookupStream(account *server.Account, name string) (unsafe.Pointer, error)

// stopStream ends what the server runs for a stream; with deleting its files go, too.
//
//go:linkname stopStream github.com/nats-io/nats-server/v2/server.(*stream).stop
func stopStream(stream unsafe.Pointer, deleting, advisory bool) error

// Shut closes a stream that nobody publishes to or reads: its files stay, and of the
// server's goroutines and buffers nothing is left. Opening opens it again. One that
// is not open stays so.
func (s *Server) Shut(name string) error {
	s.opening.Lock()
	defer s.opening.Unlock()
	s.shut[name] = true // also for a server that is started anew
	return s.stop(name)
}

// stop has the server close a stream, should it be open. s.opening is held.
func (s *Server) stop(name string) error {
	account, err := s.server().LookupAccount(s.account)
	if err != nil {
		return fmt.Errorf("find the account: %w", err)
	}
	stream, err := lookupStream(account, name)
	if errors.Is(err, server.NewJSStreamNotFoundError()) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find the stream %s: %w", name, err)
	}
	return stopStream(stream, false, false)
}

// hide takes their descriptions from the streams that are closed, so that a server that
// starts passes over them: it would cut off one that was damaged since, and whoever is
// to open it looks at it before. What they have left is the second name that hold gave
// each file: a process that dies leaves it to the next one, as all that is held.
func (s *Server) hide() error {
	described, err := s.described()
	if err != nil || len(described) == 0 {
		return err
	}
	if err := durable.SyncDir(filepath.Join(s.dir, heldDir)); err != nil {
		return err
	}
	for _, file := range described {
		if err := os.Remove(filepath.Join(s.dir, "jetstream", file)); err != nil {
			return fault.Wrap("keep a closed log from the server", err)
		}
	}
	return nil
}

// described are the descriptions that streams which are closed have by a second name,
// relative to the server's own directory.
func (s *Server) described() ([]string, error) {
	var out []string
	for name := range s.shut {
		held, err := held(s.dir, name)
		if err != nil {
			return nil, err
		}
		for _, below := range held {
			if parts := strings.Split(below, "/"); len(parts) == 4 && parts[3] == metaFile {
				out = append(out, below)
			}
		}
	}
	return out, nil
}

// show gives them back, on disk.
func (s *Server) show() error {
	described, err := s.described()
	for _, file := range described {
		at := filepath.Join(s.dir, "jetstream", file)
		if err := os.Link(filepath.Join(s.dir, heldDir, url.PathEscape(file)), at); err != nil && !errors.Is(err, fs.ErrExist) {
			return fault.Wrap("give a closed log back", err)
		}
		if err := durable.SyncDir(filepath.Dir(at)); err != nil {
			return err
		}
	}
	return err
}

// ApartDir is beside the server's own directory: what is in it no server sees.
const ApartDir = "apart"

// Remove deletes a stream that nobody publishes to or reads, with all that is kept of
// it, be it open, closed, apart or such that a server can't open it.
func (s *Server) Remove(name string, _ func() error) error {
	s.starting.RLock()
	defer s.starting.RUnlock()
	s.opening.Lock()
	defer s.opening.Unlock()
	if err := s.stop(name); err != nil {
		return err
	}
	held, err := held(s.dir, name)
	if err != nil {
		return err
	}
	for h := range held {
		err = errors.Join(err, os.Remove(filepath.Join(s.dir, heldDir, h)))
	}
	if err != nil {
		return fault.Wrap("forget the files of "+name, err)
	}
	for _, pattern := range []string{filepath.Join("jetstream", "*", "streams"), filepath.Join(ApartDir, "*")} {
		found, err := filepath.Glob(filepath.Join(s.dir, pattern))
		if err != nil {
			return err
		}
		for _, dir := range found {
			if err := removeStream(dir, name); err != nil {
				return fault.Wrap("remove a log", err)
			}
		}
	}
	delete(s.shut, name)
	return nil
}

// removeStream takes a stream's directory away by a name under which a server takes it
// for one that is being deleted, so that no death leaves a part of a log.
func removeStream(dir, name string) error {
	at, gone := filepath.Join(dir, name), filepath.Join(dir, "."+name)
	if err := os.RemoveAll(gone); err != nil { // of who died
		return err
	}
	if err := os.Rename(at, gone); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	return errors.Join(durable.SyncDir(dir), os.RemoveAll(gone))
}
