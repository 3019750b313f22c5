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

// catch takes all signals: a process of the box may send any of them, and those
// without a handler of ours would end the Go runtime. A signal nobody handles
// does not end process 1 of a namespace, except for one that comes while its
// main thread holds signals back, as it does in a handler: so what can't be
// handled is ignored.
func catch() (<-chan os.Signal, error) {
	signals := make(chan os.Signal, 64)
	signal.Notify(signals)
	for _, sig := range unhandled {
		ignore := struct{ handler, flags, restorer, mask uintptr }{handler: 1} // SIG_IGN
		if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&ignore)), 0, unsafe.Sizeof(ignore.mask), 0, 0); errno != 0 {
			return nil, fmt.Errorf("ignore signal %d: %w", sig, errno)
		}
	}
	return signals, nil
}
