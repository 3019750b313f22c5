package task

import (
	"time"

	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/fault"
)

// These are how long what can't be recorded waits at first and at most before it is tried again.
const (
	insistFirst = 100 * time.Millisecond
	insistMost  = 30 * time.Second
)

// passing reports whether what failed may be done later: a box was lost, somebody gave no answer, or a disk
// was full.
func passing(err error) bool { return lost(err) || fault.Is(err, fault.DiskFull) }

// Insist calls record until what the end of a run or of a task needs is recorded, for as long as the log takes
// nothing, such as on a full disk: a run that nobody drives and that has no end could not be cancelled, and
// would keep its computer awake. The error is ErrClosing when the computer goes to sleep, and Recover takes
// it up.
func (h *Host) Insist(r Run, what, of string, record func() error) error {
	for pause := insistFirst; ; pause = min(2*pause, insistMost) {
		err := record()
		if closing(r) && err != nil {
			return ErrClosing
		}
		if !passing(err) {
			return err
		}
		h.Logger.Error(what+" could not be recorded; it is tried again until it is, also after a restart", "of", of, "after", pause, "error", err)
		if !awake.Pause(r.Awake(), pause) {
			return ErrClosing
		}
	}
}
