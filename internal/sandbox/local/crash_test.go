package local_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/local"
	"choir.dev/choiros/internal/sandbox/sandboxtest"
)

// controlPlane is a process that opens two boxes and waits to be killed.
func controlPlane(dir, guestPath, probe string) error {
	ctx := context.Background()
	d, err := local.New(ctx, local.Options{Guest: guestPath, Dir: filepath.Join(dir, "driver")})
	if err != nil {
		return err
	}
	c, err := d.Open(ctx, sandbox.ComputerSpec{CID: contract.NewCID(), Dir: dir})
	if err != nil {
		return err
	}
	program, err := os.ReadFile(probe)
	if err == nil {
		err = c.Volumes().Put(ctx, sandbox.Output("probe"), "probe", program, 0o755)
	}
	if err != nil {
		return err
	}
	live := sandbox.Mount{Source: sandbox.Live(""), Target: "/computer", Mode: sandbox.ReadWrite}
	over := sandbox.Mount{Target: "/over", Mode: sandbox.Overlay, Lower: []sandbox.Volume{sandbox.Live("")}}
	tool := sandbox.Mount{Source: sandbox.Output("probe").At("probe"), Target: sandboxtest.ProbeInside, Mode: sandbox.ReadOnly}
	for i, mounts := range [][]sandbox.Mount{{tool, live}, {tool, live, over}} {
		if err := c.Volumes().Make(ctx, sandbox.Written(fmt.Sprint("tree", i))); err != nil {
			return err
		}
		b, err := c.Box(ctx, sandbox.BoxSpec{ID: fmt.Sprint("orphan", i), Kind: contract.BoxTask, Mounts: mounts, Lock: sandbox.Written(fmt.Sprint("tree", i))})
		if err != nil {
			return err
		}
		if _, err := guest.NewClient(b.Tether().Transport()).Exec(ctx, guest.ExecRequest{
			Argv: []string{sandboxtest.ProbeInside, "daemon", fmt.Sprint("/computer/beat", i)}}, guest.Streams{}); err != nil {
			return err
		}
	}
	fmt.Println("up")
	select {}
}

// TestControlPlaneKilled shows that boxes die with a control plane that is killed, and that the
// next one finds their locks free, removes their remains, and can use their names.
func TestControlPlaneKilled(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "workspace"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "CHOIR_TEST_CONTROL="+strings.Join([]string{dir, sandboxtest.BareGuest(t), sandboxtest.Probe(t)}, "|"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "up\n" {
		t.Fatal(line, err)
	}
	beats := func() string {
		var s string
		for _, n := range []string{"beat0", "beat1"} {
			data, _ := os.ReadFile(filepath.Join(dir, "workspace", n))
			s += string(data) + "\n"
		}
		return s
	}
	sandboxtest.Eventually(t, 10*time.Second, "both daemons beat", func() bool { return !strings.Contains("\n"+beats(), "\n\n") })

	// While it lives, another control plane can't take its boxes.
	d := open(t)
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	if _, err := d.Open(short, sandbox.ComputerSpec{CID: contract.NewCID(), Dir: dir}); !fault.Is(err, fault.InUse) {
		t.Errorf("a second control plane got %v, want in_use", err)
	}
	cancel()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	c, err := d.Open(t.Context(), sandbox.ComputerSpec{CID: contract.NewCID(), Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	last := beats()
	time.Sleep(50 * time.Millisecond) // five times the interval
	if beats() != last {
		t.Error("something in the boxes outlived their control plane")
	}
	if left, _ := os.ReadDir(filepath.Join(dir, "boxes")); len(left) != 2 || left[0].Name() != "tree0" || left[1].Name() != "tree1" {
		t.Errorf("the sweep left %v, where only what tasks wrote stays", left)
	}
	if left, _ := filepath.Glob("/sys/fs/cgroup/*/choir.*.orphan*"); len(left) != 0 {
		t.Errorf("the sweep left %v", left)
	}
	for i := range 2 {
		b, err := c.Box(t.Context(), sandbox.BoxSpec{ID: fmt.Sprint("orphan", i), Kind: contract.BoxTask, Lock: sandbox.Written(fmt.Sprint("tree", i))})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Kill(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWithoutBubblewrap(t *testing.T) {
	o := local.Options{Guest: sandboxtest.BareGuest(t), Dir: t.TempDir(), Bubblewrap: filepath.Join(t.TempDir(), "bwrap")}
	_, err := local.New(t.Context(), o)
	if !fault.Is(err, fault.Missing) || !strings.Contains(fault.HintOf(err), "apt-get install bubblewrap") {
		t.Errorf("got %v, hint %q", err, fault.HintOf(err))
	}
	if f := local.Diagnose(t.Context(), o); len(f) == 0 || f[0].Severity != sandbox.Fatal || f[0].Hint == "" {
		t.Errorf("diagnosed %+v", f)
	}
	// A bubblewrap that can't make namespaces counts as missing.
	fake := filepath.Join(t.TempDir(), "bwrap")
	if err := os.WriteFile(fake, []byte("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	o.Bubblewrap = fake
	if _, err = local.New(t.Context(), o); !fault.Is(err, fault.Missing) || !strings.Contains(fault.HintOf(err), "user_namespaces") {
		t.Errorf("got %v, hint %q", err, fault.HintOf(err))
	}
}

// TestBrokenGuest shows that a guest that never connects its tether is killed. The caller's error
// says what to do; the program's output, which may name paths of the host, and the error of the
// connection are only in the log.
func TestBrokenGuest(t *testing.T) {
	var log bytes.Buffer
	d, err := local.New(t.Context(), local.Options{Guest: sandboxtest.Probe(t), Dir: t.TempDir(), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	dir := t.TempDir()
	c, err := d.Open(t.Context(), sandbox.ComputerSpec{CID: contract.NewCID(), Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Box(t.Context(), sandbox.BoxSpec{ID: "bad", Kind: contract.BoxTask})
	if !fault.Is(err, fault.Unavailable) || fault.Text(err) != "a box did not start" || !strings.Contains(fault.HintOf(err), "choir doctor") {
		t.Errorf("it says %v: %q, %q", fault.CodeOf(err), fault.Text(err), fault.HintOf(err))
	}
	if !strings.Contains(log.String(), "usage: probe") {
		t.Errorf("the log says %q, want what the program said", log.String())
	}
	if left, _ := os.ReadDir(filepath.Join(dir, "boxes")); len(left) != 0 {
		t.Errorf("a failed start left %v", left)
	}
}
