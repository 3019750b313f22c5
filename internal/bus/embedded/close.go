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

// The server closes streams without deleting them when it ends, but offers no way to close
// a single one: its API can only delete a stream, and disabling JetStream for an account
// closes all of the account's streams. So the method by which it closes a stream is called
// here through linkname. TestTheServerClosesStreamsAsItIsCalled compares both declarations
// with the source of the server that go.mod names.

//go:linkname lookupStream github.com/nats-io/nats-server/v2/server.(*Account).lookupStream
func lookupStream(account *server.Account, name string) (unsafe.Pointer, error)

// stopStream ends what the server runs for a stream; with deleting its files go, too.
//
//go:linkname stopStream github.com/nats-io/nats-server/v2/server.(*stream).stop
func stopStream(stream unsafe.Pointer, deleting, advisory bool) error

// CloseStream closes a stream that nobody publishes to or reads: its files stay, and the server
// frees its goroutines and buffers. Opening opens it again. Shutting a stream that is not
// open is no error.
func (s *Server) CloseStream(name string) error {
	s.opening.Lock()
	defer s.opening.Unlock()
	s.shut[name] = true // a restarted server must not open it either
	return s.stop(name)
}

// stop makes the server close a stream, if it is open. The caller holds s.opening.
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

// hide removes the descriptions of closed streams, so that a server that starts ignores
// those streams: it would cut off a stream that was damaged since, and streams are
// inspected before they are opened. The descriptions remain under the second names that
// hold gave them. If the process dies, the next one restores them like all held files.
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

// described returns the descriptions of closed streams that have a second name, relative to
// the server's own directory.
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

// show restores the descriptions that hide removed, durably.
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

// ApartDir is a directory beside the server's own. No server sees what is in it.
const ApartDir = "apart"

// Remove deletes a stream that nobody publishes to or reads, with all its files, whether it
// is open, closed, in ApartDir, or can't be opened.
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

// removeStream renames a stream's directory to a name by which a server knows that the
// stream is being deleted, and then deletes it, so that a crash does not leave a part of a
// log.
func removeStream(dir, name string) error {
	at, gone := filepath.Join(dir, name), filepath.Join(dir, "."+name)
	if err := os.RemoveAll(gone); err != nil { // left by a process that died
		return err
	}
	if err := os.Rename(at, gone); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	return errors.Join(durable.SyncDir(dir), os.RemoveAll(gone))
}
