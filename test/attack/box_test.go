package attack_test

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/sandboxtest"
)

// TestRow11Paths tries to leave the workspace by links, dots and races, through the guest's files.
// Imports, uploads and checkouts are tested as the workspace's part of this row.
func TestRow11Paths(t *testing.T) {
	onEveryDriver(t, func(t *testing.T, e *sandboxtest.Env) {
		secret := filepath.Join(e.Dir, "secret")
		if err := os.WriteFile(secret, []byte("the secret"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(e.Live, "real"), 0o755); err != nil {
			t.Fatal(err)
		}
		links := map[string]string{"abs": secret, "dots": "../secret", "dir": "..", "root": "/proc/self/root" + secret, "box": "/etc/passwd", "guest": "/proc/1/environ"}
		for name, target := range links {
			if err := os.Symlink(target, filepath.Join(e.Live, name)); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"abs", "dots", "dir/secret", "root", "box"} {
			if _, err := os.ReadFile(filepath.Join(e.Live, name)); err != nil { // the control: a reader that follows links
				t.Fatalf("the control does not work: %v", err)
			}
		}
		_, g := e.Box(t, sandbox.BoxSpec{Mounts: []sandbox.Mount{e.LiveMount()}})
		for _, name := range []string{"abs", "dots", "dir/secret", "root", "box", "guest", "../secret", "real/../../secret", "/etc/passwd", "real//x", "./real"} {
			if f, _, err := g.ReadFile(t.Context(), name); err == nil {
				data, _ := io.ReadAll(f)
				_ = f.Close()
				t.Errorf("read %q: %q", name, data)
			}
			if err := g.WriteFile(t.Context(), name, strings.NewReader("overwritten"), 0o644); err == nil && name != "abs" && name != "dots" && name != "root" && name != "box" && name != "guest" {
				t.Errorf("wrote %q", name)
			}
		}
		if data, _ := os.ReadFile(secret); string(data) != "the secret" {
			t.Fatalf("the secret is now %q", data)
		}
		race(t, e, g)
	})
}

// race swaps a directory for a link to its parent while files below it are read.
func race(t *testing.T, e *sandboxtest.Env, g *guest.Client) {
	inside, trap := filepath.Join(e.Live, "swap"), filepath.Join(e.Live, "trap")
	if err := os.MkdirAll(inside, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(inside, "secret"), []byte("harmless"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("..", trap); err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = exchange(inside, trap)
			runtime.Gosched()
		}
	}()
	defer func() { close(stop); <-stopped }()
	sandboxtest.Eventually(t, 20*time.Second, "the control loses the race", func() bool {
		data, err := os.ReadFile(filepath.Join(inside, "secret"))
		return err == nil && string(data) == "the secret"
	})
	reads := 0
	for range 400 {
		f, _, err := g.ReadFile(t.Context(), "swap/secret")
		if err != nil {
			continue // the link was in place
		}
		data, err := io.ReadAll(f)
		_ = f.Close()
		if err == nil && string(data) == "the secret" {
			t.Fatal("the guest lost the race")
		}
		reads++
	}
	if reads == 0 {
		t.Error("the guest never read the file: the race proves nothing")
	}
}

// TestRow13Exhaustion opens a box whose programs take all that they can get.
func TestRow13Exhaustion(t *testing.T) {
	mustWork(t, "eat", "200")
	mustWork(t, "forks", "150")
	mustWork(t, "fill-many", t.TempDir(), "96")
	mustWork(t, "inodes", t.TempDir(), "4000")
	onEveryDriver(t, func(t *testing.T, e *sandboxtest.Env) {
		lacks := map[string]bool{}
		for _, n := range e.Computer.Notes() {
			lacks[n.ID] = true
		}
		t.Run("memory", func(t *testing.T) {
			if lacks["cgroup-memory"] {
				t.Skip("asserted: this machine has no writable memory controller, and Notes says so")
			}
			b, g := e.Box(t, sandbox.BoxSpec{Limits: sandbox.Limits{MemoryBytes: 128 << 20}})
			mustFail(t, g, "eat", "200")
			// The guest survives its children.
			if u, err := b.Usage(t.Context()); err != nil || u.OOMKills == 0 {
				t.Errorf("usage %+v %v", u, err)
			}
			mustFail(t, g, "fill", "/tmp/x", "200") // /tmp counts as memory too
			if r := sandboxtest.Run(t, g, "sh", "-c", "rm -f /tmp/x; echo alive"); r.Out != "alive\n" {
				t.Errorf("the box is %+v", r)
			}
		})
		t.Run("pids", func(t *testing.T) {
			if lacks["cgroup-pids"] {
				t.Skip("asserted: this machine has no writable pids controller, and Notes says so")
			}
			_, g := e.Box(t, sandbox.BoxSpec{Limits: sandbox.Limits{Pids: 100}})
			mustFail(t, g, "forks", "150")
			// A real fork bomb runs, and the box can still be killed (by the cleanup).
			if _, err := sandboxtest.TryRun(t, g, guest.ExecRequest{Argv: []string{"sh", "-c", "b() { b | b & }; b; sleep 1"}, TimeoutMS: 3000}); err != nil && fault.Is(err, fault.Internal) {
				t.Log(err)
			}
		})
		t.Run("disk", func(t *testing.T) {
			b, g := e.Box(t, sandbox.BoxSpec{Mounts: []sandbox.Mount{e.LiveMount()}, Limits: sandbox.Limits{DiskBytes: 32 << 20, Counted: []sandbox.Volume{sandbox.Live("")}}})
			if r := sandboxtest.Run(t, g, sandboxtest.ProbeInside, "fill", "/computer/one", "64"); r.Code == 0 {
				t.Error("one file was larger than all that may be written")
			}
			_, err := sandboxtest.TryRun(t, g, guest.ExecRequest{Argv: []string{"sh", "-c", sandboxtest.ProbeInside + " fill-many /computer 96; sleep 600"}})
			if ended := sandboxtest.AwaitEnd(t, b, 20*time.Second); ended.Reason != sandbox.DiskFull || ended.Code() != fault.Exhausted {
				t.Errorf("the box ended with %v (%v)", ended, err)
			}
		})
		t.Run("unlinked", func(t *testing.T) {
			b, g := e.Box(t, sandbox.BoxSpec{Mounts: []sandbox.Mount{e.LiveMount()}, Limits: sandbox.Limits{DiskBytes: 32 << 20, Counted: []sandbox.Volume{sandbox.Live("")}}})
			go func() {
				_, _ = sandboxtest.TryRun(t, g, guest.ExecRequest{Argv: []string{sandboxtest.ProbeInside, "fill-unlinked", "/computer", "96"}})
			}()
			if ended := sandboxtest.AwaitEnd(t, b, 20*time.Second); ended.Reason != sandbox.DiskFull {
				t.Errorf("the box ended with %v", ended)
			}
		})
		t.Run("inodes", func(t *testing.T) {
			b, g := e.Box(t, sandbox.BoxSpec{Mounts: []sandbox.Mount{{Target: "/computer", Mode: sandbox.Overlay, Lower: []sandbox.Volume{sandbox.Live("")}}}, Limits: sandbox.Limits{DiskInodes: 1000}})
			_, err := sandboxtest.TryRun(t, g, guest.ExecRequest{Argv: []string{"sh", "-c", sandboxtest.ProbeInside + " inodes /computer 4000; sleep 600"}})
			if ended := sandboxtest.AwaitEnd(t, b, 20*time.Second); ended.Reason != sandbox.DiskFull {
				t.Errorf("the box ended with %v (%v)", ended, err)
			}
		})
		t.Run("spin", func(t *testing.T) {
			b, g := e.Box(t, sandbox.BoxSpec{Limits: sandbox.Limits{WallTime: 2 * time.Second}})
			r, err := sandboxtest.TryRun(t, g, guest.ExecRequest{Argv: []string{sandboxtest.ProbeInside, "spin"}, TimeoutMS: 200})
			if err != nil || !r.TimedOut {
				t.Errorf("%v %+v", err, r)
			}
			if ended := sandboxtest.AwaitEnd(t, b, 20*time.Second); ended.Reason != sandbox.TimedOut {
				t.Errorf("the box ended with %v", ended)
			}
		})
		t.Run("output", func(t *testing.T) {
			_, g := e.Box(t, sandbox.BoxSpec{})
			r, err := sandboxtest.TryRun(t, g, guest.ExecRequest{Argv: []string{sandboxtest.ProbeInside, "long-line", "512"}, HeadBytes: 4096, TailBytes: 4096})
			if err != nil || len(r.Out) > 9000 || r.StdoutDropped != 512<<20-8192 {
				t.Errorf("%v, %d bytes, %d dropped", err, len(r.Out), r.StdoutDropped)
			}
			p, err := g.PTY(t.Context(), guest.PTYRequest{Argv: []string{"yes"}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.CopyN(io.Discard, p, 1<<20); err != nil {
				t.Error(err)
			}
			if err := p.Close(); err != nil { // the output need not be read to its end
				t.Error(err)
			}
			mustPass(t, g, "sleep", "0s")
		})
	})
}

// TestRow14Guest has a command attack the loop's process, which started it.
func TestRow14Guest(t *testing.T) {
	victim := exec.Command(sandboxtest.Probe(t), "sleep", "5m")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = victim.Process.Kill(); _ = victim.Wait() }()
	pid := strconv.Itoa(victim.Process.Pid)
	probes := []string{"mem-read", "mem-write", "getfd", "fd-open", "ptrace", "vm-read", "environ"}
	for _, p := range probes {
		mustWork(t, p, pid)
	}
	onEveryDriver(t, func(t *testing.T, e *sandboxtest.Env) {
		b, g := e.Box(t, sandbox.BoxSpec{Proxy: true, Mounts: []sandbox.Mount{e.LiveMount()}})
		for _, p := range probes {
			mustFail(t, g, p, "1")
		}
		mustFail(t, g, "fds")
		for _, f := range []string{"maps", "auxv", "stack", "syscall", "task/1/mem", "root/etc/passwd"} {
			mustFail(t, g, "read", "/proc/1/"+f)
		}
		if r := sandboxtest.Run(t, g, "sh", "-c", "readlink /proc/1/exe /proc/1/root /proc/1/cwd; ls /proc/1/root/"); strings.TrimSpace(r.Out) != "" {
			t.Errorf("links of the guest: %q", r.Out)
		}
		// The guest goes on after every signal that may be sent to it.
		mustPass(t, g, "signal", "1")
		if h, err := g.Health(t.Context()); err != nil || h.Box != b.ID() {
			t.Errorf("after all signals the guest says %+v, %v", h, err)
		}
		// It can't be attacked in its first moments either.
		for range 20 {
			young, first := e.Box(t, sandbox.BoxSpec{ID: "young", Mounts: []sandbox.Mount{e.LiveMount()}})
			for range 5 {
				mustPass(t, first, "signal", "1")
			}
			if err := young.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		// No command can read the spec with its token.
		if r := sandboxtest.Run(t, g, "sh", "-c", "cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -E '[0-9a-f]{64}'"); r.Out != "" {
			t.Errorf("a token in sight: %q", r.Out)
		}

		// A process that survives the end of its command may live on, and dies with the box.
		beat := filepath.Join(e.Live, "beat")
		mustPass(t, g, "daemon", "/computer/beat")
		sandboxtest.Eventually(t, 10*time.Second, "the daemon beats", func() bool { return exists(beat) })
		if err := b.Kill(); err != nil {
			t.Fatal(err)
		}
		last, _ := os.ReadFile(beat)
		time.Sleep(60 * time.Millisecond)
		if now, _ := os.ReadFile(beat); string(now) != string(last) {
			t.Error("the daemon outlived its box")
		}
	})
	// This is the control: a daemon that nothing contains outlives its parent.
	beat := filepath.Join(t.TempDir(), "beat")
	if out, ok := unprotected(t, "daemon", beat); !ok {
		t.Fatalf("the control does not work: %s", out)
	}
	sandboxtest.Eventually(t, 10*time.Second, "the control's daemon beats", func() bool { return exists(beat) })
	killBeating(t, beat)
}

// victim is a process without protection, which lives until the test ends.
func victim(t *testing.T) (pid string) {
	t.Helper()
	cmd := exec.Command(sandboxtest.Probe(t), "sleep", "5m")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return strconv.Itoa(cmd.Process.Pid)
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

// killBeating ends the control's daemon, which is found by its argument.
func killBeating(t *testing.T, beat string) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		cmdline, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if err == nil && strings.Contains(string(cmdline), "heart\x00"+beat) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				t.Error(err)
			}
			return
		}
	}
	t.Error("the control's daemon is gone")
}

