package keeper

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// noise is the same bytes for the same seed, on every machine.
func noise(seed byte, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b) // never fails
	return b
}

// TestCutsStayWhereTheyAre pins where a file is cut: elsewhere, every large file
// of every history would be another one.
func TestCutsStayWhereTheyAre(t *testing.T) {
	b := noise(7, 24<<20)
	m, err := cut(t.Context(), bytes.NewReader(b), int64(len(b)), nil)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(m.encode())
	const want = "e30cfb8064842675f0e1a0932b4d27ef29df88cc306fe5618d86cf0f095781b6"
	if got := hex.EncodeToString(sum[:]); got != want {
		t.Errorf("the manifest is %s, it was %s", got, want)
	}
	for i, c := range m.chunks {
		if c.len > maxChunk || c.len < minChunk && i < len(m.chunks)-1 {
			t.Errorf("chunk %d has %d bytes", i, c.len)
		}
	}
	if m.sum != sha256.Sum256(b) {
		t.Error("the sum of the whole is another")
	}
}

// TestCutsMoveLittle: bytes put in, taken out or changed anywhere leave all but
// a few chunks what they were.
func TestCutsMoveLittle(t *testing.T) {
	b := noise(3, 32<<20)
	names := func(b []byte) map[string]bool {
		out := map[string]bool{}
		m, err := cut(context.Background(), bytes.NewReader(b), int64(len(b)), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range m.chunks {
			out[c.name()] = true
		}
		return out
	}
	before := names(b)
	for name, changed := range map[string][]byte{
		"in front":  append([]byte("x"), b...),
		"in it":     append(append(append([]byte{}, b[:10<<20]...), "hello"...), b[10<<20:]...),
		"taken out": append(append([]byte{}, b[:5<<20]...), b[5<<20+100:]...),
		"behind":    append(append([]byte{}, b...), "y"...),
	} {
		fresh := 0
		for n := range names(changed) {
			if !before[n] {
				fresh++
			}
		}
		if fresh == 0 || fresh > 3 {
			t.Errorf("%s: %d of %d chunks are new", name, fresh, len(before))
		}
	}
}

func TestManifestsComeBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &manifest{}
		for range rapid.IntRange(0, 20).Draw(rt, "chunks") {
			c := chunkRef{len: rapid.Uint32Range(1, maxChunk).Draw(rt, "len")}
			copy(c.sum[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(rt, "sum"))
			m.chunks = append(m.chunks, c)
			m.size += int64(c.len)
		}
		raw := m.encode()
		back, err := decodeManifest(raw)
		if err != nil || !bytes.Equal(back.encode(), raw) {
			rt.Fatalf("%+v came back as %+v, %v", m, back, err)
		}
		if len(raw) > 0 {
			i := rapid.IntRange(0, len(raw)-1).Draw(rt, "cut at")
			if _, err := decodeManifest(raw[:i]); err == nil {
				rt.Errorf("%d of %d bytes were taken", i, len(raw))
			}
		}
		if _, err := decodeManifest(append(raw, 0)); err == nil {
			rt.Error("a byte too many was taken")
		}
	})
}

func FuzzDecodeManifest(f *testing.F) {
	m := &manifest{size: 3, chunks: []chunkRef{{len: 3}}}
	f.Add(m.encode())
	f.Add((&manifest{}).encode())
	f.Add([]byte(manifestMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeManifest(b)
		if err != nil {
			return
		}
		var total int64
		for _, c := range m.chunks {
			if c.len == 0 || c.len > maxChunk {
				t.Errorf("a chunk of %d bytes", c.len)
			}
			total += int64(c.len)
		}
		if total != m.size || !bytes.Equal(m.encode(), b) {
			t.Errorf("%d bytes in chunks of a file of %d", total, m.size)
		}
	})
}
