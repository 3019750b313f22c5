package local

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	// mostLocks is how many locks on files there may be on the machine. The kernel counts
	// them for nobody, not even as memory. Who closes a file goes through all locks on it,
	// also those of other boxes that have the same file, such as a library: 20,000 make each
	// closing 2 ms longer, for everybody. Programs have a handful each.
	mostLocks = 8192
	// locksEvery is how often the locks are counted, for which the kernel waits some
	// milliseconds each time.
	locksEvery = time.Second
	noLocks    = 0 // the process in place of those that are gone, or can't be told
)

// locks counts locks on files. One goroutine uses it.
type locks struct {
	looked time.Time
	many   bool
	found  bool // boxes that hold many were found, so that it is looked again at once
}

// resting says whether the last look still counts.
func (l *locks) resting() bool { return time.Since(l.looked) < locksEvery && !(l.many && l.found) }

// full says whether there are more than limit.
func (l *locks) full(limit int64) bool {
	if l.resting() {
		return l.many
	}
	n := int64(0)
	eachLock(func(int) bool { n++; return n <= limit })
	l.looked, l.many = time.Now(), n > limit
	l.found = l.many
	return l.many
}

// held says how many each box has. Those on descriptors of its processes are certain, and are
// not counted further than it takes to know that it has many. A lock also stays with a
// descriptor under way, or with a mapping of a file that is closed: there it is only known
// which process locked it. If that one has ended, or nobody may look at a process, the box is
// held to have as many as it could.
func (l *locks) held(boxes []*box) map[*box]int64 {
	if l.resting() {
		return nil
	}
	owners := lockOwners(2 * mostLocks)
	out := make(map[*box]int64, len(boxes))
	l.found = false
	for _, b := range boxes {
		out[b] = locksOf(b, owners)
		l.found = l.found || out[b] >= mostLocks/suspect
	}
	return out
}

func locksOf(b *box, owners map[int]int64) int64 {
	guest := b.guestPID()
	if guest == 0 {
		return 0
	}
	n, may, looked := int64(0), int64(0), 0
	for _, pid := range descendants(guest) {
		may += owners[pid]
	}
	each(b, func(table string) bool {
		entries, err := os.ReadDir(table + "/fd")
		if err != nil {
			if unseen(b, table, err) > 0 {
				may += owners[noLocks]
			}
			return true
		}
		for _, e := range entries {
			if looked++; looked > maxLooked || n > mostLocks/enough {
				return false
			}
			info, err := os.ReadFile(table + "/fdinfo/" + e.Name())
			if err != nil {
				continue // it is closed
			}
			n += int64(bytes.Count(info, []byte("\nlock:")))
			if inFlightOf(info) > 0 {
				may += owners[noLocks]
			}
		}
		if owners[noLocks] >= mostLocks/suspect { // each lock that a mapping keeps takes one
			may += min(owners[noLocks], lines(table+"/maps", ""))
		}
		return true
	})
	return max(n, min(may, mostLocks/enough))
}

// lockOwners is how many locks each process took, of at most so many. Those of processes that
// are gone, and those of an open file, which have no process, are noLocks'.
func lockOwners(most int) map[int]int64 {
	out := map[int]int64{}
	seen := 0
	eachLock(func(pid int) bool { out[pid]++; seen++; return seen < most })
	for pid, n := range out {
		if _, err := os.Stat("/proc/" + strconv.Itoa(pid)); pid != noLocks && err != nil {
			out[noLocks] += n
			delete(out, pid)
		}
	}
	return out
}

// eachLock calls f with the process that took each lock of the machine, until f returns false.
func eachLock(f func(pid int) bool) {
	file, err := os.Open("/proc/locks")
	if err != nil {
		return // this kernel has no locks
	}
	defer file.Close()
	for all := bufio.NewScanner(file); all.Scan(); {
		// 1: POSIX  ADVISORY  READ 4711 fe:00:6348812 128 128
		field := strings.Fields(all.Text())
		if len(field) < 5 || field[1] == "->" { // who waits for one has none
			continue
		}
		pid, err := strconv.Atoi(field[4])
		if err != nil || pid < 0 {
			pid = noLocks
		}
		if !f(pid) {
			return
		}
	}
}
