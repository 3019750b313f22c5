package local

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"choir.dev/choiros/internal/process"
	"choir.dev/choiros/internal/sandbox/local/cgroup"
)

// ownerFile names, in a box's run directory, the process that opened the box.
const ownerFile = "owner"

// guestFile names, in a box's run directory, the box's first process. (It does not name the
// namespace, because the kernel reuses those numbers at once.)
const guestFile = "guest"

// lockName is the file in a box's run directory that is locked while anything
// of the box lives.
const lockName = "lock"

// writeOwner records that this process owns the box in run.
func writeOwner(run string) error {
	return os.WriteFile(filepath.Join(run, ownerFile), []byte(process.Self()), 0o600)
}

// orphaned says whether the process that opened the box in run is gone.
func orphaned(run string) bool {
	data, err := os.ReadFile(filepath.Join(run, ownerFile))
	if err != nil {
		return false // it may be about to be written
	}
	return len(data) > 0 && process.Living(string(data)) == 0
}

// killOrphans ends the processes that hold the lock of a box whose owner is gone. Boxes die
// with their owner; but a bubblewrap whose owner died during the setup waits for a message
// that never comes.
func killOrphans(lock string, g *cgroup.Group) {
	if !orphaned(filepath.Dir(lock)) {
		return
	}
	for _, pid := range append(g.Members(), holders(lock)...) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended meanwhile
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
