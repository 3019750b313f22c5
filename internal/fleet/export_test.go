package fleet

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/sandbox/sandboxtest"
)

// TestAttack43_NothingKeepsTheRestOutOfAnArchive shows that things that a box left and that can't
// be archived (unreadable, a pipe, too deep, changing meanwhile) are named in the archive, and that
// everything else is in it.
func TestAttack43_NothingKeepsTheRestOutOfAnArchive(t *testing.T) {
	sandboxtest.AsUser(t, func(t *testing.T) {
		dir := t.TempDir()
		put := func(name, content string) string {
			t.Helper()
			file := filepath.Join(dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), 0o644)); err != nil {
				t.Fatal(err)
			}
			return file
		}
		closed := put("a-closed", "secret")
		inClosed := filepath.Dir(put("b-folder/in", "secret"))
		long := strings.Repeat("x", 200_000)
		shrinks, kept := put("c-shrinks", long), put("z/kept", "kept")
		if err := errors.Join(os.Chmod(closed, 0), os.Chmod(inClosed, 0), unix.Mkfifo(filepath.Join(dir, "d-pipe"), 0o644), os.Symlink("/etc/passwd", filepath.Join(dir, "e-link"))); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.Chmod(inClosed, 0o755); err != nil {
				t.Error(err)
			}
		})
		deep(t, dir, 30)
		// The file is truncated as soon as its beginning is in the archive.
		var b bytes.Buffer
		out := tar.NewWriter(writes(func(p []byte) (int, error) {
			if bytes.Contains(p, []byte("xxxx")) {
				if err := os.Truncate(shrinks, 10); err != nil {
					return 0, err
				}
			}
			return b.Write(p)
		}))
		if err := exportFiles(t.Context(), dir, out); err != nil {
			t.Fatal(err)
		}
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
		files := map[string]string{}
		for in := tar.NewReader(&b); ; {
			h, err := in.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			content, err := io.ReadAll(in)
			if err != nil {
				t.Fatal(err)
			}
			files[h.Name] = string(content) + h.Linkname
		}
		left := files["left-out.txt"]
		if files["files/z/kept"] != "kept" || files["files/e-link"] != "/etc/passwd" {
			t.Errorf("%s and the link are %q and %q", kept, files["files/z/kept"], files["files/e-link"])
		}
		if len(files["files/c-shrinks"]) != len(long) || !strings.Contains(left, `"c-shrinks": it became shorter`) {
			t.Errorf("%d bytes of what shrank; said is %q", len(files["files/c-shrinks"]), left)
		}
		if !strings.Contains(left, "its path is longer") {
			t.Errorf("of the chain is said %q", left)
		}
		if os.Geteuid() != 0 && (!strings.Contains(left, `"a-closed": permission denied`) || !strings.Contains(left, `"b-folder": permission denied`)) {
			t.Errorf("of what is closed is said %q", left)
		}
	})
}

// deep makes a chain of folders with names so long that their path exceeds the kernel's limit.
func deep(t *testing.T, dir string, levels int) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	name := "y" + strings.Repeat("-", 199)
	for range levels {
		if err := unix.Mkdirat(fd, name, 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(fd, name, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err = errors.Join(err, unix.Close(fd)); err != nil {
			t.Fatal(err)
		}
		fd = next
	}
	if err := unix.Close(fd); err != nil {
		t.Fatal(err)
	}
}

type writes func(p []byte) (int, error)

func (w writes) Write(p []byte) (int, error) { return w(p) }
