package local_test

import (
	"fmt"
	"io"
	"os/exec"
	"testing"

	"github.com/creack/pty"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/sandboxtest"
)

// BenchmarkBoxStart opens a box until it answers. It is to be compared with BenchmarkBubblewrap,
// which runs true in bubblewrap alone, with a similar view.
func BenchmarkBoxStart(b *testing.B) {
	e := sandboxtest.NewEnv(b, open(b))
	for i := range b.N {
		box, err := e.Computer.Box(b.Context(), sandbox.BoxSpec{ID: fmt.Sprint("b", i), Kind: contract.BoxAssociate, Mounts: []sandbox.Mount{e.LiveMount()}})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := box.Kill(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

func BenchmarkBoxStartOverlay(b *testing.B) {
	e := sandboxtest.NewEnv(b, open(b))
	for i := range b.N {
		box, err := e.Computer.Box(b.Context(), sandbox.BoxSpec{ID: fmt.Sprint("b", i), Kind: contract.BoxTask,
			Mounts: []sandbox.Mount{{Target: "/computer", Mode: sandbox.Overlay, Lower: []sandbox.Volume{sandbox.Live("")}}}})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := box.Kill(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

func BenchmarkBubblewrap(b *testing.B) {
	for range b.N {
		cmd := exec.Command("bwrap", "--unshare-user", "--uid", "1000", "--gid", "1000", "--unshare-pid", "--unshare-net", "--unshare-ipc",
			"--unshare-uts", "--unshare-cgroup-try", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv",
			"--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
			"--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/home/choir", "--bind", b.TempDir(), "/computer", "/bin/true")
		if err := cmd.Run(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkExecTrue(b *testing.B) {
	e := sandboxtest.NewEnv(b, open(b))
	_, g := e.Box(b, sandbox.BoxSpec{ID: "warm"})
	b.ResetTimer()
	for range b.N {
		if exit, err := g.Exec(b.Context(), guest.ExecRequest{Argv: []string{"/bin/true"}}, guest.Streams{}); err != nil || exit.Code != 0 {
			b.Fatal(exit, err)
		}
	}
}

func BenchmarkExecTrueBare(b *testing.B) {
	for range b.N {
		if err := exec.Command("/bin/true").Run(); err != nil {
			b.Fatal(err)
		}
	}
}

func echo(b *testing.B, rw io.ReadWriter) {
	b.Helper()
	buf := make([]byte, 1)
	for range b.N {
		if _, err := rw.Write([]byte("x")); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(rw, buf); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPTYEcho(b *testing.B) {
	e := sandboxtest.NewEnv(b, open(b))
	_, g := e.Box(b, sandbox.BoxSpec{ID: "pty"})
	p, err := g.PTY(b.Context(), guest.PTYRequest{Argv: []string{"sleep", "600"}})
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	b.ResetTimer()
	echo(b, p)
}

func BenchmarkPTYEchoBare(b *testing.B) {
	cmd := exec.Command("sleep", "600")
	f, err := pty.Start(cmd)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait(); _ = f.Close() }()
	b.ResetTimer()
	echo(b, f)
}
