package runspace

import (
	"errors"
	"fmt"
	"os"
	"time"

	"choir.dev/choiros/internal/fault"
)

// SetAside moves what tasks left in a folder to another one beside it, without reading it.
func SetAside(folder string) error {
	if _, err := os.Lstat(folder); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return fault.Wrap("runspace.SetAside", os.Rename(folder, fmt.Sprintf("%s.aside-%d", folder, time.Now().UnixNano())))
}
