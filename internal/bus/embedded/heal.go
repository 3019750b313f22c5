package embedded

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/fault"
)

const (
	healEvery = 500 * time.Millisecond
	healSpace = 8 << 20 // bytes that must be free before the server is restarted
)

// Once a write to its file fails, a stream accepts nothing more and does not answer
// publishers until the server is restarted. So failures are recognised in the server's own
// log, Health reports them at once, and the server is restarted when the disk has space and
// can be written.

// Health returns nil while the store accepts events; otherwise fault.DiskFull or
// fault.Unavailable, and appends will fail.
func (s *Server) Health() error {
	s.health.Lock()
	defer s.health.Unlock()
	return s.broken
}

func (s *Server) storeFailed(text string) {
	// The path is left out, because this text is shown to whoever appends to the log.
	code, hint, why := fault.Unavailable, "Look at the disk that holds the data directory.", text
	if i := strings.LastIndex(text, ": "); i >= 0 {
		why = text[i+2:]
	}
	switch {
	case fault.NoSpaceText(text):
		code, hint, why = fault.DiskFull, fault.FreeSpace, "the disk is full"
	case strings.Contains(text, unix.EROFS.Error()):
		hint, why = fault.Unwritable, "the disk that holds the data directory can only be read"
	}
	text = "the log takes no more: " + why
	s.health.Lock()
	s.broken = fault.New("store", code, hint, errors.New(text))
	s.health.Unlock()
	select {
	case s.heal <- struct{}{}:
	default:
	}
}

// FailedReads returns how many reads failed because a block of a stream could not be opened or
// read, and why the last one failed. The server answers such reads as if there were no such
// message, so that answer counts only if the number is the same before and after.
func (s *Server) FailedReads() (uint64, error) {
	s.health.Lock()
	defer s.health.Unlock()
	return s.failedReads, s.failedReadWhy
}

func (s *Server) readFailed(text string) {
	why := text
	if i := strings.LastIndex(text, ": "); i >= 0 {
		why = text[i+2:] // without the path
	}
	err := errors.New(why)
	for _, errno := range []unix.Errno{unix.EMFILE, unix.ENFILE, unix.ENOMEM} {
		if why == errno.Error() {
			err = errno // fault.HintOf has a hint for it
		}
	}
	s.health.Lock()
	defer s.health.Unlock()
	s.failedReads++
	s.failedReadWhy = fmt.Errorf("the log's store can't be read now: %w", err)
}

func (s *Server) server() *server.Server {
	s.health.Lock()
	defer s.health.Unlock()
	return s.srv
}

// provider connects to whichever server runs now.
type provider struct{ server *Server }

// InProcessConn implements nats.InProcessConnProvider.
func (p provider) InProcessConn() (net.Conn, error) { return p.server.server().InProcessConn() }

func (s *Server) startServer(wait time.Duration) error {
	s.opening.Lock()
	defer s.opening.Unlock()
	if err := s.hold(""); err != nil {
		return err
	}
	if err := s.hide(); err != nil {
		return err
	}
	if err := syncStore(filepath.Join(s.dir, "jetstream")); err != nil {
		return fault.Wrap("sync store", err)
	}
	if err := finishChanges(filepath.Join(s.dir, "jetstream")); err != nil {
		return fault.Wrap("finish a stream's change", err)
	}
	srv, err := server.NewServer(s.options.Clone())
	if err != nil {
		return fmt.Errorf("configure server: %w", err)
	}
	srv.SetLoggerV2(serverLog{s.log, s.storeFailed, s.readFailed}, false, false, false)
	s.health.Lock()
	s.srv = srv
	s.health.Unlock()
	srv.Start()
	if !srv.ReadyForConnections(wait) {
		return fault.New("start server", fault.Unavailable, "Look at the log for what the server says about its store.", errors.New("server is not ready"))
	}
	if err := s.show(); err != nil {
		return err
	}
	return s.release("")
}

// startAnew restarts the server after its store failed, when nobody is reading or moving
// files of logs.
func (s *Server) startAnew() error {
	s.starting.Lock()
	defer s.starting.Unlock()
	old := s.server()
	old.Shutdown()
	old.WaitForShutdown()
	s.health.Lock()
	s.broken = nil // from here on, the new server's reports count
	s.health.Unlock()
	err := s.startServer(readyTimeout)
	if err != nil {
		s.server().Shutdown() // before somebody restores the files that were hidden from it
		s.server().WaitForShutdown()
	}
	return err
}

// keepHealthy restarts the server after its store has failed, once the disk has space.
// Connections break and reconnect; acknowledged events are preserved.
func (s *Server) keepHealthy() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.heal:
		}
		for s.Health() != nil {
			select {
			case <-s.ctx.Done():
				return
			case <-time.After(healEvery):
			}
			if free, err := freeSpace(s.dir); err != nil || free < healSpace || !writable(s.dir) {
				continue
			}
			if err := s.startAnew(); err != nil {
				s.storeFailed(err.Error())
				continue
			}
			s.log.Info("the log's store was started anew")
		}
	}
}

// writable reports whether files can be written in a directory. On a read-only disk a
// server does not become ready and gives no reason; and after an error a file system may
// refuse writes without being reported as read-only.
func writable(dir string) bool {
	f, err := os.CreateTemp(dir, ".tmp-*")
	if err != nil {
		return false
	}
	_, err = f.Write([]byte{0})
	return errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name())) == nil
}

func freeSpace(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return st.Bavail * uint64(st.Bsize), nil
}
