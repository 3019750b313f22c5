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
	// mostLocks is how many locks on files there may be on the machine. Programs have a handful
	// each, the kernel counts them for nobody, and who closes a file goes through all on it.
	mostLocks  = 8192
	locksEvery = time.Second // how often they are counted, for which the kernel waits some milliseconds
)

// locks counts locks on files. One goroutine uses it.
type locks struct {
	looked      time.Time
	many, found bool // found: boxes that hold many are known, so that it is looked again at once
}

// resting says whether the last look still counts.
func (l *locks) resting() bool { return time.Since(l.looked) < locksEvery && !(l.many && l.found) }

// full says whether there are more than limit.
func (l *locks) full(limit int64) bool {
	if l.resting() {
		return l.many
	}
	n := int64(0)
	eachLock(func(int, string) bool { n++; return n <= limit })
	l.looked, l.many, l.found = time.Now(), n > limit, n > limit
	return l.many
}

// held says how many each box has. Those on descriptors of its processes are certain, and
// count before all others. A lock also stays with a mapping of a file that is closed, or with
// a descriptor under way: there it is only known which process locked it, or, when that one
// has ended, which file is locked. A box that hides descriptors is suspected last.
func (l *locks) held(boxes []*box) map[*box]int64 {
	if l.resting() {
		return nil
	}
	o := lockOwners(2 * mostLocks)
	out := ofEach(o.of)(boxes)
	l.found = false
	for _, n := range out {
		l.found = l.found || n >= mostLocks/suspect
	}
	return out
}

// owners says whose the machine's locks are.
type owners struct {
	took   map[int]int64   // by the process that took them, of those that live
	gone   int64           // those of processes that have ended, and of open files, which have no process
	locked map[string]bool // their files, by device and inode
}

// lockOwners looks at so many locks at most.
func lockOwners(most int) owners {
	o, n, files := owners{took: map[int]int64{}, locked: map[string]bool{}}, 0, map[int][]string{}
	eachLock(func(pid int, file string) bool {
		files[pid] = append(files[pid], file)
		n++
		return n < most
	})
	for pid, on := range files {
		if _, err := os.Stat("/proc/" + strconv.Itoa(pid)); pid > 0 && err == nil {
			o.took[pid] = int64(len(on))
			continue
		}
		o.gone += int64(len(on))
		for _, file := range on {
			o.locked[file] = true
		}
	}
	return o
}

// of is how many locks a box has, for comparing it with others: it is not counted further
// than it takes to know that it has many.
func (o owners) of(b *box) int64 {
	sure, may, hides, looked := int64(0), int64(0), false, 0
	for _, pid := range descendants(b.PID()) {
		may += o.took[pid]
	}
	each(b, func(table string) bool {
		if o.gone > 0 {
			may += o.mapped(table + "/maps")
		}
		entries, err := os.ReadDir(table + "/fd")
		if err != nil {
			hides = hides || unseen(b, table, err) > 0
			return true
		}
		for _, e := range entries {
			if looked++; looked > maxLooked || sure > mostLocks/enough {
				return false
			}
			info, _ := os.ReadFile(table + "/fdinfo/" + e.Name()) // it may be closed
			sure += int64(bytes.Count(info, []byte("\nlock:")))
			hides = hides || inFlightOf(info) > 0
		}
		return true
	})
	if sure >= mostLocks/suspect {
		return mostLocks + sure + may
	}
	if hides && o.gone >= mostLocks/suspect {
		return max(may, mostLocks/suspect)
	}
	return may
}

// mapped counts the mappings in a list of the kernel's of files on which there are locks of
// processes that have ended.
func (o owners) mapped(maps string) (n int64) {
	data, _ := os.ReadFile(maps) // it may have ended, or nobody may look
	for line := range strings.Lines(string(data)) {
		// 7f5e00000000-7f5e00001000 r--s 00000000 fe:00 6348812    /tmp/file
		if field := strings.Fields(line); len(field) > 4 && o.locked[field[3]+":"+field[4]] {
			n++
		}
	}
	return n
}

// eachLock calls f with the process that took each lock of the machine and the file that it is
// on, until f returns false.
func eachLock(f func(pid int, file string) bool) {
	list, err := os.Open("/proc/locks")
	if err != nil {
		return // this kernel has no locks
	}
	defer list.Close()
	for all := bufio.NewScanner(list); all.Scan(); {
		// 1: POSIX  ADVISORY  READ 4711 fe:00:6348812 128 128
		field := strings.Fields(all.Text())
		if len(field) < 6 || field[1] == "->" { // who waits for one has none
			continue
		}
		if pid, err := strconv.Atoi(field[4]); err == nil && !f(pid, field[5]) {
			return
		}
	}
}
