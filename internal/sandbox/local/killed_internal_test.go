package local

import (
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/local/cgroup"
	"choir.dev/choiros/internal/sandbox/sandboxtest"
)

// TestABoxWhoseBubblewrapIsKilledHasEnded shows that a box of which bubblewrap is killed from
// outside counts as ended once the kernel has ended everything in it, also on a machine without
// control groups: whatever happens next relies on nobody in it writing any more.
func TestABoxWhoseBubblewrapIsKilledHasEnded(t *testing.T) {
	d, err := New(t.Context(), Options{Guest: sandboxtest.BareGuest(t), Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	d.cgroups = &cgroup.Groups{Parent: map[string]string{}, Home: map[string]string{}}
	e := sandboxtest.NewEnv(t, d)
	for range 5 {
		opened, g := e.Box(t, sandbox.BoxSpec{ID: "killed"})
		b := opened.(*box)
		// Freeing this memory takes the kernel a while, within the guest's end.
		holding := make(chan struct{})
		var holds sync.WaitGroup
		holds.Go(func() {
			_, _ = g.Exec(t.Context(), guest.ExecRequest{Argv: []string{"sh", "-c", "x=$(head -c 60M /dev/zero | tr '\\0' x); echo ready; sleep 1000"}}, guest.Streams{Stdout: closer{holding}})
		})
		t.Cleanup(holds.Wait)
		select {
		case <-holding:
		case <-time.After(time.Minute):
			t.Fatal("its program is not ready")
		}
		fd, err := unix.PidfdOpen(b.pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-b.done
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		if err != nil || n != 1 {
			t.Errorf("the box is told as ended while its guest lives: %d, %v", n, err)
		}
		if err := unix.Close(fd); err != nil {
			t.Fatal(err)
		}
	}
}
