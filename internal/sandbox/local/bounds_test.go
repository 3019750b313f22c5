package local_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/process"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/sandboxtest"
)

// boxesOf opens a box of each kind that starts in a different way: one with a tree, one with plain
// mounts only, and one that runs only our own programs.
func boxesOf(t *testing.T) (of map[string]*guest.Client) {
	t.Helper()
	e := sandboxtest.NewEnv(t, open(t))
	of = map[string]*guest.Client{}
	for name, spec := range map[string]sandbox.BoxSpec{
		"tree":  {Kind: contract.BoxTask, Mounts: []sandbox.Mount{{Target: "/computer", Mode: sandbox.Overlay, Lower: []sandbox.Volume{sandbox.Live("")}}}},
		"plain": {Kind: contract.BoxScratch, Mounts: []sandbox.Mount{e.LiveMount()}},
		"own":   {Kind: contract.BoxAssociate, Mounts: []sandbox.Mount{e.LiveMount()}},
	} {
		spec.ID = name
		_, of[name] = e.Box(t, spec)
	}
	return of
}

// TestBoundsOfTheMachine shows that a box gets only a part of resources that the machine, or all
// processes of its user together, have a limited number of.
func TestBoundsOfTheMachine(t *testing.T) {
	sandboxtest.AsUser(t, func(t *testing.T) {
		boxes := boxesOf(t)
		for _, c := range []struct {
			what, some, many, bound string
		}{
			{"terminals", "20", "2000", "after 128:"},
			{"watchers", "20", "2000", "after 64:"},
			{"timers", "1000", "5000", "after 40"}, // signals that wait to be delivered count too
			{"queues", "3", "5", "after 3:"},
		} {
			for name, g := range boxes {
				none := name == "own" && (c.what == "terminals" || c.what == "watchers")
				if r := sandboxtest.Run(t, g, sandboxtest.ProbeInside, c.what, c.some); (r.Code != 0) != none {
					t.Errorf("%s in the box %s: %+v", c.what, name, r)
				}
				bound := c.bound
				if none {
					bound = "after 0:"
				}
				if r := sandboxtest.Run(t, g, sandboxtest.ProbeInside, c.what, c.many); r.Code == 0 || !strings.Contains(r.Out, bound) {
					t.Errorf("%s in the box %s are not bounded by %s: %+v", c.what, name, bound, r)
				}
			}
		}
		g := boxes["tree"]
		// Programs need a terminal that has a name and belongs to their user.
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

// TestSystemVIsTheBoxsOwn shows that shared memory, semaphores and message queues of System V are
// counted for each box and visible in it only.
func TestSystemVIsTheBoxsOwn(t *testing.T) {
	sandboxtest.AsUser(t, func(t *testing.T) {
		const key = "1128808271" // a key that nothing else uses
		for name, g := range boxesOf(t) {
			if r := sandboxtest.Run(t, g, sandboxtest.ProbeInside, "sysv", key); r.Code != 0 {
				t.Fatalf("%s: %+v", name, r)
			}
			for _, kind := range []string{"shm", "sem", "msg"} {
				if in := sandboxtest.Run(t, g, "cat", "/proc/sysvipc/"+kind).Out; !strings.Contains(in, key) {
					t.Errorf("%s: %s of the box is not to be seen in it: %q", name, kind, in)
				}
				if host, err := os.ReadFile("/proc/sysvipc/" + kind); err != nil || strings.Contains(string(host), key) {
					t.Errorf("%s: %s of the box is the host's: %s (%v)", name, kind, host, err)
				}
			}
		}
	})
}

// TestMountinfo shows that no process of a box can see its mounts, neither in the kernel's lists,
// for itself, the guest or another process, nor by system calls that return the same, and that
// mounts made inside a box still work.
func TestMountinfo(t *testing.T) {
	sandboxtest.AsUser(t, func(t *testing.T) {
		e := sandboxtest.NewEnv(t, open(t))
		for name, spec := range map[string]sandbox.BoxSpec{
			"tree": {Kind: contract.BoxTask, Mounts: []sandbox.Mount{
				{Target: "/computer", Mode: sandbox.Overlay, Lower: []sandbox.Volume{sandbox.Live("")}},
				{Target: "/computer/in", Mode: sandbox.Overlay, Lower: []sandbox.Volume{sandbox.Live("")}},
				{Source: sandbox.Live(""), Target: "/bound", Mode: sandbox.ReadOnly},
			}},
			"plain": {Kind: contract.BoxScratch, Mounts: []sandbox.Mount{{Source: sandbox.Live(""), Target: "/bound", Mode: sandbox.ReadOnly}}},
			"own":   {Kind: contract.BoxAssociate, Mounts: []sandbox.Mount{{Source: sandbox.Live(""), Target: "/bound", Mode: sandbox.ReadOnly}}},
		} {
			spec.ID = name
			umask := syscall.Umask(0o027) // the host's umask must not affect a box's
			_, g := e.Box(t, spec)
			syscall.Umask(umask)
			for _, files := range []string{"/proc/self/mountinfo /proc/self/mounts /proc/self/mountstats /proc/thread-self/mountinfo", "/proc/1/mountinfo /proc/1/mounts", "/proc/[0-9]*/mountinfo", "/proc/1/task/[0-9]*/mountinfo"} {
				if r := sandboxtest.Run(t, g, "sh", "-c", "cat "+files); r.Code != 0 || r.Out != "" {
					t.Errorf("%s: %s tell of mounts: %+v", name, files, r)
				}
			}
			for _, call := range []string{"listmount", "statmount"} {
				if r := sandboxtest.Run(t, g, sandboxtest.ProbeInside, "syscall", call); r.Code == 0 || !strings.Contains(r.Out, "not implemented") {
					t.Errorf("%s: %s answers: %+v", name, call, r)
				}
			}
			if r := sandboxtest.Run(t, g, "sh", "-c", "cd /bound && test $(/bin/pwd) = /bound && test $(readlink /proc/self/cwd) = /bound && test $(readlink /proc/self/root) = / && df . | grep -q /bound && ! touch x 2>&1"); r.Code != 0 {
				t.Errorf("%s: a mount is not what it was: %+v", name, r)
			}
			// The guest has had several threads when it was sealed, so each is checked.
			caps := sandboxtest.Run(t, g, "sh", "-c", "cat /proc/self/status /proc/1/task/[0-9]*/status").Out
			threads := strings.Count(caps, "\nPid:\t")
			if threads < 4 {
				t.Errorf("%s: a program and a guest's threads are %d: %s", name, threads, caps)
			}
			for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
				if strings.Count(caps, set+":\t0000000000000000\n") != threads {
					t.Errorf("%s: capabilities are left: %s", name, caps)
				}
			}
			if strings.Count(caps, "\nSeccomp:\t2\n") != threads || strings.Count(caps, "\nNoNewPrivs:\t1\n") != threads {
				t.Errorf("%s: the filter is not applied: %s", name, caps)
			}
			if strings.Count(caps, "\nUmask:\t0022\n") != threads {
				t.Errorf("%s: the host's umask is the box's: %s", name, caps)
			}
		}
	})
}

// TestAGuestHasAllProcessors: a guest starts on one processor. It has all of them by the time it
// answers, unless it is a loop's, and no program inherits the restriction. Where programs of others
// run, the kernel wakes threads as it does outside of boxes.
func TestAGuestHasAllProcessors(t *testing.T) {
	e := sandboxtest.NewEnv(t, open(t))
	for kind, want := range map[contract.BoxKind]struct {
		processors int
		slack      time.Duration
	}{
		contract.BoxTask:      {runtime.NumCPU(), process.Fine},
		contract.BoxKeeper:    {runtime.NumCPU(), process.Coarse},
		contract.BoxDirector:  {1, process.Coarse},
		contract.BoxAssociate: {1, process.Coarse},
	} {
		b, _ := e.Box(t, sandbox.BoxSpec{ID: "b-" + string(kind), Kind: kind})
		for path, want := range map[string]string{"processors": fmt.Sprintf("%d %q", want.processors, ""), "slack": fmt.Sprint(want.slack, error(nil))} {
			res, err := b.Tether().Client().Get("http://box/" + path)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(res.Body)
			if err := errors.Join(err, res.Body.Close()); err != nil || string(got) != want {
				t.Errorf("%s: the guest's %s are %s (%v), want %s", kind, path, got, err, want)
			}
		}
	}
}

// TestLeasesAreTheKeepers shows that a keeper can ask by a lease whether anybody has a file open,
// and that no other box can take one: who opens the file would wait for it.
func TestLeasesAreTheKeepers(t *testing.T) {
	e := sandboxtest.NewEnv(t, open(t))
	for _, kind := range contract.BoxKinds {
		_, g := e.Box(t, sandbox.BoxSpec{ID: "b-" + string(kind), Kind: kind})
		r := sandboxtest.Run(t, g, "sh", "-c", "echo x >/tmp/x; "+sandboxtest.ProbeInside+" lease /tmp/x once")
		if may := kind == contract.BoxKeeper; (r.Code == 0) != may {
			t.Errorf("%s: %d, %s%s; may it: %t", kind, r.Code, r.Out, r.Err, may)
		}
	}
}
