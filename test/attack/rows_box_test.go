package attack_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/local"
	"choir.dev/choiros/internal/sandbox/sandboxtest"
	"choir.dev/choiros/internal/tether"
)

// newEnv is a computer on a driver of its own, which is made with the current switches.
func newEnv(t *testing.T, binary string) *sandboxtest.Env { return newEnvWith(t, binary, nil) }

// newEnvWith is newEnv with a log, which is the only place for the output of a box that does not
// start.
func newEnvWith(t *testing.T, binary string, log *slog.Logger) *sandboxtest.Env {
	t.Helper()
	d, err := local.New(t.Context(), local.Options{Guest: binary, Dir: t.TempDir(), Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("close the driver: %v", err)
		}
	})
	return sandboxtest.NewEnv(t, d)
}

// inBox runs the probe in a box. The attack works if the probe succeeds.
func inBox(argv ...string) func(*testing.T) Verdict {
	return func(t *testing.T) Verdict {
		e := newEnv(t, sandboxtest.BareGuest(t))
		_, g := e.Box(t, sandbox.BoxSpec{ID: "attack", Mounts: []sandbox.Mount{e.LiveMount()}})
		return probed(t, g, argv...)
	}
}

func probed(t *testing.T, g *guest.Client, argv ...string) Verdict {
	t.Helper()
	r := sandboxtest.Run(t, g, append([]string{sandboxtest.ProbeInside}, argv...)...)
	if r.Code == 2 {
		t.Fatalf("%q was called wrongly: %s", argv, r.Err)
	}
	return Verdict{r.Code == 0, clip(r.Out + r.Err)}
}

func clip(s string) string {
	s = strings.TrimSpace(s)
	return s[:min(len(s), 300)]
}

// withoutBox returns key if the probe does not even work without any defence.
func withoutBox(key string, argv ...string) func(*testing.T) string {
	return func(t *testing.T) string {
		if _, ok := unprotected(t, argv...); !ok {
			return key
		}
		return ""
	}
}

// lacksGroups returns a reason if a resource of a box can't be limited here.
func lacksGroups(note string) func(*testing.T) string {
	return func(t *testing.T) string {
		for _, n := range newEnv(t, sandboxtest.BareGuest(t)).Computer.Notes() {
			if n.ID == note {
				return groupNote
			}
		}
		return ""
	}
}

// filled runs a command that writes in a box with limits, and waits for the outcome. The attack
// works if the command ends and the box goes on.
func filled(limits sandbox.Limits, script string) func(*testing.T) Verdict {
	return func(t *testing.T) Verdict {
		e := newEnv(t, sandboxtest.BareGuest(t))
		limits := limits
		limits.Counted = []sandbox.Volume{sandbox.Live("")}
		b, g := e.Box(t, sandbox.BoxSpec{ID: "attack", Mounts: []sandbox.Mount{e.LiveMount()}, Limits: limits})
		r, err := sandboxtest.TryRun(t, g, guest.ExecRequest{Argv: []string{"sh", "-c", strings.ReplaceAll(script, "PROBE", sandboxtest.ProbeInside)}})
		select {
		case <-b.Done():
			return Verdict{false, fmt.Sprint(b.Err())}
		default:
		}
		return Verdict{err == nil && r.Code == 0, clip(fmt.Sprint(r.Out, r.Err, err))}
	}
}

const groupNote = "cgroups"

// lacksTyping returns a reason if the kernel itself refuses TIOCSTI to processes without
// capabilities.
func lacksTyping(t *testing.T) string {
	if b, err := os.ReadFile("/proc/sys/dev/tty/legacy_tiocsti"); err == nil && strings.TrimSpace(string(b)) == "0" {
		return "calls"
	}
	return ""
}

