package outage

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"

	"choir.dev/choiros/internal/workspace/keeper/disk"
)

// The file .git/choir/open says how it stands between the keeper and the disk:
//
//	{boot}          an engine is at work, or was when it ended
//	closed {boot}   the last one shut down: all that was written was synced
//
// {boot} names the boot of the machine. Without the file nothing is known, which
// is never taken for a clean end.

// Ending is how the engine before this one ended.
type Ending int

const (
	Unknown Ending = iota // it crashed with the machine; or that is not known
	Clean                 // in an orderly way
	Apart                 // in an orderly way; the machine crashed later
	Killed                // it was killed, while the machine kept running
)

const closedMark = "closed "

// Begin records in the file that an engine is at work, and returns how the last one ended.
func Begin(file string) (Ending, error) {
	boot, err := disk.BootID()
	if err != nil {
		return Unknown, err
	}
	raw, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Unknown, err
	}
	was, closed := strings.CutPrefix(string(raw), closedMark)
	end := Unknown
	switch {
	case err != nil || was == "":
	case closed && was == boot:
		end = Clean
	case closed:
		end = Apart
	case was == boot:
		end = Killed
	}
	if errors.Is(err, fs.ErrNotExist) {
		// Whatever a power cut leaves of the file, it does not say that the engine ended in
		// an orderly way.
		return end, disk.WriteNew(file, []byte(boot))
	}
	return end, disk.WriteDurably(file, []byte(boot))
}

// Restarted returns when the machine started again since the engine was at work that the file
// is of; the zero time if it did not, or nobody can say.
func Restarted(file string) (time.Time, error) {
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, nil
	}
	boot, berr := disk.BootID()
	was := strings.TrimPrefix(string(raw), closedMark)
	if err = errors.Join(err, berr); err != nil || was == boot || was == "" {
		return time.Time{}, err
	}
	return disk.BootTime()
}

// MarkClean records in the file that everything written is synced.
func MarkClean(file string) error {
	boot, err := disk.BootID()
	if err != nil {
		return err
	}
	return disk.WriteDurably(file, []byte(closedMark+boot))
}
