package gitstore

import (
	"testing"

	"pgregory.net/rapid"

	"choir.dev/choiros/internal/workspace/keeper/wire"
)

func TestNamesComeBack(t *testing.T) {
	part := rapid.SampledFrom([]string{
		".git", ".GIT", ".gitmodules", ".gitattributes", ".gitignore", ".mailmap", ".empty", ".choir", ".choir.choir", "a", "\xff", ".", "\n", "\\", ":", " ",
		"git~1", "gi7eba~1", "gi7d29", "~1", "gitmod~2", "\u200c", ".g", "it", ".choir-hex-", "2e676974", ".chunks", ".chunks.choir",
	})
	rapid.Check(t, func(rt *rapid.T) {
		name := ""
		for _, p := range rapid.SliceOfN(part, 1, 4).Draw(rt, "parts") {
			name += p
		}
		kind := rapid.SampledFrom([]nameKind{nameFile, nameLink, nameDir}).Draw(rt, "kind")
		in := escapeName(name, kind)
		if got, large := UnescapeFile(in); got != name || large {
			rt.Errorf("%q became %q and came back as %q, large: %v", name, in, got, large)
		}
		as := escapeChunked(name)
		if got, large := UnescapeFile(as); got != name || !large {
			rt.Errorf("large %q became %q and came back as %q, large: %v", name, as, got, large)
		}
		if p, kind := unescapePath("x/" + as); p != "x/"+name || kind != pathChunked || as == in {
			rt.Errorf("large %q became %q and came back as %q, %v", name, as, p, kind)
		}
		if refusedName(as, nameFile) {
			rt.Errorf("large %q became %q, which git takes for something else", name, as)
		}
		if in == EmptyMarker || refusedName(in, kind) {
			rt.Errorf("%q became %q, which git or we take for something else", name, in)
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
			if len(n) > 2*wire.MaxPath {
				t.Errorf("a name of %d bytes", len(n))
			}
		}
	})
}

func FuzzDecodeNote(f *testing.F) {
	f.Add("x\n\nChoir-Kind: manual\nChoir-Seq: 1\nChoir-Restore: {}\n")
	f.Fuzz(func(t *testing.T, message string) {
		n := DecodeNote(message)
		again := DecodeNote(encodeNote(&n))
		if again.Kind != OneLine(n.Kind) || again.Seq != n.Seq || again.Verified != n.Verified {
			t.Errorf("%+v became %+v", n, again)
		}
	})
}
