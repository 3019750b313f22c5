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

// Namespaces makes a process that is started with a be a stage: in a user and mount
// namespace of its own, with every capability there, and with no user mapping yet (see
// Plan.UID).
//
// The kernel then makes the process without copying this one's page tables. With user
// mappings in a, package syscall would fork with a copy, because it writes the mappings
// while the new process waits. That takes a millisecond for each 30 MB that this process
// has, and afterwards a page fault for each page that it writes. So the stage writes its
// mappings itself. Without a mapped user it would lose its capabilities on exec, hence the
// ambient ones.
func Namespaces(a *syscall.SysProcAttr) {
	a.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_VM | syscall.CLONE_VFORK
	a.AmbientCaps = capabilities()
}

// capabilities are all that the kernel has. If one were left out, executing bubblewrap
// would gain it, and then the kernel would drop the setting by which bubblewrap dies with
// choir.
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

// identify maps the host's user to root in this process's user namespace, and maps nobody
// else.
func (p Plan) identify() error {
	for _, f := range []struct{ name, text string }{
		{"setgroups", "deny"}, // otherwise an unprivileged process may not write the group's mapping
		{"gid_map", fmt.Sprintf("0 %d 1\n", p.GID)},
		{"uid_map", fmt.Sprintf("0 %d 1\n", p.UID)},
	} {
		fd, err := unix.Open("/proc/self/"+f.name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			_, err = unix.Write(fd, []byte(f.text))
			_ = unix.Close(fd) // what was written takes effect at once
		}
		if err != nil {
			return fmt.Errorf("say who is root (%s): %w", f.name, err)
		}
	}
	return nil
}

// plainRoot leaves this thread with every capability that root has by being root, and
// clears the ambient ones, which it would pass on.
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
