package disk_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/blob"
	"choir.dev/choiros/internal/blob/blobtest"
	"choir.dev/choiros/internal/blob/disk"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/test/choirtest"
)

const crashEnv = "CHOIR_BLOB_CRASH"

// TestMain lets the test binary run itself as the process that is killed: it puts one blob and
// kills itself at the given point.
func TestMain(m *testing.M) {
	orders := strings.Fields(os.Getenv(crashEnv))
	if len(orders) != 3 {
		os.Exit(m.Run())
	}
	d, err := disk.Open(orders[0], blob.Quota{})
	if err == nil {
		d.AtStep(func(point string) {
			if point == orders[2] {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {} // the signal is on its way
			}
		})
		_, _, err = d.Put(context.Background(), contract.CID(orders[1]), strings.NewReader(crashContent))
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

var crashContent = strings.Repeat("content that must be whole or absent ", 5000)

func TestCrashLeavesWholeBlobsOrTemporaries(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for point, there := range map[string]bool{"created": false, "written": false, "synced": false, "renamed": true, "done": true} {
		dir, cid := t.TempDir(), contract.NewCID()
		cmd := exec.CommandContext(t.Context(), self)
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s", crashEnv, dir, cid, point))
		out, err := cmd.CombinedOutput()
		if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !ws.Signaled() {
			t.Fatalf("%s: the child was to be killed: %v\n%s", point, err, out)
		}
		d := open(t, dir, blob.Quota{})
		want := 0
		if there {
			want = 1
		}
		if left := files(t, dir); len(left) != want {
			t.Errorf("%s: after opening again there is %v", point, left)
		}
		if used, err := d.Usage(cid); err != nil || used != int64(want*len(crashContent)) {
			t.Errorf("%s: usage %d, %v", point, used, err)
		}
		if got, err := blobtest.Get(d, cid, blobtest.Put(t, d, cid, crashContent)); err != nil || got != crashContent {
			t.Errorf("%s: put again: %v", point, err)
		}
	}
}

func TestDiskFull(t *testing.T) {
	dir := choirtest.SmallDisk(t, "size=4m")
	if dir == "" {
		return
	}
	d, cid := open(t, filepath.Join(dir, "blobs"), blob.Quota{}), contract.NewCID()
	kept := blobtest.Put(t, d, cid, "small")
	endless := io.LimitReader(zeros{}, 64<<20)
	if _, _, err := d.Put(t.Context(), cid, endless); !fault.Is(err, fault.DiskFull) || fault.HintOf(err) == "" || !errors.Is(err, unix.ENOSPC) {
		t.Errorf("put on a full disk: %v", err)
	}
	if left := files(t, dir); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
	if got, err := blobtest.Get(d, cid, kept); err != nil || got != "small" {
		t.Errorf("what was there before: %v", err)
	}
	if used, err := d.Usage(cid); err != nil || used != 5 {
		t.Errorf("usage %d, %v", used, err)
	}
	blobtest.Put(t, d, cid, strings.Repeat("x", 1<<20))
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
