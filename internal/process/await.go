package process

import (
	"os"

	"golang.org/x/sys/unix"
)

// Await returns when a child that nobody has waited for yet has ended, so that waiting
// for it, which is still to be done, takes no time. Where that can't be known it returns at once.
//
// A thread that waits in the kernel instead keeps its share of Go's processors until the
// runtime's watcher takes that away, after 10 ms for which the watcher wakes up some 60 times:
// more processor time than starting most commands takes.
func Await(child *os.Process) {
	fd, err := unix.PidfdOpen(child.Pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return
	}
	f := os.NewFile(uintptr(fd), "pidfd") // the runtime polls it, for it doesn't block
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	// An error is that it can't be polled.
	_ = raw.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || err != nil && err != unix.EINTR
	})
}
