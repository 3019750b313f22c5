package untar_test

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/sandbox/local/untar"
)

func packed(t *testing.T, heads ...tar.Header) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	out := tar.NewWriter(&b)
	for _, h := range heads {
		content := "of " + h.Name
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(content))
		}
		if err := out.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := out.Write([]byte(content)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// unpack is untar.Unpack below a directory.
func unpack(t *testing.T, dir string, from io.Reader, most int64) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	t.Cleanup(func() { _ = root.Close() })
	return untar.Unpack(root, from, most)
}

// TestACheckpointIsUnpackedBeneath shows that files of a checkpoint that come from a box are
// written below the new tree or not at all: not through a link, not into a history, not twice, and
// not more than allowed.
func TestACheckpointIsUnpackedBeneath(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	good := packed(t, tar.Header{Name: "./", Typeflag: tar.TypeDir}, tar.Header{Name: "./a/", Typeflag: tar.TypeDir},
		tar.Header{Name: "./a/run", Typeflag: tar.TypeReg, Mode: 0o4777}, tar.Header{Name: "./a/text", Typeflag: tar.TypeReg, Mode: 0o600},
		tar.Header{Name: "./link", Typeflag: tar.TypeSymlink, Linkname: outside},
		tar.Header{Name: "./\xf0(/", Typeflag: tar.TypeDir}, tar.Header{Name: "./\xf0(/no\xffword", Typeflag: tar.TypeReg, Mode: 0o644, Format: tar.FormatGNU})
	if err := unpack(t, dir, good, 1000); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{"a/run": 0o755, "a/text": 0o644, "\xf0(/no\xffword": 0o644} {
		if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.Mode() != want {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}
	for name, bad := range map[string]tar.Header{
		"above":             {Name: "../x", Typeflag: tar.TypeReg},
		"absolute":          {Name: "/x", Typeflag: tar.TypeReg},
		"the history":       {Name: "./.git/hooks", Typeflag: tar.TypeDir},
		"by another case":   {Name: ".GIT", Typeflag: tar.TypeReg},
		"through a link":    {Name: "link/x", Typeflag: tar.TypeReg},
		"in place of one":   {Name: "link", Typeflag: tar.TypeReg},
		"twice":             {Name: "a/text", Typeflag: tar.TypeReg},
		"another's content": {Name: "hard", Typeflag: tar.TypeLink, Linkname: "a/text"},
		"a device":          {Name: "device", Typeflag: tar.TypeChar},
	} {
		if err := unpack(t, dir, packed(t, bad), 1000); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if list, err := os.ReadDir(outside); err != nil || len(list) != 0 {
		t.Errorf("outside there is %v, %v", list, err)
	}
	if err := unpack(t, t.TempDir(), packed(t, tar.Header{Name: "x", Typeflag: tar.TypeReg}), 3); !fault.Is(err, fault.DiskFull) || fault.HintOf(err) != fault.FreeSpace {
		t.Errorf("more than there is room for: %v", err)
	}
	cut := packed(t, tar.Header{Name: "x", Typeflag: tar.TypeReg})
	cut.Truncate(514)
	if err := unpack(t, t.TempDir(), cut, 1000); err == nil || !strings.Contains(err.Error(), "x") {
		t.Errorf("half a file was taken: %v", err)
	}
}

// TestAChainOfFoldersIsUnpackedInTime: if each folder of a chain were walked from its beginning,
// the cost would grow with the cube of the depth, and a chain of 1200 would keep the host busy for
// minutes.
func TestAChainOfFoldersIsUnpackedInTime(t *testing.T) {
	const depth = 1200
	var heads []tar.Header
	for n := range depth {
		heads = append(heads, tar.Header{Name: strings.Repeat("a/", n+1), Typeflag: tar.TypeDir})
	}
	for n := depth; n > 0; n-- { // deepest first, as tar lists what comes after a folder
		heads = append(heads, tar.Header{Name: strings.Repeat("a/", n) + "z", Typeflag: tar.TypeReg})
	}
	dir, ended := t.TempDir(), make(chan error, 1)
	go func() { ended <- unpack(t, dir, packed(t, heads...), 1<<30) }()
	select {
	case err := <-ended:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it takes more than a minute")
	}
	for _, n := range []int{1, 100, depth} {
		if b, err := os.ReadFile(filepath.Join(dir, strings.Repeat("a/", n), "z")); err != nil || !strings.HasPrefix(string(b), "of a/") {
			t.Errorf("at %d: %q, %v", n, b, err)
		}
	}
}
