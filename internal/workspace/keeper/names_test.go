package keeper

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"
)

func TestNamesComeBack(t *testing.T) {
	part := rapid.SampledFrom([]string{".git", ".GIT", ".gitmodules", ".empty", ".choir", ".choir.choir", "a", "\xff", ".", "\n"})
	rapid.Check(t, func(rt *rapid.T) {
		name := ""
		for _, p := range rapid.SliceOfN(part, 1, 4).Draw(rt, "parts") {
			name += p
		}
		link := rapid.Bool().Draw(rt, "link")
		in := escapeName(name, link)
		if got := unescapeName(in); got != name {
			rt.Errorf("%q became %q and came back as %q", name, in, got)
		}
		if in == emptyMarker || len(in) == 4 && reservedBase(in) {
			rt.Errorf("%q became %q, which git or we take for something else", name, in)
		}
		raw, err := json.Marshal(Path(name))
		if err != nil {
			rt.Fatal(err)
		}
		var p Path
		if err := json.Unmarshal(raw, &p); err != nil || string(p) != name {
			rt.Errorf("%q came back from JSON as %q, %v", name, string(p), err)
		}
	})
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
			if len(n) > 2*maxPath {
				t.Errorf("a name of %d bytes", len(n))
			}
		}
	})
}

func FuzzDecodeNote(f *testing.F) {
	f.Add("x\n\nChoir-Kind: manual\nChoir-Seq: 1\nChoir-Restore: {}\n")
	f.Fuzz(func(t *testing.T, message string) {
		n := decodeNote(message)
		again := decodeNote(encodeNote(&n))
		if again.Kind != oneLine(n.Kind) || again.Seq != n.Seq || again.Verified != n.Verified {
			t.Errorf("%+v became %+v", n, again)
		}
	})
}
