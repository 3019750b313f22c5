package choirtest

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// memory is, on most machines, a file system in memory.
const memory = "/dev/shm"

// Scratch returns a directory that is removed when the test ends, in memory if the machine has room
// for it: choir syncs what it acknowledges, and otherwise most of a test's time would be spent
// waiting for the disk. It is not for tests of what a disk does, nor for gigabytes.
func Scratch(t testing.TB) string {
	t.Helper()
	var st unix.Statfs_t
	const enough = 2 << 30
	if err := unix.Statfs(memory, &st); err != nil || st.Type != unix.TMPFS_MAGIC ||
		st.Flags&unix.ST_NOEXEC != 0 || int64(st.Bavail)*st.Bsize < enough || unix.Access(memory, unix.W_OK) != nil {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(memory, "choir-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("what the test left can't be removed: %v", err)
		}
	})
	return dir
}
