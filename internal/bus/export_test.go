package bus

import "net"

// ListenAddr is the server's address, nil when it listens on no port.
func (b *Bus) ListenAddr() net.Addr { return b.server().Addr() }
