package sandboxtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/sandbox"
)

// testEmpty: nothing of the host is in a box that was given nothing.
func testEmpty(t *testing.T, e *Env) {
	t.Setenv("CHOIR_CANARY", "leaked")
	_, g := e.Box(t, sandbox.BoxSpec{})
	if r := Run(t, g, "env"); strings.Contains(r.Out, "leaked") {
		t.Errorf("the host's environment is in the box:\n%s", r.Out)
	}
	if r := Run(t, g, ProbeInside, "fds"); r.Code != 1 {
		t.Errorf("inherited descriptors: %s", r.Out)
	}
	if r := Run(t, g, ProbeInside, "interfaces"); r.Out != "lo\n" {
		t.Errorf("interfaces: %q", r.Out)
	}
	for _, path := range []string{e.Dir, "/root", "/sys", "/boot", "/etc/shadow", "/etc/ssh", "/var/lib", "/mnt"} {
		if r := Run(t, g, "ls", path); r.Code == 0 {
			t.Errorf("%s is in the box: %s", path, r.Out)
		}
	}
	for _, path := range []string{"/x", "/usr/x", "/etc/x", "/dev/x", "/run/x", "/run/choir/choir", "/opt/x", "/proc/sys/kernel/hostname"} {
		if r := Run(t, g, "sh", "-c", "echo > "+path); r.Code == 0 {
			t.Errorf("%s can be written", path)
		}
	}
	for _, path := range []string{"/tmp/x", "/home/choir/x", "/dev/shm/x"} {
		if r := Run(t, g, "sh", "-c", "echo > "+path); r.Code != 0 {
			t.Errorf("%s can't be written: %s", path, r.Err)
		}
	}
}

