package process

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Unlock releases the flock that f holds and closes f. Closing alone would leave the lock
// with any child process that is just being started, because between fork and exec it has
// every descriptor open.
func Unlock(f *os.File) error {
	return errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_UN), f.Close())
}
