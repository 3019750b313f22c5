package nested

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// indexBomb returns a version 4 index of n entries. Each entry after the first repeats the name
// before it but for its end, so that its name costs the index 65 bytes.
func indexBomb(n int, name string) []byte {
	var b bytes.Buffer
	b.WriteString("DIRC\x00\x00\x00\x04")
	_ = binary.Write(&b, binary.BigEndian, uint32(n)) // a buffer accepts everything
	for i := range n {
		b.Write(make([]byte, 62))
		if i == 0 {
			b.WriteString("\x00" + name + "\x00")
		} else {
			b.WriteString("\x01" + string(rune('a'+i%26)) + "\x00")
		}
	}
	return b.Bytes()
}

// TestIndexBombIsBounded shows that reading a nested repository's index, to learn what it tracks,
// does not cost memory out of all proportion to its size.
func TestIndexBombIsBounded(t *testing.T) {
	name := strings.Repeat("n", wire.MaxPath)
	names, err := parseIndex(indexBomb(100, name))
	if err != nil || len(names) != 100 || len(names[99]) != wire.MaxPath {
		t.Fatalf("the control, a small one, is not read: %d names, %v", len(names), err)
	}
	bomb := indexBomb(maxIndexNames/wire.MaxPath+1, name)
	if len(bomb) > 4<<20 {
		t.Fatalf("the bomb is %d bytes long and no bomb", len(bomb))
	}
	if names, err := parseIndex(bomb); !errors.Is(err, errIndex) {
		t.Errorf("%d bytes became %d names of %d bytes (%v)", len(bomb), len(names), wire.MaxPath, err)
	}
}

func TestTrackedDirectoriesAreBounded(t *testing.T) {
	var r Tracked
	deep := strings.Repeat("d/", wire.MaxPath/2-10) + "f"
	for i := range 2 * maxTracked / (wire.MaxPath / 2) {
		r.Add(strings.Repeat("x", i%50+1)+string(rune('a'+i/50%26))+string(rune('a'+i/1300)), indexBomb(1, deep))
	}
	if got := len(r.Paths) + len(r.Dirs); got > maxTracked || got < maxTracked/2 {
		t.Errorf("%d paths and directories are noted; want at most %d, and nearly so many", got, maxTracked)
	}
}

func FuzzParseIndex(f *testing.F) {
	f.Add([]byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x01"))
	f.Add(append([]byte("DIRC\x00\x00\x00\x04\x00\x00\x00\x01"), make([]byte, 80)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		names, err := parseIndex(b)
		if err == nil && len(names) > len(b)/62 {
			t.Errorf("%d names in %d bytes", len(names), len(b))
		}
		for _, n := range names {
			if len(n) > 2*wire.MaxPath {
				t.Errorf("a name of %d bytes", len(n))
			}
		}
	})
}