func testMounts(t *testing.T, e *Env) {
	if err := os.MkdirAll(filepath.Join(e.Live, "in"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, g := e.Box(t, sandbox.BoxSpec{Mounts: []sandbox.Mount{
		e.LiveMount(),
		{Source: sandbox.Live("in"), Target: "/computer/in", Mode: sandbox.ReadOnly},
		{Target: "/computer/scrap", Mode: sandbox.Tmpfs, SizeBytes: 1 << 20},
		{Source: sandbox.Snapshot("absent"), Target: "/absent", Mode: sandbox.ReadOnly, Optional: true},
	}})
	if r := Run(t, g, "sh", "-c", "echo hi > new && cat new"); r.Out != "hi\n" {
		t.Errorf("%+v", r)
	}
	if data, err := os.ReadFile(filepath.Join(e.Live, "new")); string(data) != "hi\n" {
		t.Errorf("the live tree has %q, %v", data, err)
	}
	if r := Run(t, g, "sh", "-c", "echo > in/x"); r.Code == 0 {
		t.Error("a read-only mount was written")
	}
	if r := Run(t, g, "sh", "-c", "head -c 2M /dev/zero > scrap/x"); r.Code == 0 {
		t.Error("a tmpfs took more than its size")
	}
}

func testOverlay(t *testing.T, e *Env) {
	dir := func(name string) string {
		d := filepath.Join(e.Dir, name)
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
		return d
	}
	above := sandbox.Written("above")
	if err := e.Computer.Volumes().Make(t.Context(), above); err != nil {
		t.Fatal(err)
	}
	lower, upper, modules := dir("workspace/snap:shot,1"), dir("boxes/above/upper"), dir("snapshots/modules")
	for name, text := range map[string]string{"keep": "k", "change": "old", "drop": "d", "gone/a": "a"} {
		path := filepath.Join(lower, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	mounts := []sandbox.Mount{
		{Target: "/computer", Mode: sandbox.Overlay, Lower: []sandbox.Volume{sandbox.Live("snap:shot,1")}, Upper: above},
		{Target: "/computer/app/node_modules", Mode: sandbox.Overlay, Lower: []sandbox.Volume{sandbox.Snapshot("modules")}},
	}
	b, g := e.Box(t, sandbox.BoxSpec{Mounts: mounts})
	r := Run(t, g, "sh", "-c", "cat keep change && echo new > change && rm -r drop gone && mkdir gone && echo b > gone/b && echo m > app/node_modules/m")
	if r.Code != 0 || r.Out != "kold" {
		t.Fatalf("%+v", r)
	}
	if err := b.Kill(); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(lower, "change")); string(data) != "old" {
		t.Errorf("the lower layer changed: %q %v", data, err)
	}
	if data, err := os.ReadFile(filepath.Join(upper, "change")); string(data) != "new\n" {
		t.Errorf("the upper layer has %q, %v", data, err)
	}
	var st syscall.Stat_t
	if err := syscall.Lstat(filepath.Join(upper, "drop"), &st); err != nil || st.Mode&syscall.S_IFMT != syscall.S_IFCHR || st.Rdev != 0 {
		t.Errorf("a removed file left no whiteout: %v", err)
	}
	opaque := make([]byte, 8)
	if n, err := syscall.Getxattr(filepath.Join(upper, "gone"), "user.overlay.opaque", opaque); err != nil || string(opaque[:n]) != "y" {
		t.Errorf("a replaced directory is not opaque: %q %v", opaque[:max(n, 0)], err)
	}
	if _, err := os.Lstat(filepath.Join(upper, "app")); err == nil {
		t.Error("making the place of an inner mount left a trace in the upper layer")
	}
	if entries, _ := os.ReadDir(modules); len(entries) != 0 {
		t.Error("the inner overlay's lower layer changed")
	}
	// A box on top of that result, with a throwaway upper: sees it, changes nothing.
	before := list(t, upper)
	_, g = e.Box(t, sandbox.BoxSpec{ID: "verify", Kind: contract.BoxVerify, Mounts: []sandbox.Mount{
		{Target: "/computer", Mode: sandbox.Overlay, Lower: []sandbox.Volume{above, sandbox.Live("snap:shot,1")}},
	}})
	r = Run(t, g, "sh", "-c", "cat change; ls; ls gone; echo v > change; rm keep")
	if r.Out != "new\nchange\ngone\nkeep\nb\n" || r.Code != 0 {
		t.Errorf("the box above sees %+v", r)
	}
	if after := list(t, upper); after != before {
		t.Errorf("the upper layer changed under a throwaway one:\n%s\nbefore:\n%s", after, before)
	}
}

// testLayers shows what several layers come to: beneath an upper, where a later
// mount has its place in spite of a whiteout, and read-only.
func testLayers(t *testing.T, e *Env) {
	layer := func(name string, files map[string]string) string {
		dir := filepath.Join(e.Dir, "snapshots", name)
		for name, text := range files {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			err := os.WriteFile(path, []byte(text), 0o644)
			if text == "gone" {
				err = errors.Join(os.Remove(path), unix.Mknod(path, unix.S_IFCHR, 0))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	whole := layer("whole", map[string]string{"a": "a0", "b": "b0", "vendor/x": "x0", "p/q/r": "r0", "link/f": "f0"})
	middle := layer("middle", map[string]string{"a": "a1", "vendor": "gone", "p/q": "gone"})
	top := layer("top", map[string]string{"b": "gone", "p/new": "new"})
	layer("modules", map[string]string{"m": "m"})
	modules := sandbox.Snapshot("modules")
	if err := errors.Join(os.RemoveAll(filepath.Join(whole, "link")), os.Symlink("p", filepath.Join(whole, "link"))); err != nil {
		t.Fatal(err)
	}
	lower, before := []sandbox.Volume{sandbox.Snapshot("top"), sandbox.Snapshot("middle"), sandbox.Snapshot("whole")}, list(t, top)+list(t, middle)+list(t, whole)
	b, g := e.Box(t, sandbox.BoxSpec{Kind: contract.BoxVerify, Mounts: []sandbox.Mount{
		{Target: "/computer", Mode: sandbox.Overlay, Lower: lower},
		{Source: modules, Target: "/computer/vendor", Mode: sandbox.ReadOnly},
		{Source: modules, Target: "/computer/p/q", Mode: sandbox.ReadOnly},
		{Source: modules, Target: "/computer/link/x", Mode: sandbox.ReadOnly, Optional: true},
		{Target: "/base", Mode: sandbox.ReadOnly, Lower: lower},
		{Target: "/one", Mode: sandbox.ReadOnly, Lower: lower[2:]},
	}})
	r := Run(t, g, "sh", "-c", "cd /computer && find . | sort | tr '\n' ' '; cat a; cd /base && find . | sort | tr '\n' ' '; cat a /one/a /one/b")
	if want := ". ./a ./link ./p ./p/new ./p/q ./p/q/m ./vendor ./vendor/m a1. ./a ./link ./p ./p/new a1a0b0"; r.Out != want || r.Code != 0 {
		t.Errorf("the box sees %+v\nwant %s", r, want)
	}
	if r := Run(t, g, "sh", "-c", "echo > /computer/a; echo > /computer/p/z; rm /base/a || echo > /base/x || echo > /one/x"); r.Code == 0 {
		t.Error("layers that are shown read-only were written to")
	}
	if err := b.Kill(); err != nil {
		t.Fatal(err)
	}
	if after := list(t, top) + list(t, middle) + list(t, whole); after != before {
		t.Errorf("the layers changed:\n%s\nbefore:\n%s", after, before)
	}
}

func list(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fmt.Fprintln(&b, path, d.Type())
		if d.Type().IsRegular() {
			data, err := os.ReadFile(path)
			fmt.Fprintf(&b, "%q\n", data)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}
