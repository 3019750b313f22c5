package fork

import (
	"errors"
	"io"

	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/fault"
)

// roomEvery is after how many bytes of an archive it is asked whether there is room still.
// Each small file takes 1 kB of the archive at least, and a few of the disk.
const roomEvery = 1 << 20

// whileRoom reads the archive of a checkpoint's files while the disk that they are written
// to has room. What was free when a fork began says little: another one, a run, or a
// program may be writing as well.
type whileRoom struct {
	from io.Reader
	free func() (datadir.Room, error)
	left int64 // bytes until it is asked again
	err  error // why it ended early
}

// Read implements io.Reader.
func (w *whileRoom) Read(b []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	if w.left <= 0 {
		room, err := w.free()
		if err == nil && room.Scarce() {
			err = fault.New("unpack", fault.DiskFull, fault.FreeSpace, errors.New("the checkpoint holds more than there is room for beside what others write"))
		}
		if w.err = err; err != nil {
			return 0, err
		}
		w.left = roomEvery
	}
	n, err := w.from.Read(b[:min(int64(len(b)), w.left)])
	w.left -= int64(n)
	return n, err
}
