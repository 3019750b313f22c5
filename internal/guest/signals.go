package guest

import (
	"fmt"
	"os"
	"os/signal"
	"unsafe"

	"golang.org/x/sys/unix"
)

// unhandled are the signals that Go leaves to a C library, which the guest has
// not: nothing sets a handler for them.
var unhandled = []uintptr{32, 34}

// caught are the signals that a Go program, left to itself, ends, stops or crashes at,
// and the one that tells of a child's end. At each other one the handler that Go sets for
// it does nothing. Each of them costs two changes of threads when the guest starts,
// so it asks for no more than these.
var caught = []os.Signal{
	unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGABRT, unix.SIGTRAP, unix.SIGSTKFLT, unix.SIGSYS,
	unix.SIGILL, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV, // as somebody sent them; those of a mistake here end the guest
	unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGCHLD,
}

// catch sees to it that no signal ends or stops the guest, for a process of the box may
// send any. A signal nobody handles does not end process 1 of a namespace, except for one
// that comes while its main thread holds signals back, as it does in a handler: so what
// can't be handled is ignored.
func catch() (<-chan os.Signal, error) {
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, caught...)
	for _, sig := range unhandled {
		ignore := struct{ handler, flags, restorer, mask uintptr }{handler: 1} // SIG_IGN
		if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&ignore)), 0, unsafe.Sizeof(ignore.mask), 0, 0); errno != 0 {
			return nil, fmt.Errorf("ignore signal %d: %w", sig, errno)
		}
	}
	return signals, nil
}
