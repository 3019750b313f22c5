package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/test/choirtest"
)

// TestAReadOnlyDisk shows that when the system makes a disk read-only, as it does after an error,
// every write fails at once with an error that says so, for as long as it lasts, and that reading
// still works.
func TestAReadOnlyDisk(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("not run: only root can mount a file system that gives up writing")
	}
	image := filepath.Join(t.TempDir(), "image")
	f, err := os.Create(image)
	if err == nil {
		err = f.Truncate(512 << 20)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, args := range [][]string{{"mkfs.ext4", "-q", "-O", "^has_journal", image}, {"mount", "-o", "loop,errors=remount-ro", image, dir}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v %s", args, err, out)
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v %s", err, out)
		}
	})
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	in := choirtest.Start(t, choirtest.Options{Data: data})
	put(t, in, "workspace/keep.txt", "kept")
	if out, err := exec.Command("mount", "-o", "remount,abort", dir).CombinedOutput(); err != nil {
		t.Fatalf("mount: %v %s", err, out)
	}
	refused := func(args ...string) {
		t.Helper()
		began := time.Now()
		r, err := in.RunInput(t.Context(), []byte("x"), args...)
		// Waiting for a store that does not become ready takes 30 s.
		if took := time.Since(began); err != nil || r.Code != 1 || took > 15*time.Second ||
			!strings.Contains(r.Stderr, "can only be read") || !strings.Contains(r.Stderr, "have it checked and mounted for writing") || strings.Contains(r.Stderr, dir) {
			t.Fatalf("choir %s: %v after %v, %+v; want it said at once that the disk can only be read, and what to do", args[0], err, took, r)
		}
	}
	// The first failure makes the log's store restart, which is tried again every half second.
	for failed := time.Now(); time.Since(failed) < 2*time.Second; {
		refused("prompt", "hello")
	}
	refused("checkpoint", "-m", "one")
	refused("files", "put", "-", "workspace/new")
	refused("prompt", "hello")
	if got := in.Must(t, "files", "cat", "workspace/keep.txt"); got != "kept" {
		t.Errorf("the file holds %q", got)
	}
}
