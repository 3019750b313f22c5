package local

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/sandboxtest"
)

// TestALauncherStartsWithoutACopy shows that starting a box with trees to build does not copy this
// process's memory map. After a copy, the kernel would interrupt the process at each page that it
// writes to next.
func TestALauncherStartsWithoutACopy(t *testing.T) {
	sandboxtest.AsUser(t, func(t *testing.T) {
		d, err := New(t.Context(), Options{Guest: sandboxtest.BareGuest(t), Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		e := sandboxtest.NewEnv(t, d)
		mine, err := unix.Mmap(-1, 0, 64<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Munmap(mine) }()
		if err := unix.Madvise(mine, unix.MADV_NOHUGEPAGE); err != nil {
			t.Fatal(err)
		}
		pages := len(mine) / os.Getpagesize()
		write := func() (faults int64) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var before, after unix.Rusage
			if err := unix.Getrusage(unix.RUSAGE_THREAD, &before); err != nil {
				t.Fatal(err)
			}
			for i := range pages {
				mine[i*os.Getpagesize()]++
			}
			if err := unix.Getrusage(unix.RUSAGE_THREAD, &after); err != nil {
				t.Fatal(err)
			}
			return after.Minflt - before.Minflt
		}
		write()
		for i := range 3 {
			box, err := e.Computer.Box(t.Context(), sandbox.BoxSpec{ID: fmt.Sprint("b", i), Kind: contract.BoxTask,
				Mounts: []sandbox.Mount{{Target: "/computer", Mode: sandbox.Overlay, Lower: []sandbox.Volume{sandbox.Live("")}}}})
			if err != nil {
				t.Fatal(err)
			}
			if n := write(); n > int64(pages/4) {
				t.Errorf("the %d pages of this process were met again in %d faults", pages, n)
			}
			if err := box.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
