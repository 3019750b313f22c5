package embedded

import "net"

// ListenAddr is the server's address, nil when it listens on no port.
func (s *Server) ListenAddr() net.Addr { return s.server().Addr() }

// FailStore makes the server restart as after a failed write.
func (s *Server) FailStore() { s.storeFailed("a write failed") }
