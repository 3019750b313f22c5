package seccomp

import (
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// run runs the filter in a BPF virtual machine on one system call.
func run(t *testing.T, arch, nr uint32, args ...uint64) uint32 {
	t.Helper()
	return runOf(t, filter(Allowances{Watch: true}), arch, nr, args...)
}

func runOf(t *testing.T, filter []instruction, arch, nr uint32, args ...uint64) uint32 {
	t.Helper()
	raw := make([]bpf.RawInstruction, 0)
	for _, i := range filter {
		raw = append(raw, bpf.RawInstruction{Op: i.Code, Jt: i.Jt, Jf: i.Jf, K: i.K})
	}
	program, ok := bpf.Disassemble(raw)
	if !ok {
		t.Fatal("the filter holds an unknown instruction")
	}
	vm, err := bpf.NewVM(program)
	if err != nil {
		t.Fatal(err)
	}
	// The virtual machine reads big endian, since it is made for packets.
	data := make([]byte, 64)
	put := func(off int, v uint32) {
		data[off], data[off+1], data[off+2], data[off+3] = byte(v>>24), byte(v>>16), byte(v>>8), byte(v)
	}
	put(offNr, nr)
	put(offArch, arch)
	for i, a := range args {
		put(offArg0+8*i, uint32(a))
		put(offArg0+8*i+4, uint32(a>>32))
	}
	got, err := vm.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(got)
}

func TestFilter(t *testing.T) {
	for name, c := range map[string]struct {
		arch, nr uint32
		args     []uint64
		want     uint32
	}{
		"read":              {auditArch, unix.SYS_READ, nil, retAllow},
		"another arch":      {unix.AUDIT_ARCH_I386, 3, nil, retKill},
		"ptrace":            {auditArch, unix.SYS_PTRACE, nil, retEPERM},
		"clone3":            {auditArch, unix.SYS_CLONE3, nil, retENOSYS},
		"io_uring":          {auditArch, unix.SYS_IO_URING_SETUP, nil, retENOSYS},
		"clone, plain":      {auditArch, unix.SYS_CLONE, []uint64{uint64(unix.SIGCHLD)}, retAllow},
		"clone, user":       {auditArch, unix.SYS_CLONE, []uint64{unix.CLONE_NEWUSER}, retEPERM},
		"clone, user among": {auditArch, unix.SYS_CLONE, []uint64{unix.CLONE_NEWUSER | unix.CLONE_NEWNS | 17}, retEPERM},
		"unshare, user":     {auditArch, unix.SYS_UNSHARE, []uint64{unix.CLONE_NEWUSER}, retEPERM},
		"ioctl, size":       {auditArch, unix.SYS_IOCTL, []uint64{0, unix.TIOCGWINSZ}, retAllow},
		"ioctl, sti":        {auditArch, unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI}, retEPERM},
		"ioctl, sti high":   {auditArch, unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI | 1<<32}, retEPERM},
		"ioctl, linux":      {auditArch, unix.SYS_IOCTL, []uint64{0, tioclinux}, retEPERM},
		"socket, unix":      {auditArch, unix.SYS_SOCKET, []uint64{unix.AF_UNIX}, retAllow},
		"socket, tcp":       {auditArch, unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM, 0}, retAllow},
		"socket, mptcp":     {auditArch, unix.SYS_SOCKET, []uint64{unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}, retEPROTONOSUPPORT},
		"socket, udp":       {auditArch, unix.SYS_SOCKET, []uint64{unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_UDP}, retAllow},
		"socket, sctp":      {auditArch, unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP}, retEPROTONOSUPPORT},
		"socket, route":     {auditArch, unix.SYS_SOCKET, []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE}, retAllow},
		"socket, netfilter": {auditArch, unix.SYS_SOCKET, []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}, retEPROTONOSUPPORT},
		"socket, high word": {auditArch, unix.SYS_SOCKET, []uint64{unix.AF_VSOCK | 1<<32}, retEAFNOSUPPORT},
		"socketpair, unix":  {auditArch, unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX}, retAllow},
		"socketpair, tipc":  {auditArch, unix.SYS_SOCKETPAIR, []uint64{unix.AF_TIPC}, retEAFNOSUPPORT},
		"fcntl, a lock":     {auditArch, unix.SYS_FCNTL, []uint64{3, unix.F_SETLK}, retAllow},
		"fcntl, a lease":    {auditArch, unix.SYS_FCNTL, []uint64{3, unix.F_SETLEASE}, retEINVAL},
		"fcntl, lease high": {auditArch, unix.SYS_FCNTL, []uint64{3, unix.F_SETLEASE | 1<<32}, retEINVAL},
		"fcntl, notices":    {auditArch, unix.SYS_FCNTL, []uint64{3, unix.F_NOTIFY}, retEINVAL},
		"fcntl, newest":     {auditArch, unix.SYS_FCNTL, []uint64{3, newestCommand}, retAllow},
		"fcntl, newer":      {auditArch, unix.SYS_FCNTL, []uint64{3, newestCommand + 1}, retEINVAL},
		"calls' filter":     {auditArch, unix.SYS_SECCOMP, []uint64{unix.SECCOMP_SET_MODE_FILTER}, retEINVAL},
		"what filters do":   {auditArch, unix.SYS_SECCOMP, []uint64{unix.SECCOMP_GET_ACTION_AVAIL}, retAllow},
		"filter by prctl":   {auditArch, unix.SYS_PRCTL, []uint64{unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER}, retEINVAL},
		"name by prctl":     {auditArch, unix.SYS_PRCTL, []uint64{unix.PR_SET_NAME, unix.SECCOMP_MODE_FILTER}, retAllow},
		"socket's filter":   {auditArch, unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER}, retENOPROTOOPT},
		"filter of many":    {auditArch, unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF}, retENOPROTOOPT},
		"socket's buffer":   {auditArch, unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_SNDBUF}, retAllow},
		"TCP's own 26":      {auditArch, unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_TCP, unix.SO_ATTACH_FILTER}, retAllow},
		"aio":               {auditArch, unix.SYS_IO_SETUP, []uint64{1}, retENOSYS},
		"newest call":       {auditArch, newestCall, nil, retAllow},
		"newer call":        {auditArch, newestCall + 1, nil, retENOSYS},
	} {
		if got := run(t, c.arch, c.nr, c.args...); got != c.want {
			t.Errorf("%s: got %#x, want %#x", name, got, c.want)
		}
	}
	for _, nr := range inotify {
		if with, without := run(t, auditArch, nr), runOf(t, filter(Allowances{}), auditArch, nr); with != retAllow || without != retENOSYS {
			t.Errorf("inotify: got %#x in a box with watchers, %#x in one without", with, without)
		}
	}
	if got := runOf(t, filter(Allowances{Lease: true}), auditArch, unix.SYS_FCNTL, 3, unix.F_SETLEASE); got != retAllow {
		t.Errorf("a lease: got %#x in a box that may take them", got)
	}
	if got := runOf(t, filter(Allowances{Watch: true, Lease: true}), auditArch, unix.SYS_FCNTL, 3, unix.F_NOTIFY); got != retEINVAL {
		t.Errorf("notices of a folder: got %#x in a keeper's box", got)
	}
	if x32Bit != 0 && run(t, auditArch, x32Bit|1) != retENOSYS {
		t.Error("an x32 call is let through")
	}
	allowed := map[uint64]bool{unix.AF_UNIX: true, unix.AF_INET: true, unix.AF_INET6: true, unix.AF_NETLINK: true}
	for family := range uint64(64) {
		want := retEAFNOSUPPORT
		if allowed[family] {
			want = retAllow
		}
		if got := run(t, auditArch, unix.SYS_SOCKET, family, unix.SOCK_DGRAM, 0); got != want {
			t.Errorf("family %d: got %#x, want %#x", family, got, want)
		}
	}
	for _, nr := range refused {
		if got := run(t, auditArch, nr); got != retEPERM {
			t.Errorf("call %d: got %#x", nr, got)
		}
	}
}
