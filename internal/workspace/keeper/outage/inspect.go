package outage

import (
	"errors"
	"io"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// What a crash can make of a file that was never synced.
const (
	Emptied = "was emptied"
	Zeroed  = "was filled with zeroes"
	Torn    = "ends in zeroes"
)

// Inspect says what looks wrong with a file of a live tree, "" when nothing does. was is
// what it contained before; a file that had zeroes then may have them now.
func Inspect(root int, p string, was []byte) (string, error) {
	dir, err := disk.OpenDir(root, wire.ParentDir(p))
	if err != nil {
		return "", disk.IgnoreUnreachable(err)
	}
	defer unix.Close(dir)
	r, st, err := disk.OpenContent(dir, path.Base(p), -1)
	if err != nil {
		return "", disk.IgnoreUnreachable(err)
	}
	defer r.Close()
	if !st.IsRegular() {
		return "", nil
	}
	if st.Size == 0 {
		return Emptied, nil
	}
	const block = 4096
	buf := make([]byte, 64<<10)
	var at, zeroesFrom int64 // everything from zeroesFrom on is zero
	for {
		n, err := io.ReadFull(r, buf)
		for i := n - 1; i >= 0; i-- {
			if buf[i] != 0 {
				zeroesFrom = at + int64(i) + 1
				break
			}
		}
		if zeroesFrom > 0 && was == nil {
			return "", nil // all of it was asked for
		}
		at += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return "", err
		}
	}
	switch {
	case at == 0:
		return Emptied, nil
	case zeroesFrom == 0:
		return Zeroed, nil
	case was != nil && !slices.Contains(was, 0) && (zeroesFrom+block-1)/block*block < at:
		return Torn, nil
	}
	return "", nil
}
