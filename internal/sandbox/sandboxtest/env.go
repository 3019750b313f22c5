package sandboxtest

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/sandbox"
)

// ProbeInside is where Box puts the probe.
const ProbeInside = "/opt/probe"

// Env is one computer on a driver, with a workspace.
type Env struct {
	Driver   sandbox.Driver
	Computer sandbox.Computer
	Dir      string // the computer's directory
	Live     string // the computer's files on the host
	probe    sandbox.Volume
}

// NewEnv opens a computer that is closed at the test's end.
func NewEnv(t testing.TB, d sandbox.Driver) *Env {
	t.Helper()
	dir := t.TempDir()
	e := &Env{Driver: d, Dir: dir, Live: filepath.Join(dir, "workspace"), probe: sandbox.Output("probe")}
	if err := os.MkdirAll(e.Live, 0o755); err != nil {
		t.Fatal(err)
	}
	c, err := d.Open(t.Context(), sandbox.ComputerSpec{CID: contract.NewCID(), Dir: dir, Caches: []string{"kept"}})
	if err != nil {
		t.Fatal(err)
	}
	e.Computer = c
	program, err := os.ReadFile(Probe(t))
	if err == nil {
		err = c.Volumes().Put(t.Context(), e.probe, "probe", program, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close the computer: %v", err)
		}
	})
	return e
}

// Box opens a box with the probe in it; missing fields of the spec are filled.
func (e *Env) Box(t testing.TB, spec sandbox.BoxSpec) (sandbox.Box, *guest.Client) {
	t.Helper()
	if spec.ID == "" {
		spec.ID = strings.NewReplacer("/", "-", "#", "-", ",", "-", " ", "-", "=", "-").Replace(t.Name())
		spec.ID = spec.ID[max(0, len(spec.ID)-40):]
		spec.ID = strings.TrimLeft(spec.ID, "-._")
	}
	if spec.Kind == "" {
		spec.Kind = contract.BoxTask
	}
	spec.Mounts = append([]sandbox.Mount{e.ProbeMount()}, spec.Mounts...)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	b, err := e.Computer.Box(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Kill(); err != nil {
			t.Errorf("kill box %s: %v", b.ID(), err)
		}
	})
	return b, guest.NewClient(b.Tether().Transport())
}

// ProbeMount puts the probe at ProbeInside.
func (e *Env) ProbeMount() sandbox.Mount {
	return sandbox.Mount{Source: e.probe.At("probe"), Target: ProbeInside, Mode: sandbox.ReadOnly}
}

// LiveMount puts the live tree at /computer.
func (e *Env) LiveMount() sandbox.Mount {
	return sandbox.Mount{Source: sandbox.Live(""), Target: "/computer", Mode: sandbox.ReadWrite}
}

// Result is what a command said and how it ended.
type Result struct {
	guest.Exit
	Out, Err string
}

// Run runs a command in a box to its end; it fails the test when the box, not
// the command, fails.
func Run(t testing.TB, g *guest.Client, argv ...string) Result {
	t.Helper()
	r, err := TryRun(t, g, guest.ExecRequest{Argv: argv})
	if err != nil {
		t.Fatalf("run %q: %v", argv, err)
	}
	return r
}

// TryRun runs a request within 60 s.
func TryRun(t testing.TB, g *guest.Client, req guest.ExecRequest) (Result, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	var out, eout bytes.Buffer
	if req.HeadBytes == 0 {
		req.HeadBytes, req.TailBytes = 1<<20, 1<<20
	}
	exit, err := g.Exec(ctx, req, guest.Streams{Stdout: &out, Stderr: &eout})
	return Result{Exit: exit, Out: out.String(), Err: eout.String()}, err
}

// Eventually waits for a condition, at most for limit.
func Eventually(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", limit, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// AwaitEnd waits for a box to end and returns why.
func AwaitEnd(t testing.TB, b sandbox.Box, limit time.Duration) *sandbox.EndedError {
	t.Helper()
	select {
	case <-b.Done():
	case <-time.After(limit):
		t.Fatalf("box %s has not ended within %v", b.ID(), limit)
	}
	ended, ok := b.Err().(*sandbox.EndedError)
	if !ok {
		t.Fatalf("the box ended with %v, which is no *sandbox.EndedError", b.Err())
	}
	return ended
}
