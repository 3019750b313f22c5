package local_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/sandbox"
)

// TestAnOrphanThatHoldsTheLockIsEnded: a process that was being set up when its control plane was
// killed waits for it for ever and holds the box's lock. The next control plane ends it, but not
// while the one that opened the box lives.
func TestAnOrphanThatHoldsTheLockIsEnded(t *testing.T) {
	d, dir := open(t), t.TempDir()
	run := filepath.Join(dir, "boxes", "stuck", ".run")
	if err := os.MkdirAll(run, 0o700); err != nil {
		t.Fatal(err)
	}
	lock := filepath.Join(run, "lock")
	stuck := exec.Command("flock", lock, "sleep", "1000")
	if err := stuck.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- stuck.Wait() }()
	t.Cleanup(func() { _ = stuck.Process.Kill() })
	for deadline := time.Now().Add(10 * time.Second); exec.Command("flock", "-n", lock, "true").Run() == nil; {
		if time.Now().After(deadline) {
			t.Fatal("the lock was not taken")
		}
	}
	owner := func(pid int) {
		t.Helper()
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(os.Getpid()) + "/stat")
		if err != nil {
			t.Fatal(err)
		}
		started := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))[19]
		if err := os.WriteFile(filepath.Join(run, "owner"), []byte(strconv.Itoa(pid)+" "+started), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	owner(os.Getpid())
	short, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
	defer cancel()
	if _, err := d.Open(short, sandbox.ComputerSpec{CID: contract.NewCID(), Dir: dir}); !fault.Is(err, fault.InUse) {
		t.Fatalf("while the owner lives: %v; want in_use", err)
	}
	select {
	case err := <-ended:
		t.Fatalf("a living owner's process was ended: %v", err)
	default:
	}
	owner(1 << 22) // above the highest process id
	c, err := d.Open(t.Context(), sandbox.ComputerSpec{CID: contract.NewCID(), Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the orphan still lives")
	}
}

// TestEmptyBoxesAreSweptAndOverlaysAreNot: a crash after a box's directory was made and before its
// contents, or between their removals, leaves an empty directory, which is swept. An overlay that
// waits for its task stays.
func TestEmptyBoxesAreSweptAndOverlaysAreNot(t *testing.T) {
	d, dir := open(t), t.TempDir()
	empty, overlay := filepath.Join(dir, "boxes", "v-1"), filepath.Join(dir, "boxes", "task.1")
	for _, p := range []string{empty, filepath.Join(overlay, "upper")} {
		if err := os.MkdirAll(p, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	c, err := d.Open(t.Context(), sandbox.ComputerSpec{CID: contract.NewCID(), Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := os.Lstat(empty); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the empty box is still there: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(overlay, "upper")); err != nil {
		t.Errorf("the overlay is gone: %v", err)
	}
}

// TestOnlyWhatABoxLeftIsEnded shows that a process that an earlier control plane left is recognised
// by its id and its start time: another process that got the id of a box's first process is not
// ended.
func TestOnlyWhatABoxLeftIsEnded(t *testing.T) {
	d, dir := open(t), t.TempDir()
	start := func(name string, older int) (ended chan error) {
		t.Helper()
		p := exec.Command("sleep", "1000")
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Process.Kill() })
		ended = make(chan error, 1)
		go func() { ended <- p.Wait() }()
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(p.Process.Pid) + "/stat")
		if err != nil {
			t.Fatal(err)
		}
		began, err := strconv.Atoi(strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))[19])
		if err != nil {
			t.Fatal(err)
		}
		run := filepath.Join(dir, "boxes", name, ".run")
		if err := os.MkdirAll(run, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(run, "guest"), fmt.Appendf(nil, "%d %d", p.Process.Pid, began-older), 0o600); err != nil {
			t.Fatal(err)
		}
		return ended
	}
	left, stranger := start("t-left", 0), start("t-gone", 1)
	c, err := d.Open(t.Context(), sandbox.ComputerSpec{CID: contract.NewCID(), Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	select {
	case <-left:
	case <-time.After(10 * time.Second):
		t.Error("what the box left still lives")
	}
	select {
	case <-stranger:
		t.Error("a process that is nobody's box was ended")
	default:
	}
}
