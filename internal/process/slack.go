package process

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Fine and Coarse are by how much the kernel may wake a thread later than it asked for:
// Fine is what it allows itself where nobody says anything, Coarse what the programs of
// ours allow it that run none of anybody else's.
//
// The Go runtime has a thread that sleeps for 20 µs at a time while anything of the program
// runs or waits in a system call. With Fine it wakes every 70 µs, with Coarse every 220.
// What may come later by that is a goroutine that is ready while all processors of the
// program stand in system calls.
const (
	Fine   = 50 * time.Microsecond
	Coarse = 200 * time.Microsecond
)

// SetSlack sets by how much the kernel may wake the calling thread, and what is started
// from it, later than asked for.
func SetSlack(d time.Duration) error {
	return unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(d), 0, 0, 0)
}

// Slack is what SetSlack set for the calling thread or for who started it.
func Slack() (time.Duration, error) {
	ns, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	return time.Duration(ns), err
}

// ReexecWithCoarseTimers starts this program again, in this process and with the same
// arguments, with Coarse for all of its threads, and does not return then. It returns nil
// when they have that already, and an error when it can't be had. A thread has its slack from the one that made
// it, and the runtime's is made before anything of a program runs: so nothing but another
// start sets it.
func ReexecWithCoarseTimers() error {
	if had, err := Slack(); err != nil || had >= Coarse {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	if err := SetSlack(Coarse); err != nil {
		return err
	}
	// The kernel has none for threads of some priorities, and says that it was set: then
	// another start would change nothing, and be followed by the next.
	if has, err := Slack(); err != nil || has < Coarse {
		return err
	}
	return os.NewSyscallError("execve", syscall.Exec(program, os.Args, os.Environ()))
}
