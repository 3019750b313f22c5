package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func init() {
	probes["mem-read"] = func(args []string) error { return mem(arg(args, 0), false) }
	probes["mem-write"] = func(args []string) error { return mem(arg(args, 0), true) }
	probes["getfd"] = probeGetfd
	probes["fd-open"] = probeFdOpen
	probes["ptrace"] = probePtrace
	probes["vm-read"] = probeVmRead
	probes["environ"] = probeEnviron
	probes["read"] = probeRead
	probes["write"] = probeWrite
	probes["fds"] = probeFds
	probes["kernel-files"] = probeKernelFiles
	probes["kernel-modes"] = probeKernelModes
	probes["signal"] = probeSignal
	probes["daemon"] = daemon
	probes["heart"] = probeHeart
	probes["sleep"] = probeSleep
	probes["syscall"] = call
}

// probeGetfd: pid: take its descriptors.
func probeGetfd(args []string) error {
	pid, err := strconv.Atoi(arg(args, 0))
	if err != nil {
		return err
	}
	p, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	for fd := range 64 {
		if _, gerr := unix.PidfdGetfd(p, fd, 0); gerr == nil {
			fmt.Println("took", fd)
			return nil
		} else {
			err = gerr
		}
	}
	return err
}

// probeFdOpen: pid: open its descriptors through /proc.
func probeFdOpen(args []string) error {
	links, err := filepath.Glob("/proc/" + arg(args, 0) + "/fd/*")
	if err != nil || len(links) == 0 {
		return errors.New("nothing to see")
	}
	for _, l := range links {
		if target, rerr := os.Readlink(l); rerr == nil {
			fmt.Println(target)
			return nil
		} else {
			err = rerr
		}
	}
	return err
}

func probePtrace(args []string) error {
	pid, err := strconv.Atoi(arg(args, 0))
	if err != nil {
		return err
	}
	// Seizing doesn't stop the process; it is let go when this one ends.
	if _, _, errno := syscall.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, 0, 0, 0); errno != 0 {
		return errno
	}
	fmt.Println("attached")
	return nil
}

func probeVmRead(args []string) error {
	pid, err := strconv.Atoi(arg(args, 0))
	if err != nil {
		return err
	}
	at, err := mapped(arg(args, 0))
	if err != nil {
		at = 0x400000
	}
	buf := make([]byte, 16)
	local := []unix.Iovec{{Base: &buf[0], Len: uint64(len(buf))}}
	n, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: uintptr(at), Len: len(buf)}}, 0)
	fmt.Println("read", n)
	return err
}

func probeEnviron(args []string) error {
	data, err := os.ReadFile("/proc/" + arg(args, 0) + "/environ")
	fmt.Printf("%q\n", data)
	return err
}

func probeRead(args []string) error {
	data, err := os.ReadFile(arg(args, 0))
	if err == nil && len(data) == 0 {
		return errors.New("empty")
	}
	fmt.Printf("%.200q\n", data)
	return err
}

func probeWrite(args []string) error {
	f, err := os.OpenFile(arg(args, 0), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(arg(args, 1))
	fmt.Println("wrote")
	return errors.Join(err, f.Close())
}

// probeFds: descriptors above stderr that were inherited.
func probeFds([]string) error {
	var got []string
	for fd := 3; fd < 1024; fd++ {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err == nil && flags&unix.FD_CLOEXEC == 0 {
			target, _ := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
			got = append(got, fmt.Sprintf("%d=%s", fd, target))
		}
	}
	if len(got) == 0 {
		return errors.New("none")
	}
	fmt.Println(strings.Join(got, " "))
	return nil
}

// probeKernelFiles: files of the kernel's own that could be written.
func probeKernelFiles([]string) error {
	var got []string
	_ = filepath.WalkDir("/proc", func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		// Those of processes are their own; pressure files take a trigger each.
		if d.IsDir() && (path == "/proc/self" || path == "/proc/thread-self" || path == "/proc/pressure" || len(path) > 6 && path[6] >= '0' && path[6] <= '9') {
			return filepath.SkipDir
		}
		if d.Type().IsRegular() {
			if fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0); err == nil {
				got = append(got, path)
				_ = unix.Close(fd)
			}
		}
		return nil
	})
	if len(got) == 0 {
		return errors.New("none")
	}
	fmt.Println(len(got), got[:min(len(got), 8)])
	return nil
}

