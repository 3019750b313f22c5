// Package seal gives a guest up to its box. Bubblewrap has made the box's mounts and
// started the guest as its process 1; before anything else of it is initialised, it
// puts the box's root into a copy of them that belongs to no mount namespace, gives up
// every capability and applies the system call filter.
//
// The kernel lists, in /proc/PID/mountinfo and its like, those mounts of a process's
// mount namespace that can be reached from its root. From a root outside every
// namespace none can be reached, so that no process of the box is told which path
// of the host anything was mounted from.
//
// A root, what a thread may do and its filter are of one thread, and Go has started
// a few by then: what is done here is done to each of them (AllThreadsSyscall, which is
// for programs without a C library alone, and the filter's own way to be given to all).
// Threads that are made later have what the one has that makes them.
//
// It imports next to nothing. Go initialises the packages of a program in the order
// of their names, as far as what they import is initialised: with package fmt or
// golang.org/x/sys/unix it would begin behind forty packages of which it
// uses none.
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

// Capabilities are what bubblewrap must leave the guest for this, by name; it ends with none.
var Capabilities = []string{"CAP_SYS_ADMIN", "CAP_SYS_CHROOT", "CAP_SETPCAP"}

// FilterFD is the descriptor that the filter is read from.
const FilterFD = 5

// Procs is the variable by which Go knows on how many processors it may run, and One is
// what a program is told that begins in a box's start: a second thread of Go's own would only be
// one more to seal, and the launcher has no use for one.
const Procs, One = "GOMAXPROCS", "1"

// What package syscall lacks of the kernel's words.
const (
	sysOpenTree        = 428 // everywhere
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

// sysSeccomp is that call's number, which package syscall lacks on amd64.
func sysSeccomp() uintptr {
	if runtime.GOARCH == "arm64" {
		return 277
	}
	return 317
}

// instruction is one of a filter, as the kernel has it (struct sock_filter).
type instruction uint64

// failed says what could not be done.
func failed(what string, err error) error { return errors.New("seal: " + what + ": " + err.Error()) }

// errC is why this can't be done in a program with a C library, whose threads Go doesn't know.
var errC = errors.New("this program was built with cgo: build it with CGO_ENABLED=0, as make build does")

// all makes a call in every thread of this process. Where it fails in one and not in
// another Go ends the process.
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

// maxFilter is how many instructions the kernel takes.
const maxFilter = 4096

// Process seals this process. It must be called from the process's first thread, and one
// for which it fails must not go on.
func Process() error {
	filter, err := read(FilterFD)
	if err != nil {
		return failed("read the system call filter", err)
	}
	// Of the files that all threads share until one of them leaves.
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

// read takes the filter from its descriptor, which is then closed.
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
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&out[0])), len(data)), data) // as the driver wrote it, on this machine
	return out, nil
}

// leave puts this process's root into a copy of its mounts that is in no mount
// namespace. Bubblewrap's mount namespace may belong to a user namespace above
// this process's, hence a namespace of this thread's own that the copy is made in. What is
// copied stays together for as long as a process has its root in it.
func leave() error {
	if err := syscall.Unshare(syscall.CLONE_NEWNS); err != nil {
		return err
	}
	root := [...]byte{'/', 0}
	tree, _, errno := syscall.Syscall(sysOpenTree, ^uintptr(99), uintptr(unsafe.Pointer(&root[0])), openTreeClone|openTreeCloexec|atRecursive) // AT_FDCWD is -100
	if errno != 0 {
		return errno
	}
	// This thread shares its root and working directory with no other one any more.
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
		set, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prCapbsetRead, c, 0)
		if errno == syscall.EINVAL {
			break // the kernel has no more
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
	header := [2]uint32{capabilityVersion3} // of the calling thread
	var none [2][3]uint32                   // effective, permitted, inheritable; none is ambient that is not in these
	return all(syscall.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none[0])))
}

// apply gives all threads the filter, and with it what they start. That no privileges are
// gained by that, either, the kernel sets in the others as it gives them the filter.
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
