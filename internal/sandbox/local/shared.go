package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/sandbox"
)

const (
	sharedEvery = 100 * time.Millisecond // how often each shared resource is checked
	suspect     = 16                     // a box that holds less than one part in this many did not use it up
	maxLooked   = 1 << 17                // how many descriptors are looked at in one box; no ordinary box has so many
	enough      = 8                      // a box that holds more than one part in this many is not counted further
	unfound     = 20                     // after this many checks in a row without a culprit, none of the boxes used it up
	freeing     = time.Second            // how long the kernel may take to free what an ended box held
	room        = 8                      // its square is how many watches must be free
	watchBytes  = 128                    // of kernel memory that a watch takes at least
)

// shared is a resource of which the host's user or the machine has a fixed number, and for
// which the kernel has no limit per box.
type shared struct {
	name  string // for a person
	off   defence.Name
	limit int64
	full  func(limit int64) bool
	// held returns how many each box may hold, for comparing boxes with each other and with
	// the limit.
	held func(boxes []*box) map[*box]int64
}

// ofEach turns a count for one box into a count for all.
func ofEach(held func(b *box) int64) func([]*box) map[*box]int64 {
	return func(boxes []*box) map[*box]int64 {
		out := make(map[*box]int64, len(boxes))
		for _, b := range boxes {
			out[b] = held(b)
		}
		return out
	}
}

// guard ends boxes that use up a shared resource, so that everybody else can continue. It
// can't prevent it: the kernel has one count for the user that runs choir, and neither a
// limit nor the filter sees what is watched.
type guard struct {
	driver *Driver
	shared []*shared
	stop   context.CancelFunc
	runs   sync.WaitGroup
	epolls [room]int      // epoll instances that try to add watches
	events [room]int      // the events that they watch
	others map[string]int // checks in a row in which the resource was used up by none of the boxes

	flights flights
	locks   locks
}

func newGuard(d *Driver) (*guard, error) {
	g := &guard{driver: d, others: map[string]int{}, flights: flights{driver: d}}
	for i := range room {
		var err, err2 error
		g.epolls[i], err = unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		g.events[i], err2 = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err := errors.Join(err, err2); err != nil {
			return nil, errors.Join(fmt.Errorf("watch what boxes share: %w", err), g.release())
		}
	}
	g.shared = []*shared{
		{"epoll watches", defence.BoxEpoll, int64(readInt("/proc/sys/fs/epoll/max_user_watches")), g.noWatches, ofEach(watchesOf)},
		{"open files", defence.BoxFiles, int64(readInt("/proc/sys/fs/file-max")), nearlyNoFiles, ofEach(filesOf)},
		{"memory for TCP", defence.BoxAllSockets, socketMemory("tcp"), noSocketMemory("tcp"), ofEach(heldBySockets("tcp"))},
		{"memory for UDP", defence.BoxAllSockets, socketMemory("udp"), noSocketMemory("udp"), ofEach(heldBySockets("udp"))},
		{"memory for netlink", defence.BoxNetlink, mostNetlink, g.netlinkFull, ofEach(heldByNetlink)},
		{"descriptors under way in sockets", defence.BoxUnderWay, mostUnderWay, g.flights.many, g.flights.held},
		{"locks on files", defence.BoxLocks, mostLocks, g.locks.full, g.locks.held},
	}
	return g, nil
}

func (g *guard) start() {
	ctx, stop := context.WithCancel(context.Background())
	g.stop = stop
	g.runs.Go(func() { g.run(ctx) })
}

func (g *guard) close() error {
	g.stop()
	g.runs.Wait()
	g.flights.stop()
	return g.release()
}

func (g *guard) release() error {
	var errs []error
	for _, fd := range append(g.epolls[:], g.events[:]...) {
		if fd > 0 { // it was opened
			errs = append(errs, unix.Close(fd))
		}
	}
	return errors.Join(errs...)
}

