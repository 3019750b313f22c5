package local_test

import (
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/sandboxtest"
)

// treeBox opens a box as tasks have them.
func treeBox(t *testing.T) *guest.Client {
	t.Helper()
	e := sandboxtest.NewEnv(t, open(t))
	_, g := e.Box(t, sandbox.BoxSpec{ID: "tree", Kind: contract.BoxTask, Mounts: []sandbox.Mount{
		{Target: "/computer", Mode: sandbox.Overlay, Lower: []string{e.Live}},
	}})
	return g
}

// TestBoundsOfTheMachine: a box gets a part of what a whole machine, or all
// boxes together, have so many of.
func TestBoundsOfTheMachine(t *testing.T) {
	sandboxtest.AsUser(t, func(t *testing.T) {
		g := treeBox(t)
		for what, bound := range map[string]string{"terminals": "128", "watchers": "64"} {
			if r := sandboxtest.Run(t, g, sandboxtest.ProbeInside, what, "20"); r.Code != 0 {
				t.Errorf("%s: %+v", what, r)
			}
			if r := sandboxtest.Run(t, g, sandboxtest.ProbeInside, what, "2000"); r.Code == 0 || !strings.Contains(r.Out, "after "+bound+":") {
				t.Errorf("%s are not bounded by %s: %+v", what, bound, r)
			}
		}
		// A terminal that programs use has a name and an owner.
		p, err := g.PTY(t.Context(), guest.PTYRequest{Argv: []string{"sh", "-c", "tty; test -O $(tty) && echo own"}})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		out := make([]byte, 0, 256)
		for buf := make([]byte, 256); ; {
			n, err := p.Read(buf)
			if out = append(out, buf[:n]...); err != nil {
				break
			}
		}
		if s := string(out); !strings.Contains(s, "/dev/pts/") || !strings.Contains(s, "own") {
			t.Errorf("a terminal says %q", s)
		}
	})
}

// TestMountinfo: what an overlay is made of is named without a path of the
// host's. (The line of a bind mount has its source's path; docs/boxes.md.)
func TestMountinfo(t *testing.T) {
	e := sandboxtest.NewEnv(t, open(t))
	_, g := e.Box(t, sandbox.BoxSpec{ID: "tree", Kind: contract.BoxTask, Mounts: []sandbox.Mount{
		{Target: "/computer", Mode: sandbox.Overlay, Lower: []string{e.Live}},
		{Target: "/computer/in", Mode: sandbox.Overlay, Lower: []string{e.Live}},
		{Source: e.Live, Target: "/bound", Mode: sandbox.ReadOnly},
	}})
	overlays, bound := 0, false
	for line := range strings.Lines(sandboxtest.Run(t, g, "cat", "/proc/self/mountinfo").Out) {
		switch {
		case strings.Contains(line, " - overlay "):
			overlays++
			if strings.Contains(line, e.Dir) || !strings.Contains(line, "lowerdir=/proc/self/fd/") {
				t.Errorf("an overlay tells of the host: %s", line)
			}
		case strings.Contains(line, " /bound "):
			bound = strings.Contains(line, "workspace") // what the test looks for is how it would show
		}
	}
	if overlays != 2 || !bound {
		t.Errorf("saw %d overlays, the bind mount: %v", overlays, bound)
	}
}
