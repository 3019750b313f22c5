// Package early does what a guest must do before anything else of the process
// runs. Import it, for its effect, from the main package of a binary that can be a guest.
package early

import (
	"os"
	"runtime"
	"syscall"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/guest/seal"
)

// Guest reports whether this process was started as a guest.
var Guest = len(os.Args) > 1 && os.Args[1] == "guest"

// Err is the error of making the process undumpable; a guest must not continue with one.
var Err error

func init() {
	if !Guest {
		return
	}
	// A process that is not process 1 of a box is refused in guest.Main, and changes
	// nothing here.
	if os.Getpid() == 1 {
		if err := seal.Process(); err != nil { // initialisation runs on the first thread
			_, _ = os.Stderr.WriteString("choir guest: " + err.Error() + "\n") // nobody else can report it
			os.Exit(125)
		}
	}
	// From here on no other process of the same user can read or write this
	// one's memory or take its descriptors.
	if !defence.Off(defence.GuestUndumpable) {
		if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, syscall.PR_SET_DUMPABLE, 0, 0, 0, 0, 0); errno != 0 {
			Err = errno
		}
	}
	// The main goroutine stays on the main thread: the kernel makes that thread the parent
	// of orphans, and since it starts no processes itself, its children are orphans.
	runtime.LockOSThread()
}
