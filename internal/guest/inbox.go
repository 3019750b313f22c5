package guest

import (
	"io"
	"sync"
)

// inputWindow is how much input the host may send before the command has taken it. Input is
// acknowledged, as in flow control, so that the stream is always read: a signal or the
// host's disconnecting never waits behind input that nobody reads.
const inputWindow = 256 << 10

// inbox holds input that has arrived and was not taken yet.
type inbox struct {
	mu     sync.Mutex
	more   *sync.Cond
	buf    []byte
	closed bool
	taken  func(n int)
}

func newInbox(taken func(n int)) *inbox {
	b := &inbox{taken: taken}
	b.more = sync.NewCond(&b.mu)
	return b
}

// put adds input; it returns false if the host sent more than the window allows.
func (b *inbox) put(p []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.buf)+len(p) > inputWindow {
		return false
	}
	if !b.closed {
		b.buf = append(b.buf, p...)
		b.more.Signal()
	}
	return true
}

func (b *inbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.more.Broadcast()
}

func (b *inbox) Read(p []byte) (int, error) {
	b.mu.Lock()
	for len(b.buf) == 0 && !b.closed {
		b.more.Wait()
	}
	n := copy(p, b.buf)
	b.buf = b.buf[:copy(b.buf, b.buf[n:])]
	b.mu.Unlock()
	if n == 0 {
		return 0, io.EOF
	}
	b.taken(n)
	return n, nil
}

// credit is the host's side of the window: how much it may still send.
type credit struct {
	mu    sync.Mutex
	more  *sync.Cond
	left  int
	ended bool
}

func newCredit() *credit {
	c := &credit{left: inputWindow}
	c.more = sync.NewCond(&c.mu)
	return c
}

// take waits until something may be sent and takes at most want of it; it returns 0 if the
// stream ended.
func (c *credit) take(want int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.left == 0 && !c.ended {
		c.more.Wait()
	}
	if c.ended {
		return 0
	}
	n := min(want, c.left)
	c.left -= n
	return n
}

func (c *credit) give(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = min(c.left+n, inputWindow)
	c.more.Broadcast()
}

func (c *credit) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	c.more.Broadcast()
}
