package local

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"choir.dev/choiros/internal/process"
	"choir.dev/choiros/internal/sandbox/local/cgroup"
	"choir.dev/choiros/internal/sandbox/local/launch"
)

const (
	// mostUnderWay is how many descriptors all boxes together may have in flight: half of
	// the limit of open files of a program in a box, above which the kernel lets it send
	// none.
	mostUnderWay = 8192
	seenFor      = 500 * time.Millisecond // how long a box may have many visible descriptors in flight
	hiddenFor    = time.Second            // how long a socket may itself be in flight before it is suspected of hiding some
	hidingFor    = 10 * time.Second       // how long a box may have such sockets, whichever they are
	forgotten    = 2 * time.Second        // after this time earlier observations are dropped
	answerIn     = 5 * time.Second
)

// flights looks at descriptors in flight in Unix sockets, which the kernel counts per user.
// One goroutine uses it.
type flights struct {
	driver *Driver
	cmd    *exec.Cmd // the program that can tell how many there are
	ask    *os.File
	answer *os.File
	told   bool      // it was logged that the number can't be known
	again  time.Time // when that is tried again

	last  time.Time
	boxes map[*box]*flight
}

// flight is what was observed of a box.
type flight struct {
	many   time.Time            // since when it has had many
	hiding time.Time            // since when it has had sockets that no process holds
	hidden map[uint64]time.Time // these sockets, and since when
}

// many says whether more than limit descriptors are in flight.
func (f *flights) many(limit int64) bool {
	if time.Now().Before(f.again) {
		return false
	}
	answer, err := f.known(limit)
	if err == nil {
		return answer
	}
	f.stop()
	f.again = time.Now().Add(2 * answerIn)
	if !f.told {
		f.told = true
		f.driver.opts.Logger.Error("it is not known how many descriptors are under way in sockets: a box can keep the programs of others from passing any", "error", err)
	}
	return false
}

func (f *flights) known(limit int64) (bool, error) {
	if f.cmd == nil {
		if err := f.begin(); err != nil {
			return false, err
		}
	}
	if err := errors.Join(f.ask.SetDeadline(time.Now().Add(answerIn)), f.answer.SetDeadline(time.Now().Add(answerIn))); err != nil {
		return false, err
	}
	answer := make([]byte, 1)
	if _, err := f.ask.Write(binary.LittleEndian.AppendUint32(nil, uint32(limit))); err != nil {
		return false, err
	}
	if _, err := io.ReadFull(f.answer, answer); err != nil {
		return false, err
	}
	if answer[0] == launch.Unknown {
		return false, errors.New("the program that looks can't tell")
	}
	return answer[0] == launch.More, nil
}

// begin starts the program that looks. It ends when its input ends, or with this process.
func (f *flights) begin() error {
	in, ask, err := os.Pipe()
	if err != nil {
		return err
	}
	defer in.Close()
	answer, out, err := os.Pipe()
	if err != nil {
		return errors.Join(err, ask.Close())
	}
	defer out.Close()
	cmd := &exec.Cmd{Path: f.driver.opts.Guest, Args: []string{f.driver.opts.Guest, "launch", launch.UnderWay}, Env: []string{}, Dir: "/", Stdin: in, Stdout: out}
	if err := f.driver.starter.start(cmd, &cgroup.Group{In: f.driver.cgroups}, process.Fine); err != nil {
		return errors.Join(fmt.Errorf("start what looks at descriptors under way: %w", err), ask.Close(), answer.Close())
	}
	f.cmd, f.ask, f.answer = cmd, ask, answer
	return nil
}

func (f *flights) stop() {
	if f.cmd == nil {
		return
	}
	_, _ = f.ask.Close(), f.answer.Close() // pipes
	_ = f.cmd.Process.Kill()               // it may have ended already
	_ = f.cmd.Wait()                       // it was ended by a signal
	f.cmd = nil
}