// typed runs the probe in a terminal of a box.
func typed(t *testing.T) Verdict {
	_, g := newEnv(t, sandboxtest.BareGuest(t)).Box(t, sandbox.BoxSpec{ID: "attack"})
	p, err := g.PTY(t.Context(), guest.PTYRequest{Argv: []string{sandboxtest.ProbeInside, "syscall", "tiocsti-own"}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	said, err := io.ReadAll(p)
	if err != nil {
		t.Fatal(err)
	}
	exit, err := p.Wait()
	return Verdict{err == nil && exit.Code == 0, clip(string(said))}
}

var boxRows = []Row{
	{Number: 5, Attack: "a box asks a name server itself", Defences: []defence.Name{defence.BoxNetwork}, Run: func(t *testing.T) Verdict {
		server, asked := nameServer(t)
		v := inBox("dial", "udp", server)(t)
		return Verdict{asked() > 0, v.Evidence}
	}},
	{Number: 8, Attack: "a program that ignores the proxy's variables dials out", Defences: []defence.Name{defence.BoxNetwork}, Run: func(t *testing.T) Verdict {
		return inBox("dial", "tcp", echoServer(t))(t)
	}},
	{Number: 13, Attack: "a program takes more memory than its box may have", Defences: []defence.Name{defence.BoxMemory}, NotAs: map[string]string{"user": groupNote}, Lacks: lacksGroups("cgroup-memory"), Run: func(t *testing.T) Verdict {
		e := newEnv(t, sandboxtest.BareGuest(t))
		_, g := e.Box(t, sandbox.BoxSpec{ID: "attack", Limits: sandbox.Limits{MemoryBytes: 128 << 20}})
		return probed(t, g, "eat", "200")
	}},
	{Number: 13, Attack: "a program starts more processes than its box may have", Defences: []defence.Name{defence.BoxProcesses}, Lacks: lacksGroups("cgroup-pids"), Run: func(t *testing.T) Verdict {
		e := newEnv(t, sandboxtest.BareGuest(t))
		_, g := e.Box(t, sandbox.BoxSpec{ID: "attack", Limits: sandbox.Limits{Pids: 100}})
		return probed(t, g, "forks", "150")
	}},
	{Number: 13, Attack: "many files fill the disk", Defences: []defence.Name{defence.BoxDisk}, Run: filled(sandbox.Limits{DiskBytes: 32 << 20}, "PROBE fill-many /computer 96 && sleep 2")},
	{Number: 13, Attack: "one file is larger than all that may be written", Defences: []defence.Name{defence.BoxDisk, defence.BoxFileSize}, Run: filled(sandbox.Limits{DiskBytes: 32 << 20}, "PROBE fill /computer/one 64 && sleep 2")},
	{Number: 13, Attack: "more files than the box may make", Defences: []defence.Name{defence.BoxDisk}, Run: filled(sandbox.Limits{DiskInodes: 1000}, "PROBE inodes /computer 4000 && sleep 2")},
	{Number: 13, Attack: "a program spins for ever", Defences: []defence.Name{defence.BoxWallTime}, Run: filled(sandbox.Limits{WallTime: time.Second}, "sleep 3")},
	{Number: 17, Attack: "an abstract socket of the host", Defences: []defence.Name{defence.BoxNetwork}, Run: func(t *testing.T) Verdict {
		name := "choir-attack-" + rand.Text()
		ln, err := net.Listen("unix", "@"+name)
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		return inBox("abstract", name)(t)
	}},
	{Number: 17, Attack: "a variable of the host's environment", Defences: []defence.Name{defence.BoxEnvironment, defence.GuestEnvironment}, Run: func(t *testing.T) Verdict {
		t.Setenv("CHOIR_CANARY", "leaked-canary")
		v := inBox("environ", "self")(t)
		return Verdict{strings.Contains(v.Evidence, "leaked-canary") || strings.Contains(fullEnviron(t), "leaked-canary"), v.Evidence}
	}},
	{Number: 17, Attack: "how the kernel was started", Defences: []defence.Name{defence.BoxProc}, Inside: []string{"read", "/proc/cmdline"}},
	{Number: 17, Attack: "a device, or a file of the kernel's own, is closed to every other box by its mode", Defences: []defence.Name{defence.BoxKernelModes}, NotAs: map[string]string{"user": "root-files"}, Inside: []string{"kernel-modes"}},
	{Number: 17, Attack: "a file of the kernel's own is written", Defences: []defence.Name{defence.BoxProc, defence.BoxKernelModes}, NotAs: map[string]string{"user": "root-files"}, Inside: []string{"kernel-files"}},
	{Number: 17, Attack: "where on the host a box's mounts come from", Defences: []defence.Name{defence.BoxMountTable}, Inside: []string{"read", "/proc/self/mountinfo"}},
	{Number: 17, Attack: "a user namespace of one's own", Defences: usersOrRoot, Inside: []string{"syscall", "clone-user"}},
	{Number: 17, Attack: "a user namespace of one's own, through clone3", Defences: []defence.Name{defence.BoxClone3, defence.BoxMountTable}, Lacks: withoutBox("calls", "syscall", "clone3-user"), Inside: []string{"syscall", "clone3-user"}},
	{Number: 17, Attack: "a ring of calls that no filter sees (io_uring)", Defences: []defence.Name{defence.BoxRings}, Lacks: withoutBox("calls", "syscall", "io_uring"), Inside: []string{"syscall", "io_uring"}},
	{Number: 17, Attack: "memory faults handled by a program (userfaultfd)", Defences: []defence.Name{defence.BoxCalls}, Lacks: withoutBox("calls", "syscall", "userfaultfd"), Inside: []string{"syscall", "userfaultfd"}},
	{Number: 17, Attack: "a key put into the kernel's keyring", Defences: []defence.Name{defence.BoxCalls}, Lacks: withoutBox("calls", "syscall", "add_key"), Inside: []string{"syscall", "add_key"}},
	{Number: 17, Attack: "the kernel's keyring read", Defences: []defence.Name{defence.BoxCalls}, Lacks: withoutBox("calls", "syscall", "keyctl"), Inside: []string{"syscall", "keyctl"}},
	{Number: 17, Attack: "a socket to the hypervisor", Defences: []defence.Name{defence.BoxFamilies}, Lacks: withoutBox("calls", "syscall", "vsock"), Inside: []string{"syscall", "vsock"}},
	{Number: 17, Attack: "a socket to the kernel's ciphers", Defences: []defence.Name{defence.BoxFamilies}, Lacks: withoutBox("calls", "syscall", "alg"), Inside: []string{"syscall", "alg"}},
	{Number: 17, Attack: "a socket of a family that nobody thought of", Defences: []defence.Name{defence.BoxFamilies}, Lacks: withoutBox("calls", "syscall", "smc"), Inside: []string{"syscall", "smc"}},
	{Number: 17, Attack: "a socket to the kernel's drivers (generic netlink)", Defences: []defence.Name{defence.BoxFamilies}, Inside: []string{"syscall", "generic-netlink"}},
	{Number: 17, Attack: "a system call newer than the filter", Defences: []defence.Name{defence.BoxNewCalls}, Lacks: withoutBox("calls", "syscall", "getxattrat"), Inside: []string{"syscall", "getxattrat"}},
	{Number: 13, Attack: "a filter of a program's own calls, of whose translations a machine has so much", Defences: []defence.Name{defence.BoxFilters}, Lacks: withoutBox("calls", "call-filter", "seccomp"), Inside: []string{"call-filter", "seccomp"}},
	{Number: 13, Attack: "the same, by prctl", Defences: []defence.Name{defence.BoxFilters}, Lacks: withoutBox("calls", "call-filter", "prctl"), Inside: []string{"call-filter", "prctl"}},
	{Number: 13, Attack: "a socket's filter, of whose translations a machine has so much", Defences: []defence.Name{defence.BoxFilters}, Lacks: withoutBox("calls", "socket-filter"), Inside: []string{"socket-filter"}},
	{Number: 13, Attack: "a context of asynchronous I/O, of which a machine has so many", Defences: []defence.Name{defence.BoxAIO}, Lacks: withoutBox("calls", "syscall", "aio"), Inside: []string{"syscall", "aio"}},
	{Number: 13, Attack: "one box holds all timers and queued signals of the host's user", Defences: []defence.Name{defence.BoxPending}, Lacks: withoutBox("calls", "timers", "5000"), Inside: []string{"timers", "5000"}},
	{Number: 13, Attack: "one box holds all that the host's user may have in message queues", Defences: []defence.Name{defence.BoxQueues}, Lacks: withoutBox("calls", "queues", "5"), Run: inOwn("queues", "5")},
	{Number: 17, Attack: "a key typed into a terminal by ioctl", Defences: []defence.Name{defence.BoxTyping}, Lacks: lacksTyping, Run: typed},
}

// The kernel refuses a user namespace to a process whose root differs from that of its mount
// namespace.
var usersOrRoot = []defence.Name{defence.BoxUsers, defence.BoxMountTable}

// fullEnviron returns the output of env in a box in full, because the evidence above is cut.
func fullEnviron(t *testing.T) string {
	t.Helper()
	_, g := newEnv(t, sandboxtest.BareGuest(t)).Box(t, sandbox.BoxSpec{ID: "environ"})
	return sandboxtest.Run(t, g, "env").Out
}

var undumpable = []defence.Name{defence.GuestUndumpable}
var undumpableOrCalls = []defence.Name{defence.GuestUndumpable, defence.BoxCalls}

// onVictim returns a reason if the probe can't even reach an unprotected process.
func onVictim(key, probe string) func(*testing.T) string {
	return func(t *testing.T) string {
		pid := victim(t)
		if _, ok := unprotected(t, probe, pid); !ok {
			return key
		}
		return ""
	}
}

var guestRows = []Row{
	{Number: 11, Attack: "a link in the workspace leads the guest's own file reader out of it", Defences: []defence.Name{defence.GuestBeneath}, Run: func(t *testing.T) Verdict {
		e := newEnv(t, sandboxtest.BareGuest(t))
		if err := os.Symlink("/etc/passwd", filepath.Join(e.Live, "link")); err != nil {
			t.Fatal(err)
		}
		_, g := e.Box(t, sandbox.BoxSpec{ID: "attack", Mounts: []sandbox.Mount{e.LiveMount()}})
		f, _, err := g.ReadFile(t.Context(), "link")
		if err != nil {
			return Verdict{false, err.Error()}
		}
		defer f.Close()
		data, err := io.ReadAll(io.LimitReader(f, 200))
		return Verdict{err == nil && strings.Contains(string(data), "choir:"), fmt.Sprintf("%q %v", data, err)}
	}},
	{Number: 14, Attack: "the guest's memory is read through /proc", Defences: undumpable, Lacks: onVictim("ptrace", "mem-read"), Inside: []string{"mem-read", "1"}},
	{Number: 14, Attack: "the guest's memory is written through /proc", Defences: undumpable, NotAs: map[string]string{"root": "own-proc"}, Lacks: onVictim("ptrace", "mem-write"), Inside: []string{"mem-write", "1"}},
	{Number: 14, Attack: "the guest's memory is written through a /proc that can't be written", Defences: []defence.Name{defence.GuestUndumpable, defence.BoxKernelModes}, NotAs: map[string]string{"user": "own-proc"}, Lacks: onVictim("ptrace", "mem-write"), Inside: []string{"mem-write", "1"}},
	{Number: 14, Attack: "the guest's environment is read", Defences: undumpable, Lacks: onVictim("ptrace", "environ"), Inside: []string{"environ", "1"}},
	{Number: 14, Attack: "the guest's descriptors are seen through /proc", Defences: undumpable, Lacks: onVictim("ptrace", "fd-open"), Inside: []string{"fd-open", "1"}},
	{Number: 14, Attack: "the guest's descriptors are taken by pidfd_getfd", Defences: undumpableOrCalls, Lacks: onVictim("ptrace", "getfd"), Inside: []string{"getfd", "1"}},
	{Number: 14, Attack: "the guest is traced", Defences: undumpableOrCalls, Lacks: onVictim("ptrace", "ptrace"), Inside: []string{"ptrace", "1"}},
	{Number: 14, Attack: "the guest's memory is read by process_vm_readv", Defences: undumpableOrCalls, Lacks: onVictim("ptrace", "vm-read"), Inside: []string{"vm-read", "1"}},
	{Number: 14, Attack: "a command inherits the guest's descriptors", Defences: []defence.Name{defence.GuestDescriptors}, Inside: []string{"fds"}},
}

// tampering opens a box whose guest attacks. The attack works if the box still lives after 3 s.
func tampering(way string) func(*testing.T) Verdict {
	return func(t *testing.T) Verdict {
		e := newEnv(t, sandboxtest.BadGuest(t))
		b, _ := e.Box(t, sandbox.BoxSpec{ID: way, Handler: http.NotFoundHandler(), Env: map[string]string{"WAY": way}})
		select {
		case <-b.Done():
			return Verdict{false, fmt.Sprint(b.Err())}
		case <-time.After(3 * time.Second):
			return Verdict{true, "after 3 s the box goes on"}
		}
	}
}

var tetherRows = []Row{
	{Number: 15, Attack: "a guest floods the host with pings", Defences: []defence.Name{defence.TetherPings}, Run: tampering("ping-flood")},
	{Number: 15, Attack: "a guest opens streams as fast as it can", Defences: []defence.Name{defence.TetherOpens}, Run: tampering("stream-flood")},
	{Number: 15, Attack: "a tether's token is used a second time", Defences: []defence.Name{defence.TetherToken}, Run: func(t *testing.T) Verdict {
		token := tether.NewToken()
		stolen := token.Encode()
		var err error
		for range 2 {
			thief, perr := tether.ParseToken(stolen)
			if perr != nil {
				t.Fatal(perr)
			}
			err = shake(t, token, func(ctx context.Context, conn net.Conn) {
				if s, err := tether.Dial(ctx, conn, tether.Options{Token: thief}); err == nil {
					<-s.Done() // until the host has accepted or refused
					_ = s.Close()
				}
			})
		}
		return Verdict{err == nil, fmt.Sprint(err)}
	}},
	{Number: 15, Attack: "somebody without the token plays the guest", Defences: []defence.Name{defence.TetherProof}, Run: func(t *testing.T) Verdict {
		err := shake(t, tether.NewToken(), func(_ context.Context, conn net.Conn) {
			hello := make([]byte, 8+32)
			if _, err := io.ReadFull(conn, hello); err != nil {
				return
			}
			_, _ = conn.Write(append(append([]byte{}, hello...), make([]byte, 32)...))
			_, _ = io.Copy(io.Discard, conn) // it stays connected for as long as the host allows
		})
		return Verdict{err == nil, fmt.Sprint(err)}
	}},
}

// shake lets the host's end do a handshake with what other plays.
func shake(t *testing.T, token *tether.Token, other func(context.Context, net.Conn)) error {
	t.Helper()
	near, far := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer far.Close()
		other(t.Context(), far)
	}()
	s, err := tether.Accept(t.Context(), near, tether.Options{Token: token})
	if err == nil {
		_ = s.Close()
	}
	_ = near.Close()
	<-done
	return err
}
