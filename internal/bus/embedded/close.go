package embedded

import (
	"errors"
	"fmt"
	"unsafe" // for linkname

	"github.com/nats-io/nats-server/v2/server"
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
