package local

import (
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// sweep kills what bubblewrap left behind. If bubblewrap is killed while it starts, it
// leaves a child that waits for it forever, because the child is not yet set to die with
// its parent. Without a cgroup, that child is found by the box's lock, which it inherited.
//
// If bubblewrap is killed later, the guest is killed with it, and may still be ending: until
// it has ended, others in its namespace may write. The kernel ends it after all of them.
func (b *box) sweep() {
	b.mu.Lock()
	started := b.pidfd >= 0
	b.mu.Unlock()
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		pids := b.group.Members()
		if !started {
			pids = append(pids, holders(filepath.Join(b.run, lockName))...)
		}
		left := 0
		for _, pid := range pids {
			if pid != os.Getpid() {
				left++
				_ = unix.Kill(pid, unix.SIGKILL) // it may have ended meanwhile
			}
		}
		if left == 0 && (!started || b.endGuest()) {
			return
		}
	}
}

// endGuest kills the guest, which has been identified, and reports whether it and everything
// else in its namespace has ended.
func (b *box) endGuest() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_ = unix.PidfdSendSignal(b.pidfd, unix.SIGKILL, nil, 0) // it may have ended meanwhile
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(b.pidfd), Events: unix.POLLIN}}, 0)
	return err == nil && n > 0
}
