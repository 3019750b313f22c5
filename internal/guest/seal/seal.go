// Package seal takes from the guest every right that it had over its box. Bubblewrap has
// made the box's mounts and started the guest as its process 1. Before anything else of the
// guest is initialised, this package changes the box's root to a copy of the mounts that
// belongs to no mount namespace, drops every capability and applies the system call filter.
//
// The kernel lists, in /proc/PID/mountinfo and similar files, those mounts of a process's
// mount namespace that can be reached from its root. From a root outside every namespace
// none can be reached, so no process of the box can learn which path of the host anything
// was mounted from.
//
// The root, the capabilities and the filter belong to a thread, and Go has started several
// threads by then. So each step is done for all threads: with AllThreadsSyscall, which
// works only in programs without a C library, and with the filter's own flag for all
// threads. Threads that are made later inherit from the thread that makes them.
//
// The package imports as little as possible. Go initialises the packages of a program
// sorted by name, after the packages that they import: with package fmt or
// golang.org/x/sys/unix this one would be initialised after forty packages that it does not
// use.
package seal

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"choir.dev/choiros/internal/defence"
)

// Capabilities are those that bubblewrap must leave to the guest for this, by name; the
// guest ends up with none.
var Capabilities = []string{"CAP_SYS_ADMIN", "CAP_SYS_CHROOT", "CAP_SETPCAP"}

// FilterFD is the descriptor from which the filter is read.
const FilterFD = 5

// Procs is the variable by which Go knows how many processors it may use, and One its value
// for programs that run while a box starts: a second thread would only be one more to seal,
// and the launcher does not need one.
const Procs, One = "GOMAXPROCS", "1"

// Constants of the kernel that package syscall lacks.
const (
	sysOpenTree        = 428 // the same on every architecture
	sysMountSetattr    = 442 // likewise
	mountAttrReadOnly  = 0x1
	openTreeClone      = 0x1
	openTreeCloexec    = 0x80000
	atRecursive        = 0x8000
	prCapbsetRead      = 23
	prCapbsetDrop      = 24
	prSetNoNewPrivs    = 38
	seccompSetFilter   = 1
	seccompAllThreads  = 1 // SECCOMP_FILTER_FLAG_TSYNC
	capabilityVersion3 = 0x20080522
)

// sysSeccomp returns the number of the seccomp call, which package syscall lacks on amd64.
func sysSeccomp() uintptr {
	if runtime.GOARCH == "arm64" {
		return 277
	}
	return 317
}

// instruction is one instruction of a filter, in the kernel's layout (struct sock_filter).
type instruction uint64

// failed returns the error of a step.
func failed(what string, err error) error { return errors.New("seal: " + what + ": " + err.Error()) }

// errC is the error in a program with a C library, whose threads Go doesn't know.
var errC = errors.New("this program was built with cgo: build it with CGO_ENABLED=0, as make build does")

// all makes a system call in every thread of this process. If it fails in one thread and
// not in another, Go ends the process.
func all(trap, a, b uintptr) error {
	_, _, errno := syscall.AllThreadsSyscall(trap, a, b, 0)
	switch errno {
	case 0:
		return nil
	case syscall.ENOTSUP:
		return errC
	}
	return errno
}

// maxFilter is how many instructions the kernel accepts.
const maxFilter = 4096

// Process seals this process. It must be called from the process's first thread. If it
// fails, the process must not continue.
func Process() error {
	filter, err := read(FilterFD)
	if err != nil {
		return failed("read the system call filter", err)
	}
	// The umask is set before the threads stop sharing their file system state.
	syscall.Umask(0o022)
	if !defence.Off(defence.BoxMountTable) {
		if err := leave(); err != nil {
			return failed("leave the mount namespace", err)
		}
	}
	if err := drop(); err != nil {
		return failed("give up capabilities", err)
	}
	if err := apply(filter); err != nil {
		return failed("apply the system call filter", err)
	}
	return os.Unsetenv(Procs)
}

// read reads the filter from its descriptor, and closes that.
func read(fd uintptr) ([]instruction, error) {
	f := os.NewFile(fd, "filter")
	if f == nil {
		return nil, os.ErrInvalid
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() == 0 || info.Size()%8 != 0 || info.Size() > 8*maxFilter {
		return nil, errors.New("it has " + strconv.FormatInt(info.Size(), 10) + " bytes")
	}
	data := make([]byte, info.Size())
	if _, err := f.ReadAt(data, 0); err != nil {
		return nil, err
	}
	out := make([]instruction, len(data)/8)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&out[0])), len(data)), data) // the driver wrote it on this machine, so the byte order is the same
	return out, nil
}

