package tether

import (
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"time"

	"choir.dev/choiros/internal/defence"
)

// Frame layout of the multiplexer: version, type, flags (2), stream (4), length (4).
const (
	frameHeader = 12
	frameData   = 0
	frameWindow = 1
	framePing   = 2
	frameGoAway = 3
	flagSYN     = 1
)

// guard checks the frames that a peer sends before the multiplexer handles them, because
// some cost the multiplexer a goroutine (a ping) or a stream (a SYN) each, without a limit
// of its own.
type guard struct {
	net.Conn
	limits Limits
	broken func(error) // called once, before Read returns the error

	header [frameHeader]byte
	have   int    // how many bytes of the header have been read
	body   uint32 // bytes of a data frame still to come
	pings  bucket
	opens  bucket
	err    error
	once   sync.Once
}

func newGuard(conn net.Conn, limits Limits, broken func(error)) *guard {
	now := time.Now()
	return &guard{
		Conn: conn, limits: limits, broken: broken,
		pings: bucket{level: 32, size: 32, perSecond: 8, at: now},
		opens: bucket{level: float64(4 * limits.Streams), size: float64(4 * limits.Streams), perSecond: limits.OpensPerSecond, at: now},
	}
}

func (g *guard) Read(p []byte) (int, error) {
	if g.err != nil {
		return 0, g.err
	}
	n, err := g.Conn.Read(p)
	if bad := g.inspect(p[:n]); bad != nil {
		g.err = bad
		g.once.Do(func() { g.broken(bad) })
		return 0, bad
	}
	return n, err
}

func (g *guard) inspect(p []byte) error {
	for len(p) > 0 {
		if g.body > 0 {
			n := min(uint32(len(p)), g.body)
			g.body -= n
			p = p[n:]
			continue
		}
		n := copy(g.header[g.have:], p)
		g.have += n
		p = p[n:]
		if g.have < frameHeader {
			return nil
		}
		g.have = 0
		if err := g.frame(); err != nil {
			return err
		}
	}
	return nil
}

func (g *guard) frame() error {
	kind := g.header[1]
	flags := binary.BigEndian.Uint16(g.header[2:4])
	length := binary.BigEndian.Uint32(g.header[8:12])
	if g.header[0] != 0 || kind > frameGoAway || flags > 15 {
		return fmt.Errorf("tether: frame of version %d, type %d, flags %#x", g.header[0], kind, flags)
	}
	switch kind {
	case frameData:
		if int64(length) > int64(g.limits.Window) {
			return fmt.Errorf("tether: frame of %d bytes, the limit is %d", length, g.limits.Window)
		}
		g.body = length
	case framePing:
		if flags&flagSYN != 0 && !g.pings.take() && !defence.Off(defence.TetherPings) {
			return fmt.Errorf("tether: too many pings")
		}
	}
	if kind <= frameWindow && flags&flagSYN != 0 && !g.opens.take() && !defence.Off(defence.TetherOpens) {
		return fmt.Errorf("tether: streams are opened faster than %v in a second", g.limits.OpensPerSecond)
	}
	return nil
}

// joined writes a frame's header together with the frame's content. The multiplexer writes
// one after the other, so that without this the other end would be woken twice, and read
// twice, for each frame. Only the multiplexer's sending goroutine writes.
type joined struct {
	net.Conn
	header [frameHeader]byte
	held   bool   // whether header belongs to a frame whose content comes with the next Write
	small  []byte // a buffer for a whole small frame
}

// smallFrame is how much content is copied behind its header; longer content is written
// from where it is.
const smallFrame = 4 << 10

func (j *joined) Write(p []byte) (int, error) {
	if !j.held {
		if len(p) == frameHeader && p[1] == frameData && binary.BigEndian.Uint32(p[8:]) > 0 {
			j.held = true
			return copy(j.header[:], p), nil
		}
		return j.Conn.Write(p)
	}
	j.held = false
	var err error
	if len(p) <= smallFrame {
		j.small = append(append(j.small[:0], j.header[:]...), p...)
		_, err = j.Conn.Write(j.small)
	} else {
		whole := net.Buffers{j.header[:], p}
		_, err = whole.WriteTo(j.Conn)
	}
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// bucket is a token bucket; used by one goroutine.
type bucket struct {
	level, size, perSecond float64
	at                     time.Time
}

func (b *bucket) take() bool {
	if b.level < 1 {
		now := time.Now()
		b.level = min(b.size, b.level+now.Sub(b.at).Seconds()*b.perSecond)
		b.at = now
	}
	if b.level < 1 {
		return false
	}
	b.level--
	return true
}
