package nested

import (
	"crypto/sha1"
	"encoding/binary"
	"runtime"
	"slices"
	"testing"
)

// summed returns an index with its checksum appended.
func summed(b []byte) []byte {
	sum := sha1.Sum(b)
	return slices.Concat(b, sum[:])
}

// anIndex returns an index with one file, whose remembered state is seen, and with extensions.
func anIndex(seen byte, flags uint16, extensions ...string) []byte {
	b := []byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x01")
	b = append(b, slices.Repeat([]byte{seen}, 24)...)     // times, device and inode
	b = binary.BigEndian.AppendUint32(b, 0o100644)        // mode
	b = append(b, slices.Repeat([]byte{seen}, 12)...)     // owner and size
	b = append(b, slices.Repeat([]byte{7}, sha1.Size)...) // object
	b = binary.BigEndian.AppendUint16(b, flags|1)         // flags with the length of the name
	b = append(b, "f\x00\x00\x00\x00\x00\x00\x00\x00\x00"...)
	for _, e := range extensions {
		b = append(b, e[:4]...)
		b = binary.BigEndian.AppendUint32(b, uint32(len(e)-4))
		b = append(b, e[4:]...)
	}
	return summed(b)
}

// TestIndexesSayTheSame shows that what an index remembers of files, and can be made again, makes
// no difference, that everything else does, and that a damaged index equals none.
func TestIndexesSayTheSame(t *testing.T) {
	one := anIndex(1, 0)
	for name, same := range map[string][]byte{"looked at": anIndex(2, 0), "with its trees": anIndex(1, 0, "TREEx"), "with what is untracked": anIndex(2, 0, "UNTR", "FSMNxyz")} {
		if !SameIndex(one, same) || !SameIndex(same, one) {
			t.Errorf("%s: it says something else", name)
		}
	}
	other := anIndex(1, 0)
	other[12+40] = 8
	flipped := slices.Clone(one)
	flipped[12] ^= 1 // without its checksum
	for name, differs := range map[string][]byte{
		"another object": summed(other[:len(other)-sha1.Size]), "assumed unchanged": anIndex(1, 0x8000), "in a conflict": anIndex(1, 0x1000), "with another one": anIndex(1, 0, "linkx"),
		"with what was resolved": anIndex(1, 0, "REUCx"), "damaged": flipped, "cut off": one[:len(one)-1], "nothing": nil, "an extension cut off": summed(append(one[:len(one)-sha1.Size:len(one)-sha1.Size], "TREE\xff\xff\xff\xff"...)),
	} {
		if SameIndex(one, differs) || SameIndex(differs, one) || name != "another object" && SameIndex(differs, differs) && len(differs) < len(one) {
			t.Errorf("%s: it says the same", name)
		}
	}
}

func FuzzSameIndex(f *testing.F) {
	for _, b := range [][]byte{anIndex(1, 0), anIndex(1, extendedFlag), []byte("DIRC\x00\x00\x00\x04\x00\x00\x00\x01" + string(make([]byte, 90)))} {
		for n := 12; n <= len(b); n += 5 {
			f.Add(b[:n])
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if b = summed(b); SameIndex(b, b) && !SameIndex(slices.Clone(b), b) {
			t.Error("it is not the same as itself")
		}
	})
}

// TestAnIndexOfShortEntriesIsReadOnce shows that of each entry no more is copied than its name.
// Otherwise an index with very many entries would delay everybody who changes the tree meanwhile.
func TestAnIndexOfShortEntriesIsReadOnce(t *testing.T) {
	const entries = 10_000
	index := binary.BigEndian.AppendUint32([]byte("DIRC\x00\x00\x00\x04"), entries)
	for range entries {
		index = append(append(index, make([]byte, 62)...), 0, 'x', 0)
		index[len(index)-3] = byte(min(1, (len(index)-12)/66)) // the length of the name before it
	}
	index = summed(index)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	same := SameIndex(index, index)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; !same || took > 20*uint64(len(index)) {
		t.Errorf("to read %d bytes twice took %d; the same: %t", len(index), took, same)
	}
}
