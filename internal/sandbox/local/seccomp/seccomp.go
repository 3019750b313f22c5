package seccomp

import (
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/defence"
)

// The filter is classic BPF over struct seccomp_data: nr at 0, arch at 4, the
// instruction pointer at 8, six arguments of 8 bytes at 16 (little endian on
// both architectures, so an argument's low word comes first).
const (
	offNr   = 0
	offArch = 4
	offArg0 = 16
	offArg1 = 24
	offArg2 = 32

	retAllow  = unix.SECCOMP_RET_ALLOW
	retEPERM  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	retEINVAL = unix.SECCOMP_RET_ERRNO | uint32(unix.EINVAL)
	retENOSYS = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)

	retENOPROTOOPT     = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOPROTOOPT)
	retEAFNOSUPPORT    = unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)
	retEPROTONOSUPPORT = unix.SECCOMP_RET_ERRNO | uint32(unix.EPROTONOSUPPORT)
	retKill            = unix.SECCOMP_RET_KILL_PROCESS
)

type instruction = unix.SockFilter

// assembler builds a program in which every test ends in a return, so that all jumps are
// short and forward.
type assembler []instruction

func (a *assembler) load(offset uint32) {
	*a = append(*a, instruction{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset})
}

func (a *assembler) ret(action uint32) {
	*a = append(*a, instruction{Code: unix.BPF_RET | unix.BPF_K, K: action})
}

// ifEqual returns action when the loaded word is k.
func (a *assembler) ifEqual(k, action uint32) {
	*a = append(*a, instruction{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jf: 1})
	a.ret(action)
}

// unlessEqual returns action when the loaded word is not k.
func (a *assembler) unlessEqual(k, action uint32) {
	*a = append(*a, instruction{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jt: 1})
	a.ret(action)
}

// ifAtLeast returns action when the loaded word is k or more.
func (a *assembler) ifAtLeast(k, action uint32) {
	*a = append(*a, instruction{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, K: k, Jf: 1})
	a.ret(action)
}

// ifBits returns action when the loaded word has any bit of k.
func (a *assembler) ifBits(k, action uint32) {
	*a = append(*a, instruction{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: k, Jf: 1})
	a.ret(action)
}

// call runs body, which must load what it tests, if the loaded word is nr (a system call's
// number, or a socket family), and lets the call pass if body did not return.
func (a *assembler) call(nr uint32, body func(*assembler)) {
	var inner assembler
	body(&inner)
	inner.ret(retAllow)
	*a = append(*a, instruction{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: nr, Jf: uint8(len(inner))})
	*a = append(*a, inner...)
}

// refused lists system calls that no program in a box needs; they return EPERM.
var refused = append([]uint32{
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT,
	unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_GETFD, unix.SYS_KCMP, unix.SYS_PROCESS_MADVISE,
	unix.SYS_SETNS, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL,
	unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_REBOOT,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
	unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_SYSLOG, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_ADJTIMEX, unix.SYS_CLOCK_ADJTIME,
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_VHANGUP,
	unix.SYS_MOVE_PAGES, unix.SYS_MIGRATE_PAGES, unix.SYS_FANOTIFY_INIT,
}, refusedHere...)

// newestCall is the newest system call that this filter knows; later ones return ENOSYS, as
// from a kernel that does not have them.
const newestCall = unix.SYS_MSEAL

// Allowances says what a box is let do that others are not.
type Allowances struct {
	Watch bool // watch files, by inotify
	Lease bool // take leases on files
}

// filter builds the program for this architecture.
func filter(lets Allowances) []instruction {
	var a assembler
	a.load(offArch)
	a.unlessEqual(auditArch, retKill)
	a.load(offNr)
	if x32Bit != 0 {
		a.ifAtLeast(x32Bit, retENOSYS)
	}
	if !defence.Off(defence.BoxNewCalls) {
		a.ifAtLeast(newestCall+1, retENOSYS)
	}
	// The filter can't look into the structures that clone3 and io_uring take. Programs
	// fall back to clone and to epoll.
	if !defence.Off(defence.BoxClone3) {
		a.ifEqual(unix.SYS_CLONE3, retENOSYS)
	}
	// No program needs these: /proc lists the mounts that a program in the box may know of.
	for _, nr := range []uint32{unix.SYS_STATMOUNT, unix.SYS_LISTMOUNT} {
		a.ifEqual(nr, retENOSYS)
	}
	if !defence.Off(defence.BoxRings) {
		for _, nr := range []uint32{unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER} {
			a.ifEqual(nr, retENOSYS)
		}
	}
	for _, nr := range refused {
		if !defence.Off(defence.BoxCalls) {
			a.ifEqual(nr, retEPERM)
		}
	}
	if !lets.Watch && !defence.Off(defence.BoxWatchers) {
		for _, nr := range inotify {
			a.ifEqual(nr, retENOSYS)
		}
	}
	for _, nr := range []uint32{unix.SYS_CLONE, unix.SYS_UNSHARE} {
		if defence.Off(defence.BoxUsers) {
			continue
		}
		a.call(nr, func(a *assembler) {
			a.load(offArg0)
			a.ifBits(unix.CLONE_NEWUSER, retEPERM)
		})
	}
	a.call(unix.SYS_IOCTL, func(a *assembler) {
		// The kernel looks at the low word only, so the filter must too.
		a.load(offArg1)
		if !defence.Off(defence.BoxTyping) {
			a.ifEqual(unix.TIOCSTI, retEPERM)
		}
		a.ifEqual(tioclinux, retEPERM)
	})
	a.call(unix.SYS_FCNTL, func(a *assembler) { fileCommands(a, lets) })
	if !defence.Off(defence.BoxFilters) {
		a.call(unix.SYS_SETSOCKOPT, socketFilters)
		a.call(unix.SYS_SECCOMP, func(a *assembler) {
			a.load(offArg0)
			a.ifEqual(unix.SECCOMP_SET_MODE_FILTER, retEINVAL)
		})
		a.call(unix.SYS_PRCTL, callFilters)
	}
	for _, nr := range []uint32{unix.SYS_SOCKET, unix.SYS_SOCKETPAIR} {
		if !defence.Off(defence.BoxFamilies) {
			a.call(nr, sockets)
		}
	}
	if !defence.Off(defence.BoxAIO) {
		a.ifEqual(unix.SYS_IO_SETUP, retENOSYS)
	}
	a.ret(retAllow)
	return a
}

