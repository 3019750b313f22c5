package archive_test

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/archive"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// packed returns an archive of entries, in which each file has its name as content.
func packed(t *testing.T, entries ...tar.Header) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(h.Name))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := io.WriteString(w, h.Name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

func file(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644} }

// TestNothingIsUnpackedElsewhere shows that whatever names an archive has, nothing outside of the
// directory is written or linked to.
func TestNothingIsUnpackedElsewhere(t *testing.T) {
	limits := wire.Limits{}.WithDefaults()
	for name, entries := range map[string][]tar.Header{
		"a name that leaves":          {file("../out")},
		"a name from the root":        {file("/out")},
		"a name through a link":       {{Name: "l", Linkname: "..", Typeflag: tar.TypeSymlink}, file("l/out")},
		"a hard link that leaves":     {{Name: "l", Linkname: "../secret", Typeflag: tar.TypeLink}},
		"a hard link through a link":  {{Name: "d", Linkname: "..", Typeflag: tar.TypeSymlink}, {Name: "l", Linkname: "d/secret", Typeflag: tar.TypeLink}},
		"a hard link to a soft one":   {{Name: "s", Linkname: "../secret", Typeflag: tar.TypeSymlink}, {Name: "l", Linkname: "s", Typeflag: tar.TypeLink}},
		"a file over one of before":   {file("f"), file("f")},
		"a file where a link is":      {{Name: "f", Linkname: "../secret", Typeflag: tar.TypeSymlink}, file("f")},
		"a link that names nothing":   {{Name: "l", Linkname: strings.Repeat("x", wire.MaxPath+1), Typeflag: tar.TypeSymlink}},
		"a name of more than a path":  {file(strings.Repeat("x/", wire.MaxPath) + "f")},
		"a name that is not clean":    {file("a/../b")},
		"a hard link to what is none": {{Name: "l", Linkname: "none", Typeflag: tar.TypeLink}},
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			dest := filepath.Join(top, "dest")
			if err := os.Mkdir(dest, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(top, "secret"), []byte("secret"), 0o600); err != nil {
				t.Fatal(err)
			}
			var im wire.Imported
			if err := archive.Unpack(t.Context(), dest, packed(t, entries...), limits, &im); err == nil {
				t.Errorf("it was taken: %+v", im)
			}
			found, err := os.ReadDir(top)
			if err != nil || len(found) != 2 {
				t.Errorf("beside the directory there is %v, %v", found, err)
			}
			if b, err := os.ReadFile(filepath.Join(top, "secret")); err != nil || string(b) != "secret" {
				t.Errorf("what was beside it holds %q, %v", b, err)
			}
		})
	}
}

// TestAnArchiveIsBounded shows that the number of entries, the bytes, and what follows the
// archive's end are bounded.
func TestAnArchiveIsBounded(t *testing.T) {
	small := wire.Limits{}.WithDefaults()
	small.Files, small.NewBytes = 2, 8
	for name, test := range map[string]struct {
		stream io.Reader
		want   fault.Code
	}{
		"as much as may be":  {packed(t, file("a"), file("b")), ""},
		"an entry too many":  {packed(t, file("a"), file("b"), file("c")), fault.Exhausted},
		"a byte too many":    {packed(t, file("nine bytes")), fault.Exhausted},
		"no archive":         {strings.NewReader(strings.Repeat("no archive", 100)), fault.Invalid},
		"much behind it":     {io.MultiReader(packed(t, file("a")), bytes.NewReader(make([]byte, 2<<20))), fault.Invalid},
		"a sender who ended": {io.MultiReader(packed(t, file("a")), iotest.ErrReader(io.ErrUnexpectedEOF)), fault.Invalid},
	} {
		var im wire.Imported
		err := archive.Unpack(t.Context(), t.TempDir(), test.stream, small, &im)
		if test.want == "" && err != nil || test.want != "" && !fault.Is(err, test.want) {
			t.Errorf("%s: %v; want %q", name, err, test.want)
		}
	}
}

// TestWhatIsNoFileIsListed shows that entries that are not imported are listed.
func TestWhatIsNoFileIsListed(t *testing.T) {
	dest := t.TempDir()
	im := wire.Imported{Path: "workspace/new"}
	entries := []tar.Header{{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o755}, file("d/f"), {Name: "d/h", Linkname: "d/f", Typeflag: tar.TypeLink}, {Name: "pipe", Typeflag: tar.TypeFifo}}
	if err := archive.Unpack(t.Context(), dest, packed(t, entries...), wire.Limits{}.WithDefaults(), &im); err != nil {
		t.Fatal(err)
	}
	if im.Files != 2 || im.Skipped != 1 || len(im.Left) != 1 || im.Left[0].Path != "workspace/new/pipe" {
		t.Errorf("it held %+v", im)
	}
	if b, err := os.ReadFile(filepath.Join(dest, "d/h")); err != nil || string(b) != "d/f" {
		t.Errorf("a hard link holds %q, %v", b, err)
	}
}
