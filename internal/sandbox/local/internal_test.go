package local

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/sandbox"
)

// run runs the filter in a BPF virtual machine on one system call.
func run(t *testing.T, arch, nr uint32, args ...uint64) uint32 {
	t.Helper()
	return runOf(t, filter(true), arch, nr, args...)
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
	// The virtual machine reads big endian, as from a packet.
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
		"aio":               {auditArch, unix.SYS_IO_SETUP, []uint64{1}, retENOSYS},
		"newest call":       {auditArch, newestCall, nil, retAllow},
		"newer call":        {auditArch, newestCall + 1, nil, retENOSYS},
	} {
		if got := run(t, c.arch, c.nr, c.args...); got != c.want {
			t.Errorf("%s: got %#x, want %#x", name, got, c.want)
		}
	}
	for _, nr := range inotify {
		if with, without := run(t, auditArch, nr), runOf(t, filter(false), auditArch, nr); with != retAllow || without != retENOSYS {
			t.Errorf("inotify: got %#x in a box with watchers, %#x in one without", with, without)
		}
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

// A version 2 tree as systemd delegates it, in a plain directory: what is
// written where is what the kernel would be told.
func TestCgroup2(t *testing.T) {
	dir := t.TempDir()
	own := filepath.Join(dir, "user.slice", "choir.service")
	files := func(at string, contents map[string]string) {
		t.Helper()
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range contents {
			if err := os.WriteFile(filepath.Join(at, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	files(own, map[string]string{"cgroup.controllers": "cpu memory pids\n", "cgroup.subtree_control": "memory pids cpu\n", "cgroup.procs": ""})
	files(filepath.Join(own, "choir-control"), map[string]string{"cgroup.procs": ""})
	mountinfo, self := filepath.Join(dir, "mountinfo"), filepath.Join(dir, "self")
	files(dir, map[string]string{
		"mountinfo": fmt.Sprintf("30 23 0:26 / %s rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n", dir),
		"self":      "0::/user.slice/choir.service\n",
	})
	c := detectCgroups(mountinfo, self)
	if !c.v2 || c.parent["memory"] != own || c.parent["pids"] != own {
		t.Fatalf("found %+v", c)
	}
	read := func(path string) string { data, _ := os.ReadFile(path); return string(data) }
	if exists(filepath.Join(own, "choir-control", "cgroup.procs")) && read(filepath.Join(own, "choir-control", "cgroup.procs")) != "" {
		t.Error("this process moved although nothing was missing")
	}
	// With controllers still to be enabled it moves out of the way first. (A
	// plain file keeps what was written last, where the kernel would add it.)
	fresh := filepath.Join(dir, "fresh")
	files(fresh, map[string]string{"cgroup.controllers": "pids\n", "cgroup.subtree_control": ""})
	files(filepath.Join(fresh, "choir-control"), map[string]string{"cgroup.procs": ""})
	(&cgroups{v2: true, parent: map[string]string{}}).delegate(fresh)
	if got := read(filepath.Join(fresh, "choir-control", "cgroup.procs")); got != "0" {
		t.Errorf("this process did not move: %q", got)
	}
	if got := read(filepath.Join(fresh, "cgroup.subtree_control")); got != "+pids" {
		t.Errorf("the missing controller was not asked for: %q", got)
	}
	files(filepath.Join(own, "box"), map[string]string{"memory.max": "", "pids.max": "", "cpu.max": "", "memory.swap.max": "", "cgroup.kill": "",
		"cgroup.procs": "12\n34\n", "memory.events": "low 0\noom 3\noom_kill 2\n", "memory.current": "4096\n", "pids.current": "5\n", "cpu.stat": "usage_usec 1500000\n"})
	g, err := c.make("box", sandbox.Limits{MemoryBytes: 1 << 20, Pids: 7, CPUPercent: 150})
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"memory.max": "1048576", "memory.swap.max": "0", "pids.max": "7", "cpu.max": "150000 100000"} {
		if got := read(filepath.Join(own, "box", file)); got != want {
			t.Errorf("%s is %q, want %q", file, got, want)
		}
	}
	var u sandbox.Usage
	g.usage(&u)
	if u.OOMKills != 2 || u.MemoryBytes != 4096 || u.Pids != 5 || u.CPU.Seconds() != 1.5 || fmt.Sprint(g.members()) != "[12 34]" {
		t.Errorf("usage %+v, members %v", u, g.members())
	}
	if err := g.kill(); err != nil || read(filepath.Join(own, "box", "cgroup.kill")) != "1" {
		t.Errorf("kill: %v", err)
	}
	// Nothing writable: a note for each controller, and boxes without groups.
	c = detectCgroups(filepath.Join(dir, "absent"), self)
	if len(c.notes) != len(controllers) || c.notes[0].Hint == "" {
		t.Errorf("notes %+v", c.notes)
	}
	if g, err := c.make("box", sandbox.Limits{}); err != nil || len(g.dirs) != 0 {
		t.Errorf("%+v %v", g, err)
	}
}
