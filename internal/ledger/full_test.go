package ledger_test

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/ledger"
)

// inSmallDisk runs the calling test once more in namespaces of its own, where
// it may mount a tmpfs of size, and returns that directory there, "" here.
func inSmallDisk(t *testing.T, size string) string {
	t.Helper()
	const env = "CHOIR_TEST_SMALL_DISK"
	if dir := os.Getenv(env); dir != "" {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
			t.Fatalf("mount a tmpfs: %v", err)
		}
		return dir
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), env+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("in a user namespace (this test needs them): %v\n%s", err, out)
	}
	return ""
}

// fill writes until the disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, unix.ENOSPC) {
			size /= 2
		} else if err != nil && !errors.Is(err, io.ErrShortWrite) {
			t.Fatal(err)
		}
	}
}

func TestDiskFull(t *testing.T) {
	dir := inSmallDisk(t, "32m")
	if dir == "" {
		return
	}
	b := openBus(t, filepath.Join(dir, "nats"))
	l := openLog(t, b, ledger.Options{CID: contract.NewCID()})
	mustAppend(t, l, prompt("before"))
	ballast := filepath.Join(dir, "ballast")
	fill(t, ballast)
	draft := prompt(strings.Repeat("y", 30_000))
	draft.ID = contract.NewID()
	for range 3 {
		if _, err := l.Append(t.Context(), draft); !fault.Is(err, fault.DiskFull) || fault.HintOf(err) == "" {
			t.Fatalf("append on a full disk: %v (%s), want disk_full with a hint", err, fault.CodeOf(err))
		}
	}
	if page, err := l.Read(t.Context(), 0, 10); err != nil || len(page) != 1 {
		t.Errorf("reading on a full disk: %d events, %v", len(page), err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	// Writing goes on by itself.
	deadline := time.Now().Add(30 * time.Second)
	for {
		_, err := l.Append(t.Context(), draft)
		if err == nil {
			break
		}
		if !fault.Is(err, fault.DiskFull) && !fault.Is(err, fault.Unavailable) || time.Now().After(deadline) {
			t.Fatalf("after space was freed: %v", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	mustAppend(t, l, prompt("after"))
	if n := len(wholeLog(t, l)); n != 3 {
		t.Errorf("the log holds %d events, want 3", n)
	}
}

// TestANewLogOnAFullDisk: a log for which there is no room is refused with what
// to free, and made once there is some.
func TestANewLogOnAFullDisk(t *testing.T) {
	dir := inSmallDisk(t, "32m")
	if dir == "" {
		return
	}
	b := openBus(t, filepath.Join(dir, "nats"))
	ballast := filepath.Join(dir, "ballast")
	fill(t, ballast)
	opts := ledger.Options{CID: contract.NewCID(), Health: b.Health}
	for range 2 {
		if _, err := ledger.Open(t.Context(), b.JetStream(), opts); !fault.Is(err, fault.DiskFull) || fault.HintOf(err) != fault.FreeSpace {
			t.Fatalf("a new log on a full disk: %v (%s)", err, fault.CodeOf(err))
		}
	}
	if _, err := b.Refill(t.Context(), contract.NewCID()); !fault.Is(err, fault.DiskFull) {
		t.Errorf("a log to refill: %v (%s)", err, fault.CodeOf(err))
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if b.Health() != nil && time.Now().Before(deadline) {
			continue // the server starts anew
		}
		l, err := ledger.Open(t.Context(), b.JetStream(), opts)
		if err == nil {
			mustAppend(t, l, prompt("after"))
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			return
		}
		if !fault.Is(err, fault.DiskFull) && !fault.Is(err, fault.Unavailable) || time.Now().After(deadline) {
			t.Fatalf("after space was freed: %v", err)
		}
	}
}