// TestRow17Host tries what the kernel and the host would reveal or allow.
func TestRow17Host(t *testing.T) {
	name := "choir-attack-" + strconv.Itoa(os.Getpid())
	ln, err := net.Listen("unix", "@"+name)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	t.Setenv("CHOIR_CANARY", "leaked-canary")
	mustWork(t, "abstract", name)
	mustWork(t, "environ", "self")
	mustWork(t, "read", "/proc/cmdline")
	calls := map[string]bool{ // system call → whether its control works here
		"clone-user": true, "userfaultfd": true, "mount": os.Geteuid() == 0,
		"unshare-user": false, "keyctl": false, "add_key": false, "io_uring": false, "bpf": false, "perf": false, "vsock": false, "alg": false, "tiocsti": false,
	}
	for call := range calls {
		if call == "mount" {
			continue // this would change the host; overlays show that mounting works
		}
		out, ok := unprotected(t, "syscall", call)
		if !ok && calls[call] {
			t.Errorf("the control %s does not work here: %s", call, out)
		}
		calls[call] = ok
	}
	if os.Geteuid() == 0 {
		mustWork(t, "kernel-files")
	}
	onEveryDriver(t, func(t *testing.T, e *sandboxtest.Env) {
		_, g := e.Box(t, sandbox.BoxSpec{})
		mustFail(t, g, "abstract", name)
		if out := mustPass(t, g, "environ", "self"); strings.Contains(out, "leaked-canary") {
			t.Errorf("the host's environment: %s", out)
		}
		mustFail(t, g, "read", "/proc/cmdline")
		mustFail(t, g, "read", "/proc/keys")
		mustFail(t, g, "kernel-files")
		mustFail(t, g, "fds")
		for _, path := range []string{"/dev/mem", "/dev/kmem", "/dev/vda", "/dev/kmsg", "/dev/kvm", "/dev/fuse", "/proc/kcore", "/proc/kmsg", "/sys/kernel/uevent_seqnum", "/etc/shadow", "/etc/machine-id", "/root", "/var/run/docker.sock"} {
			mustFail(t, g, "read", path)
		}
		for call, works := range calls {
			out := mustFail(t, g, "syscall", call)
			refused := strings.Contains(out, "not permitted") || strings.Contains(out, "not implemented")
			if call == "vsock" || call == "alg" {
				// A kernel without these families says the same. TestFilter in the driver shows
				// that the filter refuses them.
				refused = strings.Contains(out, "address family not supported")
			}
			if !refused {
				t.Errorf("%s was refused for another reason than the filter's: %s", call, out)
			}
			if !works {
				t.Logf("%s: the control fails on this machine too; the filter answers first: %s", call, strings.TrimSpace(out))
			}
		}
	})
}
