package choirtest

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// OwnMounts runs the calling test once more in namespaces of its own, where it may mount, and
// reports whether it is in these now. env is added to its environment.
func OwnMounts(t testing.TB, env ...string) bool {
	t.Helper()
	const there = "CHOIR_TEST_OWN_MOUNTS"
	if os.Getenv(there) == t.Name() {
		return true
	}
	NotInBox(t, "user namespace to mount in")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(append(os.Environ(), there+"="+t.Name()), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Fatalf("in a user namespace (this test needs them): %v\n%s", err, out)
	}
	return false
}

// SmallDisk runs the calling test once more with its temporary files on a disk of its own, a tmpfs
// with these mount options. There it returns that directory, and here "".
func SmallDisk(t testing.TB, options string) string {
	t.Helper()
	const where = "CHOIR_TEST_SMALL_DISK"
	at := os.Getenv(where)
	if at == "" {
		at = t.TempDir()
	}
	if !OwnMounts(t, where+"="+at, "TMPDIR="+at) {
		return ""
	}
	if err := unix.Mount("tmpfs", at, "tmpfs", 0, options); err != nil {
		t.Fatalf("mount a tmpfs (this test needs one): %v", err)
	}
	return at
}

// FillDisk fills the disk of the temporary files except for some pages, and returns a function that
// frees it.
func FillDisk(t testing.TB, pages int) (free func()) {
	t.Helper()
	f, err := os.CreateTemp("", "ballast")
	if err != nil {
		t.Fatal(err)
	}
	page := make([]byte, os.Getpagesize())
	size := int64(0)
	for err == nil {
		var n int
		n, err = f.Write(page)
		size += int64(n)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	// If it stayed open, it would keep its space when it is removed.
	if err := errors.Join(f.Truncate(max(0, size-int64(pages*len(page)))), f.Close()); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := os.Remove(f.Name()); err != nil {
			t.Fatal(err)
		}
	}
}
