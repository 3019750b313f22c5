// Package seal is the stage between bubblewrap and the guest. Bubblewrap has made
// the box's mounts; this program, process 1 of the box already, puts the box's
// root into a copy of them that belongs to no mount namespace, gives up every
// capability, applies the system call filter and becomes the guest.
//
// The kernel lists, in /proc/PID/mountinfo and its like, those mounts of a process's
// mount namespace that can be reached from its root. From a root outside every
// namespace none can be reached, so that no process of the box is told which path
// of the host anything was mounted from.
package seal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/defence"
)

// Capabilities are what bubblewrap must leave this stage, by name; the guest gets none.
var Capabilities = []string{"CAP_SYS_ADMIN", "CAP_SYS_CHROOT", "CAP_SETPCAP"}

// maxFilter is how many instructions the kernel takes.
const maxFilter = 4096

// Args returns the arguments with which a guest binary reads the filter from a
// descriptor, seals the box and becomes itself again with args.
func Args(fd int, args ...string) []string {
	return append([]string{"seal", strconv.Itoa(fd)}, args...)
}

// Main seals the box and becomes args[1:] of the same program, whose absolute path is
// os.Args[0]. It must be called from the process's first thread, and returns only when it
// fails, with 125.
func Main(args []string) int {
	err := seal(args)
	fmt.Fprintln(os.Stderr, "choir seal:", err)
	return 125
}

func seal(args []string) error {
	if len(args) < 2 {
		return errors.New("nothing to become")
	}
	fd, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	filter, err := read(fd)
	if err != nil {
		return fmt.Errorf("read the system call filter: %w", err)
	}
	if !defence.Off(defence.BoxMountTable) {
		if err := leave(); err != nil {
			return fmt.Errorf("leave the mount namespace: %w", err)
		}
	}
	if err := drop(); err != nil {
		return fmt.Errorf("give up capabilities: %w", err)
	}
	if err := apply(filter); err != nil {
		return fmt.Errorf("apply the system call filter: %w", err)
	}
	argv := append([]string{os.Args[0]}, args[1:]...)
	return fmt.Errorf("start %s: %w", argv[0], syscall.Exec(argv[0], argv, os.Environ()))
}

// read takes the filter from its descriptor, which is then closed.
func read(fd int) ([]unix.SockFilter, error) {
	f := os.NewFile(uintptr(fd), "filter")
	if f == nil {
		return nil, os.ErrInvalid
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() == 0 || info.Size()%8 != 0 || info.Size() > 8*maxFilter {
		return nil, fmt.Errorf("it has %d bytes", info.Size())
	}
	data := make([]byte, info.Size())
	if _, err := f.ReadAt(data, 0); err != nil {
		return nil, err
	}
	out := make([]unix.SockFilter, len(data)/8)
	for i := range out {
		b := data[8*i:]
		out[i] = unix.SockFilter{Code: binary.NativeEndian.Uint16(b), Jt: b[2], Jf: b[3], K: binary.NativeEndian.Uint32(b[4:])}
	}
	return out, nil
}

// leave puts this process's root into a copy of its mounts that is in no mount
// namespace. Bubblewrap's mount namespace may belong to a user namespace above
// this process's, hence the namespace of its own that the copy is made in. What is
// copied stays together for as long as a process has its root in it.
func leave() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	tree, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return err
	}
	if err := unix.Fchdir(tree); err != nil {
		return err
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	// The kernel's answer is what counts, so it is asked.
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	if len(table) > 0 {
		return errors.New("the mounts are still listed")
	}
	return nil
}

// drop gives up what this process may do, and what a program that it starts
// could get.
func drop() error {
	for c := uintptr(0); c < 64; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); errors.Is(err, unix.EINVAL) {
			break // the kernel has no more
		} else if err != nil {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return err
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	return unix.Capset(&header, &none[0])
}

// apply gives this thread the filter, and with it what it becomes.
func apply(filter []unix.SockFilter) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
}
