package attack_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/local/hostfs"
	"choir.dev/choiros/internal/sandbox/sandboxtest"
)

const masterKey = "the-master-key"

// keyring makes a directory beside the computer's that no box may see.
func keyring(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "master"), []byte(masterKey), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func mkdir(t *testing.T, names ...string) string {
	t.Helper()
	dir := filepath.Join(names...)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// seen opens a box and tries to read the key at target. If the box does not open, it shows nothing.
func seen(t *testing.T, e *sandboxtest.Env, spec sandbox.BoxSpec, target string) Verdict {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	b, err := e.Computer.Box(ctx, spec)
	if err != nil {
		return Verdict{false, clip(err.Error())}
	}
	r := sandboxtest.Run(t, guest.NewClient(b.Tether().Transport()), "cat", target+"/master")
	if err := b.Kill(); err != nil {
		t.Error(err)
	}
	return Verdict{strings.Contains(r.Out, masterKey), clip(r.Out + r.Err)}
}

// linkedLayer: a directory that git ignores became a link after it was listed.
func linkedLayer(t *testing.T) Verdict {
	e := newEnv(t, sandboxtest.BareGuest(t))
	if err := os.Symlink(keyring(t), filepath.Join(e.Live, "node_modules")); err != nil {
		t.Fatal(err)
	}
	mkdir(t, e.Dir, "snapshots/c")
	return seen(t, e, sandbox.BoxSpec{ID: "verify", Kind: contract.BoxVerify, Mounts: []sandbox.Mount{
		{Target: "/computer", Mode: sandbox.Overlay, Lower: []sandbox.Volume{sandbox.Snapshot("c")}},
		{Target: "/computer/node_modules", Mode: sandbox.Overlay, Lower: []sandbox.Volume{sandbox.Live("node_modules")}},
	}}, "/computer/node_modules")
}

// exchangedSource turns the source of a mount from a folder into a link and back, as fast as a
// program can, while boxes are opened.
func exchangedSource(t *testing.T) Verdict {
	e := newEnv(t, sandboxtest.BareGuest(t))
	at := mkdir(t, e.Live, "choiros")
	if err := os.Symlink(keyring(t), at+".link"); err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			if err := unix.Renameat2(unix.AT_FDCWD, at, unix.AT_FDCWD, at+".link", unix.RENAME_EXCHANGE); err != nil {
				stopped <- err
				return
			}
		}
	}()
	var v Verdict
	for i := 0; i < 60 && !v.Worked; i++ {
		v = seen(t, e, sandbox.BoxSpec{ID: fmt.Sprint("desktop", i), Kind: contract.BoxDesktop, Mounts: []sandbox.Mount{
			{Source: sandbox.Live("choiros"), Target: "/computer", Mode: sandbox.ReadOnly},
		}}, "/computer")
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	return v
}

// linkedTarget commits a link where something will be mounted.
func linkedTarget(t *testing.T) Verdict {
	e := newEnv(t, sandboxtest.BareGuest(t))
	place, snapshot := t.TempDir(), mkdir(t, e.Dir, "snapshots/c")
	if err := os.Symlink(place, filepath.Join(snapshot, "choiros")); err != nil {
		t.Fatal(err)
	}
	v := seen(t, e, sandbox.BoxSpec{ID: "task", Kind: contract.BoxTask, Mounts: []sandbox.Mount{
		{Target: "/computer", Mode: sandbox.Overlay, Lower: []sandbox.Volume{sandbox.Snapshot("c")}},
		{Source: sandbox.Live(""), Target: "/computer/choiros/node_modules", Mode: sandbox.ReadOnly},
	}}, "/computer")
	made, err := os.ReadDir(place)
	if err != nil {
		t.Fatal(err)
	}
	return Verdict{len(made) > 0, fmt.Sprint(made, " ", v.Evidence)}
}

// coveredGuest mounts something over the guest's program, by another name of its path.
func coveredGuest(t *testing.T) Verdict {
	var log bytes.Buffer
	e := newEnvWith(t, sandboxtest.BareGuest(t), slog.New(slog.NewTextHandler(&log, nil)))
	at := mkdir(t, e.Live, "run")
	if err := os.WriteFile(filepath.Join(at, "choir"), []byte("#!/bin/sh\necho instead of the guest >&2\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	v := seen(t, e, sandbox.BoxSpec{ID: "task", Kind: contract.BoxTask, Mounts: []sandbox.Mount{
		{Source: sandbox.Live("run"), Target: "/var/run/choir", Mode: sandbox.ReadOnly},
	}}, "/computer")
	return Verdict{strings.Contains(log.String(), "instead of the guest"), v.Evidence + "\n" + log.String()}
}

