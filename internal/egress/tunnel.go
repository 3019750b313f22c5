package egress

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// tunnel is two connections and the number of bytes that passed between them.
type tunnel struct {
	scope          Scope
	down, upstream net.Conn // the box's side, the host's side
	once           sync.Once
	done           chan struct{} // closed when nothing more is to be recorded
	sent           atomic.Int64  // from the box
	received       atomic.Int64  // to the box
}

func (t *tunnel) close() {
	t.once.Do(func() {
		t.down.Close() // the errors are ignored: both connections are discarded, and no client is left to be told
		t.upstream.Close()
	})
}

// run passes first to upstream, then everything in both directions, until both sides have ended,
// one has failed, or no byte has passed for idle.
func (t *tunnel) run(down io.Reader, first []byte, idle time.Duration) {
	timer := time.AfterFunc(idle, t.close)
	defer timer.Stop()
	var both sync.WaitGroup
	both.Add(1)
	go func() {
		defer both.Done()
		t.pass(t.down, t.upstream, nil, &t.received, timer, idle)
	}()
	t.pass(t.upstream, down, first, &t.sent, timer, idle)
	both.Wait()
}

func (t *tunnel) pass(to net.Conn, from io.Reader, first []byte, n *atomic.Int64, timer *time.Timer, idle time.Duration) {
	buf := make([]byte, 32<<10)
	for {
		if len(first) > 0 {
			sent, err := to.Write(first)
			n.Add(int64(sent))
			if err != nil {
				t.close()
				return
			}
			timer.Reset(idle)
		}
		k, err := from.Read(buf)
		first = buf[:k]
		if err == nil {
			continue
		}
		if k > 0 {
			sent, werr := to.Write(first)
			n.Add(int64(sent))
			if werr != nil {
				t.close()
				return
			}
		}
		// One side may have ended its stream and still read from it.
		half, ok := to.(interface{ CloseWrite() error })
		if !errors.Is(err, io.EOF) || !ok || half.CloseWrite() != nil {
			t.close()
		}
		return
	}
}