// probeKernelModes: devices and files of the kernel's own whose mode could be changed. Each
// is set to what it is.
func probeKernelModes([]string) error {
	var got []string
	for _, root := range []string{"/proc", "/dev"} {
		_ = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
			if err != nil {
				return nil
			}
			// Those of processes, and the box's own terminals and shared memory.
			if d.IsDir() && (path == "/dev/pts" || path == "/dev/shm" || path == "/dev/mqueue" || len(path) > 6 && path[:6] == "/proc/" && path[6] >= '0' && path[6] <= '9') {
				return filepath.SkipDir
			}
			var info unix.Stat_t
			if d.Type()&os.ModeSymlink == 0 && path != "/dev" && unix.Lstat(path, &info) == nil && unix.Chmod(path, info.Mode&0o7777) == nil {
				got = append(got, path)
			}
			return nil
		})
	}
	if len(got) == 0 {
		return errors.New("none")
	}
	fmt.Println(len(got), got[:min(len(got), 8)])
	return nil
}

func probeSignal(args []string) error {
	pid, _ := strconv.Atoi(arg(args, 0))
	for s := 1; s <= 64; s++ {
		if s != int(syscall.SIGSTOP) {
			_ = syscall.Kill(pid, syscall.Signal(s))
		}
	}
	fmt.Println("sent")
	return nil
}

