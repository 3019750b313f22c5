package consistency

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sort"
)

// holds says whether the history has an object, loose or in a pack. It is looked up without
// git, before a box may be opened.
func holds(history fs.FS, id string) (bool, error) {
	if _, err := fs.Stat(history, "objects/"+id[:2]+"/"+id[2:]); err == nil {
		return true, nil
	}
	raw, err := hex.DecodeString(id)
	if err != nil {
		return false, err
	}
	indexes, err := fs.Glob(history, "objects/pack/*.idx")
	if err != nil {
		return false, err
	}
	for _, name := range indexes {
		b, err := readRegular(history, name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
		if inIndex(b, raw) {
			return true, nil
		}
	}
	return false, nil
}

// inIndex looks an id up in a pack's index of version 2: a header of 8 bytes,
// 256 running totals, and then the ids in order.
func inIndex(b, id []byte) bool {
	const ids = 8 + 256*4
	if len(b) < ids || !bytes.HasPrefix(b, []byte("\xfftOc\x00\x00\x00\x02")) {
		return false
	}
	n := int(binary.BigEndian.Uint32(b[ids-4:]))
	if n > (len(b)-ids)/len(id) {
		return false
	}
	at := func(i int) []byte { return b[ids+i*len(id) : ids+(i+1)*len(id)] }
	i := sort.Search(n, func(i int) bool { return bytes.Compare(at(i), id) >= 0 })
	return i < n && bytes.Equal(at(i), id)
}

// maxHistoryFile bounds what the host reads of one file of the history: an index
// has 28 bytes and more for each object.
const maxHistoryFile = 1 << 30

// readRegular reads a file of the history, if it is one.
func readRegular(history fs.FS, name string) ([]byte, error) {
	f, err := history.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read from
	info, err := f.Stat()
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxHistoryFile) {
		err = fmt.Errorf("%s is %s of %d bytes", name, info.Mode(), info.Size())
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, maxHistoryFile))
}
