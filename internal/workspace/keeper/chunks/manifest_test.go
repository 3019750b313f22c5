package chunks

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// noise returns bytes that are the same for the same seed on every machine.
func noise(seed byte, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b) // it never fails
	return b
}

// TestCutsStayWhereTheyAre pins where a file is cut. If the cuts moved, every large file in every
// history would have to be stored anew.
func TestCutsStayWhereTheyAre(t *testing.T) {
	b := noise(7, 24<<20)
	m, err := Cut(t.Context(), bytes.NewReader(b), int64(len(b)), nil)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(m.Encode())
	const want = "e30cfb8064842675f0e1a0932b4d27ef29df88cc306fe5618d86cf0f095781b6"
	if got := hex.EncodeToString(sum[:]); got != want {
		t.Errorf("the manifest is %s, it was %s", got, want)
	}
	for i, c := range m.Chunks {
		if c.Len > maxChunk || c.Len < minChunk && i < len(m.Chunks)-1 {
			t.Errorf("chunk %d has %d bytes", i, c.Len)
		}
	}
	if m.Sum != sha256.Sum256(b) {
		t.Error("the sum of the whole is another")
	}
}

// TestCutsMoveLittle shows that when bytes are inserted, removed or changed anywhere, all but a few
// chunks stay the same.
func TestCutsMoveLittle(t *testing.T) {
	b := noise(3, 32<<20)
	names := func(b []byte) map[string]bool {
		out := map[string]bool{}
		m, err := Cut(context.Background(), bytes.NewReader(b), int64(len(b)), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range m.Chunks {
			out[c.Name()] = true
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
		m := &Manifest{}
		for range rapid.IntRange(0, 20).Draw(rt, "chunks") {
			c := Ref{Len: rapid.Uint32Range(1, maxChunk).Draw(rt, "len")}
			copy(c.Sum[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(rt, "sum"))
			m.Chunks = append(m.Chunks, c)
			m.Size += int64(c.Len)
		}
		raw := m.Encode()
		back, err := DecodeManifest(raw)
		if err != nil || !bytes.Equal(back.Encode(), raw) {
			rt.Fatalf("%+v came back as %+v, %v", m, back, err)
		}
		if len(raw) > 0 {
			i := rapid.IntRange(0, len(raw)-1).Draw(rt, "cut at")
			if _, err := DecodeManifest(raw[:i]); err == nil {
				rt.Errorf("%d of %d bytes were taken", i, len(raw))
			}
		}
		if _, err := DecodeManifest(append(raw, 0)); err == nil {
			rt.Error("a byte too many was taken")
		}
	})
}

func FuzzDecodeManifest(f *testing.F) {
	m := &Manifest{Size: 3, Chunks: []Ref{{Len: 3}}}
	f.Add(m.Encode())
	f.Add((&Manifest{}).Encode())
	f.Add([]byte(manifestMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeManifest(b)
		if err != nil {
			return
		}
		var total int64
		for _, c := range m.Chunks {
			if c.Len == 0 || c.Len > maxChunk {
				t.Errorf("a chunk of %d bytes", c.Len)
			}
			total += int64(c.Len)
		}
		if total != m.Size || !bytes.Equal(m.Encode(), b) {
			t.Errorf("%d bytes in chunks of a file of %d", total, m.Size)
		}
	})
}
