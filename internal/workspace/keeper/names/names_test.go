package names

import (
	"testing"

	"pgregory.net/rapid"
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
		kind := rapid.SampledFrom([]Kind{File, Link, Folder}).Draw(rt, "kind")
		in := Escape(name, kind)
		if got, large := UnescapeFile(in); got != name || large {
			rt.Errorf("%q became %q and came back as %q, large: %v", name, in, got, large)
		}
		as := EscapeChunked(name)
		if got, large := UnescapeFile(as); got != name || !large {
			rt.Errorf("large %q became %q and came back as %q, large: %v", name, as, got, large)
		}
		if p, kind := UnescapePath("x/" + as); p != "x/"+name || kind != PathChunked || as == in {
			rt.Errorf("large %q became %q and came back as %q, %v", name, as, p, kind)
		}
		if refusedName(as, File) {
			rt.Errorf("large %q became %q, which git takes for something else", name, as)
		}
		if in == EmptyMarker || refusedName(in, kind) {
			rt.Errorf("%q became %q, which git or we take for something else", name, in)
		}
	})
}
