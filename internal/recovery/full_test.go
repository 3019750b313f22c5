package recovery_test

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/recovery"
)

// TestRecoveringOnAFullDisk says what to free, loses nothing, and does it once
// there is space.
func TestRecoveringOnAFullDisk(t *testing.T) {
	const env = "CHOIR_TEST_SMALL_DISK"
	small := os.Getenv(env)
	if small == "" {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		at := t.TempDir()
		cmd := exec.CommandContext(t.Context(), self, "-test.run", "^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), env+"="+at, "TMPDIR="+at)
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("in a user namespace (this test needs them): %v\n%s", err, out)
		}
		return
	}
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=24m"); err != nil {
		t.Fatalf("mount a tmpfs: %v", err)
	}
	a, b := contract.NewCID(), contract.NewCID()
	dir := fill(t, a, b)
	before := stored(t, dir)
	blocks, err := filepath.Glob(dir.Path("nats", "jetstream", "*", "streams", contract.StreamLog(a), "msgs", "1.blk"))
	if err != nil || len(blocks) != 1 {
		t.Fatal(blocks, err)
	}
	st, err := os.Stat(blocks[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(blocks[0], st.Size()/2); err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(small, "ballast")
	fillUp(t, ballast)
	options := recovery.Options{Dir: dir, Driver: "local", Logger: slog.New(slog.DiscardHandler)}
	for range 2 {
		if _, err := recovery.Recover(t.Context(), options); !fault.Is(err, fault.DiskFull) || !strings.Contains(fault.HintOf(err), "Free some space") {
			t.Fatalf("recovering on a full disk: %v (%s)", err, fault.CodeOf(err))
		}
	}
	// One that was begun can't be brought to its end: that computer's alone, and it
	// is done once there is space, or what is kept for the log.
	journal := dir.Path("recovering." + string(b))
	text := `{"aside":"aside/x","states":["` + string(b) + `"]}` + "\n"
	if err := errors.Join(os.Rename(dir.Computer(b, "log.head"), journal), os.Truncate(journal, 0), os.WriteFile(dir.Computer(b, "state.sqlite"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(ballast, 8<<20); err != nil { // for the journal itself
		t.Fatal(err)
	}
	if err := os.WriteFile(journal, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	fillUp(t, ballast)
	r, err := recovery.Look(t.Context(), dir)
	if err != nil || !r.Usable() || !fault.Is(r.Refusal(b), fault.DiskFull) || !strings.Contains(fault.HintOf(r.Refusal(b)), "Free some space") || fault.Is(r.Refusal(a), fault.DiskFull) {
		t.Fatalf("%+v, %v", r, err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if _, err := recovery.Recover(t.Context(), options); err != nil {
		t.Fatal(err)
	}
	after := stored(t, dir)
	if after[b] != before[b] {
		t.Errorf("the log that was whole holds\n%s\nand held\n%s", after[b], before[b])
	}
	first, _, _ := strings.Cut(before[a], "\n")
	if !strings.HasPrefix(after[a], first) || !strings.Contains(after[a], "log.recovered") {
		t.Errorf("the damaged one holds\n%s\nand held\n%s", after[a], before[a])
	}
}

// fillUp makes a file longer until the disk is full.
func fillUp(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, unix.ENOSPC) {
			size /= 2
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil { // open, it would keep its space
		t.Fatal(err)
	}
}
