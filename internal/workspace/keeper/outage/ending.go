package outage

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"choir.dev/choiros/internal/workspace/keeper/disk"
)

// The file .git/choir/open says how it stands between the keeper and the disk:
//
//	{boot}          an engine is at work, or was when it ended
//	closed {boot}   the last one said goodbye: all that was written was synced
//
// {boot} names the boot of the machine. Without the file nothing is known, which
// is never taken for a goodbye.

// Ending is how the engine before this one ended.
type Ending int

const (
	Unknown Ending = iota // without a goodbye, and with the machine; or nobody knows
	Clean                 // with a goodbye
	Apart                 // with a goodbye; the machine's end came later
	Killed                // without a goodbye, and the machine goes on
)

const closedMark = "closed "

// Begin notes in the file that an engine is at work, and returns how the last one ended.
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
		// Whatever a power cut leaves of it, none or a part, is no goodbye.
		return end, disk.WriteNew(file, []byte(boot))
	}
	return end, disk.WriteDurably(file, []byte(boot))
}

// Part notes in the file that all that was written is synced.
func Part(file string) error {
	boot, err := disk.BootID()
	if err != nil {
		return err
	}
	return disk.WriteDurably(file, []byte(closedMark+boot))
}
