package gitserve

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"choir.dev/choiros/internal/fault"
)

// Git's side bands: the first byte of each line of the answer says which band it belongs
// to.
const (
	bandProgress = 2
	aliveEvery   = 5 * time.Second // how often a client hears something about its push at least
	mostProgress = 1 << 20         // bytes of git's progress output
)

// pushReply is the answer to a push: if the client has side bands, it hears of the progress at
// once, and when the push is published it gets git's answer. While the client still sends,
// nothing is written to it, because not every client reads then.
type pushReply struct {
	out   io.Writer
	most  int  // bytes of a line on a band; 0: the client has no side bands
	quiet bool // the client wants no progress, only signs of life

	mu       sync.Mutex
	listens  bool
	held     []byte // git's answer so far
	part     []byte // the beginning of a line that is incomplete
	waiting  []byte // progress from before the client listens
	progress int    // how many bytes of progress git wrote
	doing    string // the current step
	since    time.Time
	err      error // writing to the client failed

	stop  chan struct{}
	alive sync.WaitGroup
}

func newPushReply(out io.Writer, o *pushCommands) *pushReply {
	t := &pushReply{out: out, most: o.sideband(), quiet: o.understands("quiet"), stop: make(chan struct{})}
	if t.most > 0 {
		tick := time.NewTicker(aliveEvery)
		t.alive.Go(func() {
			defer tick.Stop()
			t.keepAlive(tick.C)
		})
	}
	return t
}

// keepAlive writes from time to time that the work continues.
func (t *pushReply) keepAlive(tick <-chan time.Time) {
	for {
		select {
		case <-t.stop:
			return
		case now := <-tick:
			t.mu.Lock()
			switch {
			case t.quiet || t.doing == "":
				t.send("")
			default:
				t.send(fmt.Sprintf("%s: %d s\r", t.doing, int(now.Sub(t.since).Seconds())))
			}
			t.mu.Unlock()
		}
	}
}

// listen records that the client has sent everything, and so reads now.
func (t *pushReply) listen() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.listens = true
	t.write(t.waiting)
	t.waiting = nil
}

// say reports the current step.
func (t *pushReply) say(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.doing, t.since = what, time.Now(); !t.quiet {
		t.send(what + "\n")
	}
}

// send sends a text on the progress band.
func (t *pushReply) send(text string) {
	if t.most > 0 {
		t.pass([]byte(line("\x02" + text)))
	}
}

func (t *pushReply) pass(b []byte) {
	if !t.listens {
		if len(t.waiting)+len(b) <= mostProgress {
			t.waiting = append(t.waiting, b...)
		}
		return
	}
	t.write(b)
}

func (t *pushReply) write(b []byte) {
	if t.err == nil && len(b) > 0 {
		_, t.err = t.out.Write(b)
	}
}

// Write takes git's output: progress is passed on, the rest held.
func (t *pushReply) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.most == 0 {
		t.hold(b)
		return len(b), nil
	}
	for t.part = append(t.part, b...); ; {
		n, whole := lineLength(t.part)
		if !whole {
			return len(b), nil
		}
		one := t.part[:n]
		if t.part = t.part[n:]; n > 4 && one[4] == bandProgress {
			if t.progress += n; t.progress <= mostProgress {
				t.pass(one)
			}
		} else {
			t.hold(one)
		}
	}
}

func (t *pushReply) hold(b []byte) {
	t.held = append(t.held, b[:min(len(b), max(0, mostSaid-len(t.held)))]...)
}

// lineLength returns the length of the packet line with which b begins, and whether b
// contains all of it. Bytes that are no packet line count as one line of all of b, which
// whoever parses the answer refuses.
func lineLength(b []byte) (n int, whole bool) {
	if len(b) < 4 {
		return 0, false
	}
	if _, err := fmt.Sscanf(string(b[:4]), "%04x", &n); err != nil || n > 0 && n < 4 {
		return len(b), true
	}
	n = max(n, 4)
	return n, n <= len(b)
}

// answer returns what git said about the push itself.
func (t *pushReply) answer() ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held = append(t.held, t.part...); len(t.held) >= mostSaid {
		return nil, fault.New("", fault.Exhausted, "Push fewer refs at once.", errors.New("git has more to say of the push than is passed on"))
	}
	t.part = nil
	return t.held, nil
}

// end writes git's answer and stops the signs of life.
func (t *pushReply) end(answer []byte) error {
	close(t.stop)
	t.alive.Wait()
	t.listen()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.write(answer)
	return t.err
}

// onEndReader is a reader that calls a function at its end.
type onEndReader struct {
	io.Reader
	ended func()
}

func (e *onEndReader) Read(b []byte) (int, error) {
	n, err := e.Reader.Read(b)
	if errors.Is(err, io.EOF) {
		e.ended()
	}
	return n, err
}