// unremovable has a box leave folders that nobody may enter, and ends it.
func unremovable(t *testing.T) Verdict {
	e := newEnv(t, sandboxtest.BareGuest(t))
	b, g := e.Box(t, sandbox.BoxSpec{ID: "task", Mounts: []sandbox.Mount{{Target: "/computer", Mode: sandbox.Overlay, Lower: []sandbox.Volume{sandbox.Live("")}}}})
	if r := sandboxtest.Run(t, g, sandboxtest.ProbeInside, "closed", "/computer"); r.Code != 0 {
		t.Fatalf("%+v", r)
	}
	killed := b.Kill()
	t.Cleanup(func() { openUp(t, filepath.Join(e.Dir, "removing")) })
	v := Verdict{Evidence: fmt.Sprint(killed)}
	sandboxtest.Eventually(t, 20*time.Second, "what it left is removed, or told", func() bool {
		for _, n := range e.Computer.Notes() {
			if n.ID == "not-removed" {
				v = Verdict{true, n.Text}
			}
		}
		left, err := os.ReadDir(filepath.Join(e.Dir, "removing", "boxes"))
		return v.Worked || killed != nil || err == nil && len(left) == 0
	})
	return Verdict{v.Worked || killed != nil, v.Evidence}
}

// openUp makes what an attack left accessible to the test's own cleanup.
func openUp(t *testing.T, dir string) {
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			return os.Chmod(path, 0o755)
		}
		return nil
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Log(err)
	}
}

// unmeasurable makes a chain of folders in the live tree, by which every box that may write there
// would be ended.
func unmeasurable(t *testing.T) Verdict {
	e := newEnv(t, sandboxtest.BareGuest(t))
	if out, ok := unprotected(t, "deep", e.Live, "300"); !ok {
		t.Fatal(out)
	}
	t.Cleanup(func() {
		d, err := hostfs.Open(e.Live)
		if err == nil {
			err = errors.Join(d.RemoveAll(context.Background(), "d"), d.Close())
		}
		if err != nil {
			t.Error(err)
		}
	})
	b, g := e.Box(t, sandbox.BoxSpec{ID: "terminal", Kind: contract.BoxTerminal, Mounts: []sandbox.Mount{e.LiveMount()},
		Limits: sandbox.Limits{DiskInodes: 10_000, Counted: []sandbox.Volume{sandbox.Live("")}}})
	v := Verdict{false, "it is measured, and goes on"}
	i := 0
	sandboxtest.Eventually(t, 20*time.Second, "the box is measured or ended", func() bool {
		select {
		case <-b.Done():
			v = Verdict{true, fmt.Sprint(b.Err())}
			return true
		default:
		}
		i++
		if _, err := sandboxtest.TryRun(t, g, guest.ExecRequest{Argv: []string{"sh", "-c", fmt.Sprint("echo > /computer/f", i)}}); err != nil {
			return false // the box is ended
		}
		u, err := b.Usage(t.Context())
		return err == nil && u.DiskInodes > 0
	})
	return v
}

