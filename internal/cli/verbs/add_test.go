package verbs

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAFolderThatCantBePackedHasNoEnd: a file vanishes while its folder is packed. What was packed
// so far must not be readable as a whole archive, or the server would import it.
func TestAFolderThatCantBePackedHasNoEnd(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(dir, "a"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"0", "b"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("content\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	err := writeTar(&out, dir, func(string, string) {
		if err := os.Remove(filepath.Join(dir, "b")); err != nil {
			t.Fatal(err)
		}
	})
	if !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("packed: %v", err)
	}
	r := tar.NewReader(io.MultiReader(&out, errReader{}))
	if h, err := r.Next(); err != nil || h.Name != "0" {
		t.Fatalf("the first entry is %+v: %v", h, err)
	}
	if _, err := r.Next(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the archive has its end: %v", err)
	}
}

// errReader is a stream that fails.
type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
