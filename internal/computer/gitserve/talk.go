package gitserve

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"choir.dev/choiros/internal/fault"
)

// Git's side band: each line of the answer begins with a byte that says what it is of.
const (
	bandProgress = 2
	aliveEvery   = 5 * time.Second // how long a client at most hears nothing of its push
	mostProgress = 1 << 20         // of what git says of its work, in bytes
)

// talk is what a client hears of its push: at once how far the work is, where it knows
// side bands, and at the end, once it is true, git's answer. While the client still sends
// it is told nothing: not every one reads then.
type talk struct {
	out   io.Writer
	most  int  // of a line on a band, in bytes; 0: the client knows none
	quiet bool // it wants to hear no progress, but that there is somebody

	mu       sync.Mutex
	listens  bool
	held     []byte // git's answer so far
	part     []byte // of a line that has not come whole
	waiting  []byte // said before the client listens
	progress int    // how much git said of its work
	doing    string // what is under way
	since    time.Time
	err      error // the client has gone

	stop  chan struct{}
	alive sync.WaitGroup
}

func newTalk(out io.Writer, o *pushCommands) *talk {
	t := &talk{out: out, most: o.sideband(), quiet: o.understands("quiet"), stop: make(chan struct{})}
	if t.most > 0 {
		tick := time.NewTicker(aliveEvery)
		t.alive.Go(func() {
			defer tick.Stop()
			t.keepAlive(tick.C)
		})
	}
	return t
}

// keepAlive says from time to time that the work goes on.
func (t *talk) keepAlive(tick <-chan time.Time) {
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

// listen says that all has come that the client sends: it hears now.
func (t *talk) listen() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.listens = true
	t.write(t.waiting)
	t.waiting = nil
}

// say tells what is under way.
func (t *talk) say(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.doing, t.since = what, time.Now(); !t.quiet {
		t.send(what + "\n")
	}
}

// send sends a text on the band of progress.
func (t *talk) send(text string) {
	if t.most > 0 {
		t.pass([]byte(line("\x02" + text)))
	}
}

func (t *talk) pass(b []byte) {
	if !t.listens {
		if len(t.waiting)+len(b) <= mostProgress {
			t.waiting = append(t.waiting, b...)
		}
		return
	}
	t.write(b)
}

func (t *talk) write(b []byte) {
	if t.err == nil && len(b) > 0 {
		_, t.err = t.out.Write(b)
	}
}

// Write takes what git says: progress is passed on, the rest held.
func (t *talk) Write(b []byte) (int, error) {
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

func (t *talk) hold(b []byte) {
	t.held = append(t.held, b[:min(len(b), max(0, mostSaid-len(t.held)))]...)
}

// lineLength is how long the line is that some bytes begin with, and whether they have all
// of it. What is no line is one of all there is: whoever reads the answer finds it.
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

// answer is what git said of the push itself.
func (t *talk) answer() ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held = append(t.held, t.part...); len(t.held) >= mostSaid {
		return nil, fault.New("", fault.Exhausted, "Push fewer refs at once.", errors.New("git has more to say of the push than is passed on"))
	}
	t.part = nil
	return t.held, nil
}

// end says the last of it.
func (t *talk) end(answer []byte) error {
	close(t.stop)
	t.alive.Wait()
	t.listen()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.write(answer)
	return t.err
}

// ending says when a reader has come to its end.
type ending struct {
	io.Reader
	ended func()
}

func (e *ending) Read(b []byte) (int, error) {
	n, err := e.Reader.Read(b)
	if errors.Is(err, io.EOF) {
		e.ended()
	}
	return n, err
}