var hostRows = []Row{
	{Number: 41, Attack: "an ignored folder is a link to the keys by the time the next box is opened", Defences: []defence.Name{defence.HostBeneath}, Run: linkedLayer},
	{Number: 41, Attack: "a mount's source turns into a link while the box is opened", Defences: []defence.Name{defence.HostDescriptor}, Run: exchangedSource},
	{Number: 41, Attack: "a commit has a link where something is mounted, and something is made on the host", Defences: []defence.Name{defence.HostTargets}, Run: linkedTarget},
	{Number: 41, Attack: "a script is mounted over the guest's program and gets the tether", Defences: []defence.Name{defence.HostGuestLast}, Run: coveredGuest},
	{Number: 43, Attack: "folders that nobody may enter are never removed", Defences: []defence.Name{defence.RemoveClosed}, NotAs: map[string]string{"root": "modes"}, Run: unremovable},
	{Number: 43, Attack: "a chain of folders ends every box that may write where it is", Defences: []defence.Name{defence.MeasureDeep}, Run: unmeasurable},
	{Number: 13, Attack: "one box opens all terminals of the machine", Defences: []defence.Name{defence.BoxTerminals}, Run: inTree("terminals", "200")},
	{Number: 13, Attack: "one box opens all file watchers of the host's user", Defences: []defence.Name{defence.BoxWatchers}, Run: inTree("watchers", "80")},
	{Number: 13, Attack: "every start of a program in other boxes waits for one box's lease on a file that each of them reads", Defences: []defence.Name{defence.BoxLeases}, Run: leased},
	{Number: 13, Attack: "who reads a file that all boxes have goes through as many notices as one box wants", Defences: []defence.Name{defence.BoxNotices}, Run: noticed},
	{Number: 13, Attack: "a box of our own programs opens all terminals of the machine", Defences: []defence.Name{defence.BoxTerminals}, Run: inOwn("terminals", "200")},
	{Number: 13, Attack: "a box of our own programs opens all file watchers of the host's user", Defences: []defence.Name{defence.BoxWatchers}, Run: inOwn("watchers", "80")},
}

// inOwn runs the probe in a box like the one of our own loops.
func inOwn(argv ...string) func(*testing.T) Verdict {
	return func(t *testing.T) Verdict {
		_, g := newEnv(t, sandboxtest.BareGuest(t)).Box(t, sandbox.BoxSpec{ID: "attack", Kind: contract.BoxAssociate})
		return probed(t, g, argv...)
	}
}

// inTree runs the probe in a box with a tree, like a task's.
func inTree(argv ...string) func(*testing.T) Verdict {
	return func(t *testing.T) Verdict {
		e := newEnv(t, sandboxtest.BareGuest(t))
		_, g := e.Box(t, sandbox.BoxSpec{ID: "attack", Mounts: []sandbox.Mount{{Target: "/computer", Mode: sandbox.Overlay, Lower: []sandbox.Volume{sandbox.Live("")}}}})
		return probed(t, g, argv...)
	}
}

// leased has a box take a lease on a file of /etc, which is the same in every box and belongs to
// the boxes' user, and looks from another box whether who opens it has to wait.
func leased(t *testing.T) Verdict {
	const file = "/etc/ld.so.cache"
	e := newEnv(t, sandboxtest.BareGuest(t))
	_, attacker := e.Box(t, sandbox.BoxSpec{ID: "attack", Mounts: []sandbox.Mount{e.LiveMount()}})
	_, other := e.Box(t, sandbox.BoxSpec{ID: "other", Kind: contract.BoxTerminal})
	said := sandboxtest.Run(t, attacker, "sh", "-c", "setsid "+sandboxtest.ProbeInside+" lease "+file+" >/tmp/said 2>&1 & until read -r line </tmp/said; do :; done 2>/dev/null; echo $line")
	v := probed(t, other, "leased", file)
	return Verdict{v.Worked, clip(said.Out) + "; " + v.Evidence}
}

// noticed has a box ask for notices of a folder that is the same in every box, and looks whether it
// gets one when another box reads there.
func noticed(t *testing.T) Verdict {
	const dir = "/etc/ssl/certs"
	e := newEnv(t, sandboxtest.BareGuest(t))
	_, attacker := e.Box(t, sandbox.BoxSpec{ID: "attack", Mounts: []sandbox.Mount{e.LiveMount()}})
	_, other := e.Box(t, sandbox.BoxSpec{ID: "other", Kind: contract.BoxTerminal})
	const read = "until read -r line </tmp/said; do :; done 2>/dev/null; echo $line"
	said := sandboxtest.Run(t, attacker, "sh", "-c", "setsid "+sandboxtest.ProbeInside+" notices "+dir+" >/tmp/said 2>&1 & "+read)
	if strings.TrimSpace(said.Out) != "waits" {
		return Verdict{false, clip(said.Out)}
	}
	seen := sandboxtest.Run(t, other, "sh", "-c", "cat "+dir+"/* >/dev/null")
	heard := sandboxtest.Run(t, attacker, "sh", "-c", "until [ \"$(wc -l </tmp/said)\" -ge 2 ]; do :; done; tail -n 1 /tmp/said")
	return Verdict{strings.TrimSpace(heard.Out) == "was told", clip(said.Out + seen.Err + "; " + heard.Out)}
}
