package process

import (
	"os"

	"golang.org/x/sys/unix"
)

// Await returns when a child process has ended that nobody has waited for yet, so that the
// wait, which the caller must still do, takes no time. If Await can't know when that is, it
// returns at once.
//
// A thread that waits in the kernel instead keeps its Go processor (P) until the runtime's
// monitor takes it away after 10 ms, for which the monitor wakes up some 60 times. That
// costs more processor time than starting most commands.
func Await(child *os.Process) {
	fd, err := unix.PidfdOpen(child.Pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return
	}
	f := os.NewFile(uintptr(fd), "pidfd") // non-blocking, so that the runtime polls it
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	// An error means that it can't be polled.
	_ = raw.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || err != nil && err != unix.EINTR
	})
}
