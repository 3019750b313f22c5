package guest

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// member is a process of the box.
type member struct{ pid, parent, session int }

// processes lists what runs in the box.
func processes() []member {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	var out []member
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // it has ended meanwhile
		}
		// The name in parentheses may contain anything; the other fields follow the last
		// parenthesis.
		i := bytes.LastIndexByte(stat, ')')
		if i < 0 {
			continue
		}
		fields := strings.Fields(string(stat[i+1:]))
		if len(fields) < 4 || fields[0] == "Z" || fields[0] == "X" {
			continue
		}
		parent, _ := strconv.Atoi(fields[1])
		session, _ := strconv.Atoi(fields[3])
		out = append(out, member{pid: pid, parent: parent, session: session})
	}
	return out
}

// killTree kills a command: its session, and everything that descends from it, repeatedly
// until nothing is found. A process that has left both (a daemon) lives until its box ends.
func killTree(pid int) {
	doomed := map[int]bool{pid: true} // kept between rounds, because a dead parent is no longer listed
	for range 64 {
		all := processes()
		for again := true; again; {
			again = false
			for _, p := range all {
				if !doomed[p.pid] && p.pid != 1 && p.pid != os.Getpid() && (p.session == pid || doomed[p.parent]) {
					doomed[p.pid], again = true, true
				}
			}
		}
		found := false
		for _, p := range all {
			if doomed[p.pid] && syscall.Kill(p.pid, syscall.SIGKILL) == nil {
				found = true
			}
		}
		if !found {
			return
		}
	}
}