func (g *guard) run(ctx context.Context) {
	tick := time.NewTicker(sharedEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, s := range g.shared {
			if boxes := g.boxes(); len(boxes) > 0 && s.limit > 0 && s.full(s.limit) && !defence.Off(s.off) {
				g.free(ctx, s, boxes)
			} else {
				g.others[s.name] = 0
			}
		}
	}
}

func (g *guard) boxes() []*box {
	g.driver.mu.Lock()
	defer g.driver.mu.Unlock()
	var out []*box
	for _, c := range g.driver.computers {
		out = append(out, c.list()...)
	}
	return out
}

// free ends the box that holds the most, and continues with the next until there is room or
// no box is left that can have used it up.
func (g *guard) free(ctx context.Context, s *shared, boxes []*box) {
	type holder struct {
		b *box
		n int64
	}
	var holders []holder
	for b, n := range s.held(boxes) {
		if n >= s.limit/suspect {
			holders = append(holders, holder{b, n})
		}
	}
	slices.SortFunc(holders, func(a, b holder) int { return int(b.n>>10 - a.n>>10) })
	for i, h := range holders {
		if i > 0 && g.freed(ctx, s) || ctx.Err() != nil {
			return
		}
		g.driver.opts.Logger.Warn("a box used up what all share and is ended", "box", h.b.spec.ID, "computer", h.b.computer.spec.CID, "what", s.name)
		h.b.end(sandbox.Shared, fmt.Sprintf("it used up the %s that this machine has for everybody", s.name))
		select {
		case <-h.b.done:
		case <-ctx.Done():
		case <-time.After(10 * time.Second): // it waits for a device in the kernel; another box may be the culprit
		}
	}
	if len(holders) > 0 {
		g.others[s.name] = 0
	} else if g.others[s.name]++; g.others[s.name] == unfound {
		g.driver.opts.Logger.Error("what all programs of this machine's user share is used up, by none of the boxes: others fail or wait until the program that did it ends", "what", s.name)
	}
}

// freed says whether there is room again after a box ended. The kernel takes a moment to
// free what the box held; no other box is blamed meanwhile.
func (g *guard) freed(ctx context.Context, s *shared) bool {
	for end := time.Now().Add(freeing); ; {
		if !s.full(s.limit) {
			return true
		}
		if time.Now().After(end) {
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(sharedEvery / 4):
		}
	}
}

// noWatches says whether room² more watches can't be had.
func (g *guard) noWatches(int64) bool {
	full := false
	var had [][2]int
	for _, e := range g.epolls {
		for _, w := range g.events {
			if full {
				break
			}
			err := unix.EpollCtl(e, unix.EPOLL_CTL_ADD, w, &unix.EpollEvent{Events: unix.EPOLLERR})
			if err == nil {
				had = append(had, [2]int{e, w})
			}
			full = errors.Is(err, unix.ENOSPC)
		}
	}
	for _, h := range had {
		_ = unix.EpollCtl(h[0], unix.EPOLL_CTL_DEL, h[1], nil) // it was just added
	}
	return full
}

// nearlyNoFiles says whether seven eighths of the files that the machine can open are open.
// Beyond the limit only an administrator can open more.
func nearlyNoFiles(limit int64) bool {
	data, err := os.ReadFile("/proc/sys/fs/file-nr")
	f := strings.Fields(string(data))
	if err != nil || len(f) < 3 {
		return false
	}
	open, err := strconv.ParseInt(f[0], 10, 64)
	return err == nil && open > limit/8*7
}

