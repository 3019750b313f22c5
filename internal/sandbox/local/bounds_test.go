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
