package local

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/process"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/local/cgroup"
)

// TestAnAbandonedStartLeavesNothing shows that a start that is given up leaves no process, also on
// a machine without writable cgroups. A program in bubblewrap's place does what bubblewrap does
// when it is killed in the middle of its setup: it leaves a child that waits.
func TestAnAbandonedStartLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	said := filepath.Join(dir, "child")
	fake := filepath.Join(dir, "bwrap")
	script := "#!/bin/sh\nif [ $# -lt 40 ]; then echo 'usage: ' >&2; exit 1; fi\nsleep 1000 &\necho $! > " + said + ".new && mv " + said + ".new " + said + "\nwait\n"
	if err := os.WriteFile(fake, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	guest, err := exec.LookPath("true")
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(t.Context(), Options{Guest: guest, Dir: filepath.Join(dir, "driver"), Bubblewrap: fake})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	d.cgroups = &cgroup.Groups{Parent: map[string]string{}, Home: map[string]string{}}
	c, err := d.Open(t.Context(), sandbox.ComputerSpec{CID: contract.NewCID(), Dir: filepath.Join(dir, "computer")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, giveUp := context.WithCancel(t.Context())
	var child int
	go func() {
		defer giveUp()
		for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			if data, err := os.ReadFile(said); err == nil {
				child, _ = strconv.Atoi(strings.TrimSpace(string(data)))
				return
			}
		}
	}()
	if _, err := c.Box(ctx, sandbox.BoxSpec{ID: "given-up", Kind: contract.BoxDirector}); err == nil {
		t.Fatal("the box started")
	}
	<-ctx.Done()
	if child == 0 {
		t.Fatal("the start never came as far as its child")
	}
	for deadline := time.Now().Add(10 * time.Second); process.ID(child) != ""; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			_ = unix.Kill(child, unix.SIGKILL)
			t.Fatal("the child still lives")
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}
