package nested

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"slices"
)

// derived are extensions of an index that git makes again of the rest, or of a look at
// the files: trees, untracked files, what a file system monitor said, and where parts are.
var derived = []string{"TREE", "UNTR", "FSMN", "EOIE", "IEOT"}

// SameIndex reports whether two indexes say the same of what is staged: they differ at most
// in what git remembers of files so that it need not read them, as git status leaves it.
// What can't be read, or holds anything else that differs, is not the same.
func SameIndex(a, b []byte) bool {
	x, okA := stagedOf(a)
	y, okB := stagedOf(b)
	return okA && okB && slices.EqualFunc(x, y, func(p, q staged) bool { return p.name == q.name && p.flags == q.flags && bytes.Equal(p.what, q.what) })
}

// staged is an entry of an index, without what is remembered of the file, or an extension.
type staged struct {
	name  string
	flags uint32 // stage, and how git is to treat it
	what  []byte // mode and object; the content of an extension
}

// stagedOf reads what an index says.
func stagedOf(b []byte) ([]staged, bool) {
	width := 0
	for _, h := range []hash.Hash{sha1.New(), sha256.New()} { // of which ids are, too
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
		const mode, id = 24, 40 // where they stand in an entry
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
