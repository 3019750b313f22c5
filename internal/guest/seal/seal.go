// Package seal is the stage between bubblewrap and the guest. Bubblewrap has made
// the box's mounts; this program, process 1 of the box already, puts the box's
// root into a copy of them that belongs to no mount namespace, gives up every
// capability, applies the system call filter and becomes the guest.
//
// The kernel lists, in /proc/PID/mountinfo and its like, those mounts of a process's
// mount namespace that can be reached from its root. From a root outside every
// namespace none can be reached, so that no process of the box is told which path
// of the host anything was mounted from.
//
// It imports next to nothing. Go initialises the packages of a program in the order
// of their names, as far as what they import is initialised: with package fmt or
// golang.org/x/sys/unix this stage would begin behind forty packages of which it
// uses none.
package seal

import (
	"errors"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"choir.dev/choiros/internal/defence"
)

// Capabilities are what bubblewrap must leave this stage, by name; the guest gets none.
var Capabilities = []string{"CAP_SYS_ADMIN", "CAP_SYS_CHROOT", "CAP_SETPCAP"}

// What package syscall lacks of the kernel's words.
const (
	sysOpenTree        = 428 // everywhere
	openTreeClone      = 0x1
	openTreeCloexec    = 0x80000
	atRecursive        = 0x8000
	prCapbsetDrop      = 24
	prCapAmbient       = 47
	prCapAmbientClear  = 4
	prSetNoNewPrivs    = 38
	prSetSeccomp       = 22
	seccompModeFilter  = 2
	capabilityVersion3 = 0x20080522
)

// instruction is one of a filter, as the kernel has it (struct sock_filter).
type instruction uint64

// failed says what could not be done.
func failed(what string, err error) error { return errors.New(what + ": " + err.Error()) }

func prctl(option, a, b uintptr) error {
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, option, a, b, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

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
	_, _ = os.Stderr.WriteString("choir seal: " + err.Error() + "\n") // nobody else is there to be told
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
		return failed("read the system call filter", err)
	}
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
	argv := append([]string{os.Args[0]}, args[1:]...)
	return failed("start "+argv[0], syscall.Exec(argv[0], argv, handedOn(os.Environ())))
}

// Procs is the variable by which Go knows on how many processors it may run, and one is
// what stages are told: they have no use for more threads, which it would start.
const Procs, One = "GOMAXPROCS", "1"

// handedOn is the environment of what this stage becomes, which is no stage.
func handedOn(env []string) []string {
	var out []string
	for _, v := range env {
		if len(v) <= len(Procs) || v[:len(Procs)+1] != Procs+"=" {
			out = append(out, v)
		}
	}
	return out
}

// read takes the filter from its descriptor, which is then closed.
func read(fd int) ([]instruction, error) {
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
// this process's, hence the namespace of its own that the copy is made in. What is
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
	if err := syscall.Fchdir(int(tree)); err != nil {
		return err
	}
	if err := syscall.Chroot("."); err != nil {
		return err
	}
	if err := syscall.Chdir("/"); err != nil {
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
		if err := prctl(prCapbsetDrop, c, 0); errors.Is(err, syscall.EINVAL) {
			break // the kernel has no more
		} else if err != nil {
			return err
		}
	}
	if err := prctl(prCapAmbient, prCapAmbientClear, 0); err != nil {
		return err
	}
	header := [2]uint32{capabilityVersion3} // of this thread
	var none [2][3]uint32                   // effective, permitted, inheritable
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none[0])), 0); errno != 0 {
		return errno
	}
	return nil
}

// apply gives this thread the filter, and with it what it becomes.
func apply(filter []instruction) error {
	if err := prctl(prSetNoNewPrivs, 1, 0); err != nil {
		return err
	}
	program := struct {
		n      uint16
		filter *instruction
	}{uint16(len(filter)), &filter[0]}
	return prctl(prSetSeccomp, seccompModeFilter, uintptr(unsafe.Pointer(&program)))
}