const tioclinux = 0x541C

// newestCommand is the newest command of fcntl that this filter knows, F_SET_FILE_RW_HINT.
const newestCommand = 1038

// fileCommands refuses commands of fcntl by which a box has others wait who only open or read
// a file. The files that each box has are the same on the host and in every other box, and
// many belong to the box's user.
//
// Who opens a file waits up to 45 seconds until the holder of a lease on it has given it up:
// with a lease on /etc/ld.so.cache a box would have every start of a program in the others
// wait. Who reads a file of a folder goes through all that were to be told of it (F_NOTIFY,
// which inotify took the place of), without a bound of how many these are: 16,000 make each
// read 2 ms longer, for everybody. Both are refused as by a file system without them. Newer
// kernels have further commands of that kind, for folders.
func fileCommands(a *assembler, lets Allowances) {
	a.load(offArg1)
	if !defence.Off(defence.BoxNotices) {
		a.ifEqual(unix.F_NOTIFY, retEINVAL)
	}
	if !lets.Lease && !defence.Off(defence.BoxLeases) {
		a.ifEqual(unix.F_SETLEASE, retEINVAL)
		a.ifAtLeast(newestCommand+1, retEINVAL)
	}
}

// callFilters refuses that a program filters its own system calls by prctl, as is refused for
// seccomp, in the words of a kernel that has no filters: programs go on without.
//
// The kernel translates such a filter, and one of a socket, to code of the processor, up to 50
// KiB. All that users without privileges have of that is bounded for the machine
// (net.core.bpf_jit_limit, often 264 MB) and counted for nobody. Each process may have seven of
// its own and each socket one: with 1,000 processes or 10,000 sockets a box has all, and no
// further box could be started, for its own filter is one of them.
func callFilters(a *assembler) {
	a.load(offArg0)
	a.unlessEqual(unix.PR_SET_SECCOMP, retAllow)
	a.load(offArg1)
	a.ifEqual(unix.SECCOMP_MODE_FILTER, retEINVAL)
}

// socketFilters refuses filters of sockets, for the same reason.
func socketFilters(a *assembler) {
	a.load(offArg1)
	a.unlessEqual(unix.SOL_SOCKET, retAllow)
	a.load(offArg2)
	a.ifEqual(unix.SO_ATTACH_FILTER, retENOPROTOOPT)
	a.ifEqual(unix.SO_ATTACH_REUSEPORT_CBPF, retENOPROTOOPT)
}

// sockets lets only the socket families and protocols pass that programs need, so that the
// box can't reach the others in the host's kernel, which would even load modules for them.
// MPTCP has no use without a network, and the memory of its sockets is in no list. Netlink
// is limited to the protocol that lists interfaces and addresses.
func sockets(a *assembler) {
	a.load(offArg0)
	a.call(unix.AF_UNIX, func(*assembler) {})
	for _, family := range []uint32{unix.AF_INET, unix.AF_INET6} {
		a.call(family, func(a *assembler) {
			a.load(offArg2)
			for _, protocol := range []uint32{unix.IPPROTO_IP, unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6} {
				a.ifEqual(protocol, retAllow)
			}
			a.ret(retEPROTONOSUPPORT)
		})
	}
	a.call(unix.AF_NETLINK, func(a *assembler) {
		a.load(offArg2)
		a.unlessEqual(unix.NETLINK_ROUTE, retEPROTONOSUPPORT)
	})
	a.ret(retEAFNOSUPPORT)
}

// File puts the program in an anonymous file, for bubblewrap to read.
func File(lets Allowances) (*os.File, error) {
	program := filter(lets)
	buf := make([]byte, 0, 8*len(program))
	for _, i := range program {
		buf = binary.NativeEndian.AppendUint16(buf, i.Code)
		buf = append(buf, i.Jt, i.Jf)
		buf = binary.NativeEndian.AppendUint32(buf, i.K)
	}
	fd, err := unix.MemfdCreate("choir-seccomp", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make the system call filter: %w", err)
	}
	f := os.NewFile(uintptr(fd), "seccomp")
	if _, err := f.WriteAt(buf, 0); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("make the system call filter: %w", err)
	}
	return f, nil
}
