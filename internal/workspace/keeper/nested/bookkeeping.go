package nested

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"slices"
)

// derived are extensions of an index that git can make again from the rest or by looking at
// the files: cached trees, untracked files, the state of a file system monitor, and the
// offsets of parts.
var derived = []string{"TREE", "UNTR", "FSMN", "EOIE", "IEOT"}

// SameIndex reports whether two indexes stage the same: they may differ in what git caches
// of files so that it need not read them, which git status updates. Indexes that can't be
// read, or differ in anything else, are not the same.
func SameIndex(a, b []byte) bool {
	x, okA := stagedOf(a)
	y, okB := stagedOf(b)
	return okA && okB && slices.EqualFunc(x, y, func(p, q staged) bool { return p.name == q.name && p.flags == q.flags && bytes.Equal(p.what, q.what) })
}

// staged is an entry of an index, without what git caches of the file, or an extension.
type staged struct {
	name  string
	flags uint32 // stage, and flags that say how git treats the entry
	what  []byte // mode and object of an entry, or the content of an extension
}

// stagedOf reads the entries and extensions of an index.
func stagedOf(b []byte) ([]staged, bool) {
	width := 0
	for _, h := range []hash.Hash{sha1.New(), sha256.New()} { // object ids have the same width as the checksum
		if n := len(b) - h.Size(); n >= 12 {
			h.Write(b[:n])
			if bytes.Equal(h.Sum(nil), b[n:]) {
				width = h.Size()
			}
		}
	}
	if width == 0 {
		return nil, false
	}
	b = b[:len(b)-width]
	names, ends, err := parseEntries(b, width)
	if err != nil || len(ends) > 0 && ends[len(ends)-1] > len(b) {
		return nil, false
	}
	out := make([]staged, 0, len(names))
	at := 12
	for i, name := range names {
		const mode, id = 24, 40 // offsets in an entry
		flags := uint32(binary.BigEndian.Uint16(b[at+id+width:]))
		if flags&extendedFlag != 0 {
			flags |= uint32(binary.BigEndian.Uint16(b[at+id+width+2:])) << 16
		}
		what := slices.Concat(b[at+mode:at+mode+4], b[at+id:at+id+width])
		out = append(out, staged{name, flags, what})
		at = ends[i]
	}
	for rest := b[at:]; len(rest) > 0; {
		if len(rest) < 8 {
			return nil, false
		}
		name, size := string(rest[:4]), int(binary.BigEndian.Uint32(rest[4:]))
		if size > len(rest)-8 {
			return nil, false
		}
		if !slices.Contains(derived, name) {
			out = append(out, staged{"\x00" + name, 0, rest[8 : 8+size]})
		}
		rest = rest[8+size:]
	}
	return out, true
}
