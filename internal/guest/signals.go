package guest

import (
	"fmt"
	"os"
	"os/signal"
	"unsafe"

	"golang.org/x/sys/unix"
)

// unhandled are the signals that Go leaves to a C library, which the guest does not have,
// so nothing sets a handler for them.
var unhandled = []uintptr{32, 34}

// caught are the signals at which a Go program by default ends, stops or crashes, and
// SIGCHLD. For all others the handler that Go sets does nothing. Each costs two switches of
// threads when the guest starts, so no others are requested.
var caught = []os.Signal{
	unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGABRT, unix.SIGTRAP, unix.SIGSTKFLT, unix.SIGSYS,
	unix.SIGILL, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV, // sent by somebody; one that this program causes itself still ends the guest
	unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGCHLD,
}

// catch ensures that no signal ends or stops the guest, since any process of the box may
// send any. A signal without a handler does not end process 1 of a namespace, except one
// that arrives while its main thread blocks signals, as it does in a handler: so signals
// that can't be handled are ignored.
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
