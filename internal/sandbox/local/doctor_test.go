package local_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/local"
	"choir.dev/choiros/internal/sandbox/sandboxtest"
	"choir.dev/choiros/test/choirtest"
)

// TestDoctor shows that Doctor and Notes describe this machine, each finding with a stable id and a
// hint.
func TestDoctor(t *testing.T) {
	d := open(t)
	e := sandboxtest.NewEnv(t, d)
	seen := map[string]sandbox.Finding{}
	for _, f := range d.Doctor(t.Context()) {
		if f.ID == "" || f.Text == "" || seen[f.ID].ID != "" {
			t.Errorf("finding %+v", f)
		}
		if f.Severity == sandbox.Fatal {
			t.Errorf("boxes start here, but doctor says %+v", f)
		}
		if f.Severity == sandbox.Weak && f.Hint == "" {
			t.Errorf("%s says nothing to do", f.ID)
		}
		seen[f.ID] = f
	}
	if _, ok := seen["disk-quota"]; !ok {
		t.Error("the missing disk quota is not told")
	}
	if _, ok := seen["root"]; ok != (os.Geteuid() == 0) {
		t.Errorf("running as %d: root finding %v", os.Geteuid(), ok)
	}
	// A limit that is not noted as missing is really in force.
	_, g := e.Box(t, sandbox.BoxSpec{Limits: sandbox.Limits{Pids: 60}})
	r := sandboxtest.Run(t, g, "sh", "-c", "for i in $(seq 100); do sleep 30 & done 2>&1; wait -n 2>/dev/null; true")
	if _, missing := seen["cgroup-pids"]; !missing && !strings.Contains(r.Out+r.Err, "fork") {
		t.Errorf("100 processes were started where 60 are allowed: %+v", r)
	}
	if len(e.Computer.Notes()) != len(seen) {
		t.Errorf("%d notes, %d findings", len(e.Computer.Notes()), len(seen))
	}
}

// TestBubblewrapMustTakeDescriptors shows that a bubblewrap that can't mount open descriptors is
// refused: it would look up the sources of mounts by name.
func TestBubblewrapMustTakeDescriptors(t *testing.T) {
	real, err := exec.LookPath("bwrap")
	if err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(t.TempDir(), "bwrap")
	script := "#!/bin/sh\nfor a; do case $a in --bind-fd|--ro-bind-fd) echo \"bwrap: Unknown option $a\" >&2; exit 1;; esac; done\nexec " + real + " \"$@\"\n"
	if err := os.WriteFile(old, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	o := local.Options{Guest: sandboxtest.BareGuest(t), Dir: t.TempDir(), Bubblewrap: old}
	_, err = local.New(t.Context(), o)
	if !fault.Is(err, fault.Missing) || !strings.Contains(fault.HintOf(err), "--bind-fd") {
		t.Errorf("the driver says %v, and to do: %s", err, fault.HintOf(err))
	}
	found := local.Diagnose(t.Context(), o)
	if len(found) == 0 || found[0].Severity != sandbox.Fatal || !strings.Contains(found[0].Hint, "--bind-fd") {
		t.Errorf("doctor says %+v", found)
	}
}

// TestAProbeThatIsGivenUpEnds: bubblewrap is killed at the moment when its child does not die with
// it yet, while the child holds its output open.
func TestAProbeThatIsGivenUpEnds(t *testing.T) {
	dir := t.TempDir()
	bwrap, left := filepath.Join(dir, "bwrap"), filepath.Join(dir, "left")
	script := "#!/bin/sh\nsleep 10000 &\necho $! > " + left + ".tmp; mv " + left + ".tmp " + left + "\nwait\n"
	if err := os.WriteFile(bwrap, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan []sandbox.Finding, 1)
	go func() { done <- local.Diagnose(ctx, local.Options{Bubblewrap: bwrap, Guest: os.Args[0]}) }()
	var child []byte
	choirtest.Eventually(t, 20*time.Second, "the probe has a child", func() (there bool) {
		var err error
		child, err = os.ReadFile(left)
		return err == nil
	})
	cancel()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Error("it waits for what its probe left")
	}
	pid := strings.TrimSpace(string(child))
	choirtest.Eventually(t, 20*time.Second, "the child is gone", func() bool {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
}
