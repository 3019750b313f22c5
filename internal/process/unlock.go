package process

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Unlock gives up the flock that f holds and closes f. Closing alone would leave
// the lock with any child that is being started at this moment: it holds every
// descriptor until it becomes its program.
func Unlock(f *os.File) error {
	return errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_UN), f.Close())
}
