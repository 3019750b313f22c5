package launch

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Namespaces has a process that is started with a be a stage: in a user and mount
// namespace of its own, with every capability there, and no user yet (Plan.UID).
//
// The kernel makes the process without a copy of this one's memory. With mappings of
// users in a, package syscall would make one, since it writes them while the new process
// waits: which takes a millisecond for each 30 MB that this process has, and has it
// copy or fault for each page that it writes to afterwards. So the stage says itself who it
// is. Without a user it would lose its capabilities as it is executed, hence the ambient ones.
func Namespaces(a *syscall.SysProcAttr) {
	a.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_VM | syscall.CLONE_VFORK
	a.AmbientCaps = capabilities()
}

// capabilities are all that the kernel has. One that were left out would be gained when
// bubblewrap is executed, and with that the kernel forgets that it is to die with choir.
var capabilities = sync.OnceValue(func() []uintptr {
	last := unix.CAP_LAST_CAP
	if data, err := os.ReadFile("/proc/sys/kernel/cap_last_cap"); err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(data))); err == nil && n >= 0 && n < 64 {
			last = n
		}
	}
	out := make([]uintptr, last+1)
	for i := range out {
		out[i] = uintptr(i)
	}
	return out
})

// identify makes the host's user root in this process's user namespace, and nobody else
// anything.
func (p Plan) identify() error {
	for _, f := range []struct{ name, text string }{
		{"setgroups", "deny"}, // or the group could not be said by who is nobody's root
		{"gid_map", fmt.Sprintf("0 %d 1\n", p.GID)},
		{"uid_map", fmt.Sprintf("0 %d 1\n", p.UID)},
	} {
		fd, err := unix.Open("/proc/self/"+f.name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			_, err = unix.Write(fd, []byte(f.text))
			_ = unix.Close(fd) // what was written counts at once
		}
		if err != nil {
			return fmt.Errorf("say who is root (%s): %w", f.name, err)
		}
	}
	return nil
}

// plainRoot leaves this thread with what root has by being root, which is every capability,
// and none that it would hand on otherwise.
func plainRoot() error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("give up ambient capabilities: %w", err)
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var set [2]unix.CapUserData
	if err := unix.Capget(&head, &set[0]); err != nil {
		return fmt.Errorf("look at capabilities: %w", err)
	}
	set[0].Inheritable, set[1].Inheritable = 0, 0
	if err := unix.Capset(&head, &set[0]); err != nil {
		return fmt.Errorf("give up inheritable capabilities: %w", err)
	}
	return nil
}
