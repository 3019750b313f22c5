package local

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// ownerFile names, in a box's run directory, the process that opened the box.
const ownerFile = "owner"

// guestFile names, in a box's run directory, the box's first process. (Not its
// namespace: the kernel gives those numbers out again at once, to anybody.)
const guestFile = "guest"

// lockName is the file in a box's run directory that is locked while anything
// of the box lives.
const lockName = "lock"

// processID names a process for good: its number and when it started, since
// numbers are used again. It is "" when there is no such process.
func processID(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The command's name is in parentheses and may hold anything.
	_, rest, ok := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
	fields := strings.Fields(rest)
	const state, started = 0, 19 // as counted after the name
	if !ok || len(fields) <= started || fields[state] == "Z" || fields[state] == "X" {
		return ""
	}
	return strconv.Itoa(pid) + " " + fields[started]
}

// living returns the number of the process that a processID names, 0 when it is
// gone.
func living(id string) int {
	pid, _, _ := strings.Cut(id, " ")
	n, err := strconv.Atoi(pid)
	if err != nil || n <= 1 || processID(n) != id {
		return 0
	}
	return n
}

// self is this process's own id, which does not change.
var self = sync.OnceValue(func() string { return processID(os.Getpid()) })

// writeOwner says that this process owns the box in run.
func writeOwner(run string) error {
	return os.WriteFile(filepath.Join(run, ownerFile), []byte(self()), 0o600)
}

// orphaned says whether the process that opened the box in run is gone.
func orphaned(run string) bool {
	data, err := os.ReadFile(filepath.Join(run, ownerFile))
	if err != nil {
		return false // it may be about to be written
	}
	return len(data) > 0 && living(string(data)) == 0
}

// killOrphans ends what holds the lock of a box whose owner is gone. Boxes die
// with their owner; a bubblewrap whose owner died while it was still setting up
// waits for a word that never comes.
func killOrphans(lock string, g *group) {
	if !orphaned(filepath.Dir(lock)) {
		return
	}
	for _, pid := range append(g.members(), holders(lock)...) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // gone meanwhile, or about to be
	}
}

// holders lists the processes that have the file open, as far as this user may
// look.
func holders(file string) []int {
	var want syscall.Stat_t
	if syscall.Stat(file, &want) != nil {
		return nil
	}
	fds, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return nil
	}
	var out []int
	for _, fd := range fds {
		var st syscall.Stat_t
		if syscall.Stat(fd, &st) != nil || st.Dev != want.Dev || st.Ino != want.Ino {
			continue
		}
		if pid, err := strconv.Atoi(strings.Split(fd, "/")[2]); err == nil && pid != os.Getpid() {
			out = append(out, pid)
		}
	}
	return out
}