// watchesOf is how many watches a box may have: at most as many as fit into the memory that
// the kernel holds for it, if that is counted; if that is many, they are counted by its
// descriptors. The memory alone proves nothing, because most of it can be for files or
// processes.
func watchesOf(b *box) int64 {
	most := int64(readInt("/proc/sys/fs/epoll/max_user_watches"))
	bound := most
	if bytes := b.group.KernelBytes(); bytes > 0 {
		bound = min(most, bytes/watchBytes)
	}
	if bound < most/suspect {
		return bound
	}
	n, looked := int64(0), 0
	each(b, func(table string) bool {
		entries, err := os.ReadDir(table + "/fd")
		if err != nil {
			slots := unseen(b, table, err)
			n += slots / 2 * (slots / 2) // half of the descriptors may watch the other half
			return true
		}
		for _, e := range entries {
			if looked++; looked > maxLooked || n > most/enough {
				return false
			}
			target, err := os.Readlink(table + "/fd/" + e.Name())
			switch {
			case err != nil:
			case target == "anon_inode:[eventpoll]":
				n += lines(table+"/fdinfo/"+e.Name(), "tfd:")
			case strings.HasPrefix(target, "socket:") && inFlight(table+"/fdinfo/"+e.Name()) > 0:
				looked = max(looked, maxLooked) // sockets in flight can't be looked into
			}
		}
		return true
	})
	if looked >= maxLooked { // it hides something, so it is suspected after those that are seen to hold more
		n = max(n, most/suspect+bound/64)
	}
	return n
}

// filesOf is how many descriptors a box has, including those in flight in sockets.
func filesOf(b *box) int64 {
	var n int64
	looked := 0
	each(b, func(table string) bool {
		dir, err := os.Open(table + "/fd")
		if err != nil {
			n += unseen(b, table, err)
			return true
		}
		defer dir.Close()
		for {
			names, err := dir.Readdirnames(4096)
			n += int64(len(names))
			for _, name := range names {
				if looked++; looked < maxLooked {
					n += inFlight(table + "/fdinfo/" + name)
				}
			}
			if err != nil {
				return true
			}
		}
	})
	return n
}

// unseen is how many descriptors a table may have that can't be read, since a process can
// forbid that to others of its user. The guest forbids it, and is trusted.
func unseen(b *box, table string, err error) int64 {
	if !errors.Is(err, os.ErrPermission) || strings.HasPrefix(table, "/proc/"+strconv.Itoa(b.pid)+"/") {
		return 0 // ended
	}
	data, err := os.ReadFile(table + "/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if v, ok := strings.CutPrefix(line, "FDSize:"); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(v), 10, 64) // the kernel's own
			return n
		}
	}
	return 0
}

// each calls f with the directory in /proc of each table of descriptors in a box, until f
// returns false. Threads usually share one table, but need not.
func each(b *box, f func(table string) bool) {
	guest := b.PID()
	if guest == 0 {
		return
	}
	for _, pid := range descendants(guest) {
		threads, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/[0-9]*")
		if err != nil {
			continue
		}
		for _, t := range threads {
			tid, err := strconv.Atoi(filepath.Base(t))
			if err != nil || tid != pid && sameTable(pid, tid) {
				continue
			}
			if !f(t) {
				return
			}
		}
	}
}

// sameTable says whether a thread shares its process's descriptors.
func sameTable(pid, tid int) bool {
	const kcmpFiles = 2
	r, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(pid), uintptr(tid), kcmpFiles, 0, 0, 0)
	return errno == 0 && r == 0
}

// inFlight is how many descriptors were sent to a socket and not received.
func inFlight(fdinfo string) int64 {
	data, _ := os.ReadFile(fdinfo) // it may be closed
	return inFlightOf(data)
}

func inFlightOf(fdinfo []byte) int64 {
	for line := range strings.Lines(string(fdinfo)) {
		if v, ok := strings.CutPrefix(line, "scm_fds:"); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			return n
		}
	}
	return 0
}

// lines counts the lines of a file that begin with key.
func lines(file, key string) int64 {
	f, err := os.Open(file)
	if err != nil {
		return 0
	}
	defer f.Close()
	var n int64
	begins, buf := "\n"+key, make([]byte, 256<<10)
	last := "\n"
	for {
		k, err := f.Read(buf)
		text := last + string(buf[:k])
		n += int64(strings.Count(text, begins))
		last = text[max(0, len(text)-len(begins)+1):]
		if err != nil { // the end of the file or of the process
			return n
		}
	}
}
