package nested

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// MaxIndex is the size up to which a nested repository's index is read, in bytes.
const MaxIndex = 64 << 20

// maxIndexNames limits the names of one index, in bytes: version 4 shares prefixes, so that
// 64 bytes of an index can stand for a name of kilobytes.
const maxIndexNames = 2 * MaxIndex

// maxTracked limits how many paths and directories are recorded for all nested repositories
// of a tree. A name of many short components counts once for each of them.
const maxTracked = 2_000_000

var errIndex = errors.New("not a git index")

// parseIndex lists the paths in a git index of version 2, 3 or 4. A nested repository may
// track what its own .gitignore names, and what it tracks is captured. The index may be
// forged: only its names are read, within the limits above.
func parseIndex(b []byte) ([]string, error) {
	names, _, err := parseEntries(b, sha1.Size)
	return names, err
}

// extendedFlag says that an entry has more flags.
const extendedFlag = 0x4000

// parseEntries lists the paths in an index whose ids are width bytes long, and the offset
// at which each entry ends.
func parseEntries(b []byte, width int) (names []string, ends []int, err error) {
	fixed := 42 + width // stat data, id and flags
	if len(b) < 12 || string(b[:4]) != "DIRC" {
		return nil, nil, errIndex
	}
	version, count := binary.BigEndian.Uint32(b[4:]), int(binary.BigEndian.Uint32(b[8:]))
	if version < 2 || version > 4 || count > len(b)/fixed {
		return nil, nil, errIndex
	}
	names, ends = make([]string, 0, count), make([]int, 0, count)
	last, total := "", 0
	for pos := 12; len(names) < count; {
		if len(b)-pos < fixed+1 {
			return nil, nil, errIndex
		}
		start := pos
		extended := binary.BigEndian.Uint16(b[pos+fixed-2:])&extendedFlag != 0
		pos += fixed
		if extended {
			pos += 2
		}
		if version == 4 {
			strip, n := offsetVarint(b[min(pos, len(b)):])
			if n == 0 || strip > uint64(len(last)) {
				return nil, nil, errIndex
			}
			pos += n
			end := bytes.IndexByte(b[pos:min(len(b), pos+wire.MaxPath+1)], 0)
			if end < 0 || len(last)+end > 2*wire.MaxPath {
				return nil, nil, errIndex
			}
			last = last[:len(last)-int(strip)] + string(b[pos:pos+end])
			pos += end + 1
		} else {
			if pos > len(b) {
				return nil, nil, errIndex
			}
			end := bytes.IndexByte(b[pos:min(len(b), pos+wire.MaxPath+1)], 0)
			if end < 0 {
				return nil, nil, errIndex
			}
			last = string(b[pos : pos+end])
			pos = start + (pos+end-start+8)&^7
		}
		if total += len(last); total > maxIndexNames {
			return nil, nil, errIndex
		}
		names, ends = append(names, last), append(ends, pos)
	}
	return names, ends, nil
}

// offsetVarint reads git's offset encoding and returns its length, 0 if it is damaged.
func offsetVarint(b []byte) (uint64, int) {
	var v uint64
	for i, c := range b {
		if i == 9 {
			break
		}
		v = v<<7 | uint64(c&0x7f)
		if c&0x80 == 0 {
			return v, i + 1
		}
		v++
	}
	return 0, 0
}

// IndexAt returns the content of the index of the repository in a directory,
// or nil when there is none to read.
func IndexAt(dirfd int) []byte {
	fd, err := disk.OpenBeneath(dirfd, ".git/index", unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), "index")
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() || st.Size() > MaxIndex {
		return nil
	}
	b, err := io.ReadAll(io.LimitReader(f, MaxIndex))
	if err != nil {
		return nil
	}
	return b
}

// Tracked is the set of paths that nested repositories track, and of their directories.
type Tracked struct{ Paths, Dirs map[string]bool }

// Add records what the repository in dir tracks. A damaged index tracks nothing, and what
// exceeds maxTracked is not recorded.
func (r *Tracked) Add(dir string, index []byte) {
	names, err := parseIndex(index)
	if err != nil {
		return
	}
	if r.Paths == nil {
		r.Paths, r.Dirs = map[string]bool{}, map[string]bool{}
	}
	for _, n := range names {
		if len(r.Paths)+len(r.Dirs)+strings.Count(n, "/") >= maxTracked {
			return
		}
		p := wire.JoinPath(dir, n)
		r.Paths[p] = true
		for d := wire.ParentDir(p); d != "." && !r.Dirs[d]; d = wire.ParentDir(d) {
			r.Dirs[d] = true
		}
	}
}