// leave changes this process's root to a copy of its mounts that is in no mount namespace.
// Bubblewrap's mount namespace may belong to a user namespace above this process's, so the
// copy is made in a new namespace of this thread. The copied mounts stay attached to each
// other as long as a process has its root in them.
func leave() error {
	if err := syscall.Unshare(syscall.CLONE_NEWNS); err != nil {
		return err
	}
	if !defence.Off(defence.BoxKernelModes) {
		if err := keepModes(); err != nil {
			return err
		}
	}
	root := [...]byte{'/', 0}
	tree, _, errno := syscall.Syscall(sysOpenTree, ^uintptr(99), uintptr(unsafe.Pointer(&root[0])), openTreeClone|openTreeCloexec|atRecursive) // AT_FDCWD is -100
	if errno != 0 {
		return errno
	}
	// This thread no longer shares its root and working directory with the others.
	if err := all(syscall.SYS_FCHDIR, tree, 0); err != nil {
		return err
	}
	here := [...]byte{'.', 0}
	if err := all(syscall.SYS_CHROOT, uintptr(unsafe.Pointer(&here[0])), 0); err != nil {
		return err
	}
	if err := syscall.Close(int(tree)); err != nil {
		return err
	}
	// The kernel itself is asked whether it worked.
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	if len(table) > 0 {
		return errors.New("the mounts are still listed")
	}
	return nil
}

// Proc is a descriptor of a /proc that can be written, for this process alone; -1 if the
// box's /proc can be.
var Proc = -1

// kernels are the mounts of a box that the whole machine has: the kernel's own files, and
// devices.
var kernels = []string{"/proc", "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}

// keepModes makes those of these mounts read-only that belong to the box's user, which they
// do when choir runs as root. Whoever owns a file may change its mode, and the modes of a
// device or of a file in /proc are the same in every box and on the host: one box that
// closes /dev/null or /proc/meminfo has closed it for all. A device on a mount that is
// read-only is written to as before. Of the files of processes only a program's own are
// lost to writing, such as oom_score_adj, which the guest writes through Proc.
func keepModes() error {
	for _, path := range kernels {
		var info syscall.Stat_t
		if err := syscall.Lstat(path, &info); err != nil {
			return errors.New(path + ": " + err.Error())
		}
		if int(info.Uid) != syscall.Getuid() {
			continue
		}
		name := append([]byte(path), 0)
		if path == "/proc" {
			fd, _, errno := syscall.Syscall(sysOpenTree, ^uintptr(99), uintptr(unsafe.Pointer(&name[0])), openTreeClone|openTreeCloexec|atRecursive) // the kernel copies no mount without those that cover it
			if errno != 0 {
				return errors.New(path + ": " + errno.Error())
			}
			Proc = int(fd)
		}
		attr := [4]uint64{mountAttrReadOnly} // set, clear, propagation, user namespace
		if _, _, errno := syscall.Syscall6(sysMountSetattr, ^uintptr(99), uintptr(unsafe.Pointer(&name[0])), 0, uintptr(unsafe.Pointer(&attr[0])), unsafe.Sizeof(attr), 0); errno != 0 {
			return errors.New(path + ": " + errno.Error())
		}
	}
	return nil
}

// drop drops what this process may do, and what a program that it starts could gain.
func drop() error {
	for c := uintptr(0); c < 64; c++ {
		set, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prCapbsetRead, c, 0)
		if errno == syscall.EINVAL {
			break // the kernel has no more capabilities
		}
		if errno != 0 {
			return errno
		}
		if set == 0 {
			continue // bubblewrap dropped it before any thread was made
		}
		if err := all(syscall.SYS_PRCTL, prCapbsetDrop, c); err != nil {
			return err
		}
	}
	header := [2]uint32{capabilityVersion3} // 0 means the calling thread
	var none [2][3]uint32                   // effective, permitted, inheritable; this also clears the ambient ones
	return all(syscall.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none[0])))
}

// apply sets the filter for all threads, which the programs they start inherit. For the
// other threads the kernel also sets "no new privileges" when it sets the filter.
func apply(filter []instruction) error {
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, prSetNoNewPrivs, 1, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	program := struct {
		n      uint16
		filter *instruction
	}{uint16(len(filter)), &filter[0]}
	thread, _, errno := syscall.RawSyscall(sysSeccomp(), seccompSetFilter, seccompAllThreads, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return errno
	}
	if thread != 0 {
		return errors.New("thread " + strconv.Itoa(int(thread)) + " has another one")
	}
	return nil
}