// held says how many descriptors each box left in flight. Those in a socket that a process
// holds are visible, and belong to the box in whose network namespace the socket is, even
// if another box's process has its other end. Those in a socket that is itself in flight
// are not visible: a box that leaves one there is suspected, after those that are seen to
// hold more. Programs receive what is sent to them within moments; only what stays counts.
func (f *flights) held(boxes []*box) map[*box]int64 {
	now := time.Now()
	if now.Sub(f.last) > forgotten {
		f.boxes = nil
	}
	seen, hidden := underWay(boxes)
	after, out := make(map[*box]*flight, len(boxes)), make(map[*box]int64, len(boxes))
	for _, b := range boxes {
		was := f.boxes[b]
		if was == nil {
			was = &flight{}
		}
		is := &flight{hidden: map[uint64]time.Time{}}
		if seen[b] >= mostUnderWay/suspect {
			is.many = first(was.many, now)
			if now.Sub(is.many) >= seenFor {
				out[b] = seen[b]
			}
		}
		for _, inode := range hidden[b] {
			since := first(was.hidden[inode], now)
			is.hidden[inode], is.hiding = since, first(was.hiding, now)
			if now.Sub(since) >= hiddenFor || now.Sub(is.hiding) >= hidingFor {
				out[b] = max(out[b], mostUnderWay/suspect)
			}
		}
		after[b] = is
	}
	f.boxes, f.last = after, time.Now()
	return out
}

// first returns the earlier of two times, of which the first may be zero.
func first(was, now time.Time) time.Time {
	if was.IsZero() {
		return now
	}
	return was
}

// underWay looks into the boxes: how many descriptors are in the sockets of each that
// processes hold, and which of its sockets may contain more, because no process that can be
// looked into holds them. A listening socket contains none itself, only its connections do.
func underWay(boxes []*box) (seen map[*box]int64, hidden map[*box][]uint64) {
	owner, listens := map[uint64]*box{}, map[uint64]bool{}
	waits := map[*box]bool{} // boxes with connections that were not accepted
	for _, b := range boxes {
		sockets, unaccepted := unixSockets(b)
		for inode, listening := range sockets {
			owner[inode], listens[inode] = b, listening
		}
		waits[b] = unaccepted
	}
	seen, hidden = map[*box]int64{}, map[*box][]uint64{}
	found := map[uint64]bool{}
	for _, b := range boxes {
		looked := 0
		each(b, func(table string) bool {
			entries, err := os.ReadDir(table + "/fd")
			if err != nil {
				return true // it has ended, or its sockets are not found
			}
			for _, e := range entries {
				if looked++; looked > maxLooked {
					return false
				}
				target, err := os.Readlink(table + "/fd/" + e.Name())
				number, ok := strings.CutPrefix(target, "socket:[")
				if err != nil || !ok {
					continue
				}
				inode, err := strconv.ParseUint(strings.TrimSuffix(number, "]"), 10, 64)
				of := owner[inode]
				if err != nil || of == nil || found[inode] {
					continue
				}
				found[inode] = true
				n := inFlight(table + "/fdinfo/" + e.Name())
				if listens[inode] && n > 0 {
					of = connects(of, waits)
				}
				seen[of] += n
			}
			return true
		})
	}
	for inode, b := range owner {
		if !found[inode] && (!listens[inode] || waits[b]) {
			hidden[b] = append(hidden[b], inode)
		}
	}
	return seen, hidden
}

// connects returns the box that is responsible for descriptors in a listener's connections:
// a connection that was not accepted is in the network namespace of the process that made
// it, and the listener's box may have made none.
func connects(listener *box, waits map[*box]bool) *box {
	for b, some := range waits {
		if some && b != listener && b.computer == listener.computer {
			return b
		}
	}
	return listener
}

// unixSockets lists the Unix sockets of a box's network namespace by inode, with whether
// they listen, and says whether there are connections that were not accepted.
func unixSockets(b *box) (sockets map[uint64]bool, unaccepted bool) {
	guest := b.PID()
	f, err := os.Open("/proc/" + strconv.Itoa(guest) + "/net/unix")
	if guest == 0 || err != nil {
		return nil, false
	}
	defer f.Close()
	sockets = map[uint64]bool{}
	lines := bufio.NewScanner(f)
	lines.Scan() // the names of the columns
	for n := 0; lines.Scan() && n < maxLooked; n++ {
		f := strings.Fields(lines.Text())
		if len(f) < 7 {
			continue
		}
		inode, err := strconv.ParseUint(f[6], 10, 64)
		flags, err2 := strconv.ParseUint(f[3], 16, 64)
		if err != nil || err2 != nil {
			continue
		}
		if inode == 0 {
			unaccepted = true
			continue
		}
		sockets[inode] = flags&acceptsConnections != 0
	}
	return sockets, unaccepted
}

const acceptsConnections = 1 << 16 // a flag in the kernel's list