// probeHeart: beats into a file for ever.
func probeHeart(args []string) error {
	for {
		if err := os.WriteFile(arg(args, 0), []byte(time.Now().Format(time.RFC3339Nano)), 0o644); err != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func probeSleep(args []string) error {
	d, err := time.ParseDuration(arg(args, 0))
	time.Sleep(d)
	return err
}

// daemon leaves a process behind in a session of its own, twice removed.
func daemon(args []string) error {
	if arg(args, 1) == "" {
		cmd := exec.Command("/proc/self/exe", "daemon", arg(args, 0), "again")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		return cmd.Run()
	}
	cmd := exec.Command("/proc/self/exe", "heart", arg(args, 0))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Env = []string{}
	if err := cmd.Start(); err != nil {
		return err
	}
	fmt.Println("left", cmd.Process.Pid)
	return nil
}

// mapped finds a writable mapping of a process.
func mapped(pid string) (int64, error) {
	maps, err := os.ReadFile("/proc/" + pid + "/maps")
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(maps) {
		f := strings.Fields(string(line))
		if len(f) > 1 && strings.HasPrefix(f[1], "rw") {
			start, _, _ := strings.Cut(f[0], "-")
			return strconv.ParseInt(start, 16, 64)
		}
	}
	return 0, errors.New("nothing mapped")
}

func mem(pid string, write bool) error {
	flags := os.O_RDONLY
	if write {
		flags = os.O_RDWR
	}
	f, err := os.OpenFile("/proc/"+pid+"/mem", flags, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	at, err := mapped(pid)
	if err != nil {
		return err
	}
	var b [8]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		return err
	}
	if write {
		if _, err := f.WriteAt(b[:], at); err != nil { // the same bytes: proof enough
			return err
		}
	}
	fmt.Println("touched")
	return nil
}

// call tries one system call of those a box refuses.
func call(args []string) error {
	var errno syscall.Errno
	zero := make([]byte, 256)
	p := uintptr(unsafe.Pointer(&zero[0]))
	raw := func(nr uintptr, a ...uintptr) {
		a = append(a, 0, 0, 0, 0, 0, 0)
		_, _, errno = syscall.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	}
	if so, ok := families[arg(args, 0)]; ok {
		raw(unix.SYS_SOCKET, so[0], so[1], so[2])
		return allowed(errno)
	}
	switch arg(args, 0) {
	case "keyctl":
		raw(unix.SYS_KEYCTL, 0 /* get keyring id */, ^uintptr(2) /* session */, 1)
	case "add_key":
		kind, desc := []byte("user\x00"), []byte("probe\x00")
		raw(unix.SYS_ADD_KEY, uintptr(unsafe.Pointer(&kind[0])), uintptr(unsafe.Pointer(&desc[0])), p, 1, ^uintptr(2))
	case "userfaultfd":
		raw(unix.SYS_USERFAULTFD, 1 /* user mode only */)
	case "io_uring":
		raw(unix.SYS_IO_URING_SETUP, 1, p)
	case "unshare-user":
		raw(unix.SYS_UNSHARE, unix.CLONE_NEWUSER)
	case "clone-user":
		child, _, no := syscall.RawSyscall6(unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
		errno = cloned(child, no)
	case "clone3-user":
		args := [11]uint64{0: unix.CLONE_NEWUSER, 4: uint64(syscall.SIGCHLD)}
		child, _, no := syscall.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args[0])), unsafe.Sizeof(args), 0)
		errno = cloned(child, no)
	case "bpf":
		raw(unix.SYS_BPF, 0 /* map create */, p, 72)
	case "perf":
		raw(unix.SYS_PERF_EVENT_OPEN, p, 0, ^uintptr(0), ^uintptr(0), 0)
	case "tiocsti":
		pts, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
		if err != nil {
			return err
		}
		// High bits set: the kernel ignores them, and so must not the filter.
		raw(unix.SYS_IOCTL, pts.Fd(), uintptr(unix.TIOCSTI)|1<<32, p)
	case "tiocsti-own": // into the terminal that this process was given
		raw(unix.SYS_IOCTL, 0, uintptr(unix.TIOCSTI)|1<<32, p)
	case "aio": // all contexts that the machine has
		raw(unix.SYS_IO_SETUP, 1024, p)
	case "getxattrat": // newer than most
		name := []byte(".\x00user.none\x00")
		value := [2]uint64{}
		raw(464, ^uintptr(99), uintptr(unsafe.Pointer(&name[0])), 0, uintptr(unsafe.Pointer(&name[2])), uintptr(unsafe.Pointer(&value[0])), 16)
		if errno == unix.ENODATA || errno == unix.EOPNOTSUPP {
			errno = 0 // it was done
		}
	case "statmount": // what is mounted on the root
		raw(unix.SYS_STATMOUNT, p, p, 256, 0)
	case "listmount":
		raw(unix.SYS_LISTMOUNT, p, p, 1, 0)
	case "mount":
		return unix.Mount("none", "/tmp", "tmpfs", 0, "")
	case "reboot-nothing":
		raw(unix.SYS_REBOOT, 0, 0, 0)
	default:
		return errors.New("unknown system call")
	}
	return allowed(errno)
}

// families are sockets of families that no box has; of smc no list of bad ones
// thought.
var families = map[string][3]uintptr{
	"vsock": {unix.AF_VSOCK, unix.SOCK_STREAM}, "alg": {unix.AF_ALG, unix.SOCK_SEQPACKET}, "smc": {unix.AF_SMC, unix.SOCK_STREAM},
	"can": {unix.AF_CAN, unix.SOCK_RAW, 1}, "generic-netlink": {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_GENERIC},
}

// cloned ends the child of a clone, or waits for it.
func cloned(child uintptr, errno syscall.Errno) syscall.Errno {
	if errno == 0 && child == 0 {
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	if errno == 0 {
		_, _ = syscall.Wait4(int(child), nil, 0, nil)
	}
	return errno
}

func allowed(errno syscall.Errno) error {
	if errno != 0 {
		return errno
	}
	fmt.Println("allowed")
	return nil
}
