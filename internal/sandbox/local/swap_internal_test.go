package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/sandboxtest"
)

// swapped is a computer's directory beside keys that no box may see. Its paths are those from which
// a computer's boxes are mounted.
type swapped struct {
	t    *testing.T
	d    *Driver
	dir  string // the data directory
	c    sandbox.Computer
	keys string
}

const secret = "SECRET-THAT-NO-BOX-SEES"

func newSwapped(t *testing.T) *swapped {
	t.Helper()
	data := t.TempDir()
	d, err := New(t.Context(), Options{Guest: sandboxtest.BareGuest(t), Dir: t.TempDir(), Shared: filepath.Join(data, "cache")})
	if err != nil {
		t.Fatal(err)
	}
	s := &swapped{t: t, d: d, dir: data}
	s.keys = filepath.Join(s.dir, "keys")
	s.make("../../keys/master", secret)
	s.make("../../cache/modules/m", "m")
	for _, f := range []string{
		"workspace/choiros/node_modules/live", "workspace/choiros/page", "workspace/.git/HEAD", "workspace/app/node_modules/dep",
		"snapshots/c1/choiros/page", "snapshots/c1/app/page",
		"boxes/t1/upper/new", "boxes/t1/ignored/h/upper/dep2",
	} {
		s.make(f, "plain")
	}
	for _, f := range []string{"boxes/t1/work", "boxes/t1/ignored/h/work"} {
		if err := os.MkdirAll(s.path(f), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if s.c, err = d.Open(t.Context(), sandbox.ComputerSpec{CID: contract.NewCID(), Dir: s.path("")}); err != nil {
		t.Fatal(err)
	}
	s.make("boxes/.out-build/dist/old", "plain") // opening a box empties its outputs
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *swapped) path(name string) string { return filepath.Join(s.dir, "computers", "c", name) }

func (s *swapped) make(name, content string) {
	s.t.Helper()
	f := s.path(name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(f), 0o755), os.WriteFile(f, []byte(content), 0o644)); err != nil {
		s.t.Fatal(err)
	}
}

// specs returns a box of every kind that has a tree, mounted as a computer does it.
func (s *swapped) specs() map[string]sandbox.BoxSpec {
	modules := sandbox.Mount{Source: sandbox.SharedCache("modules"), Target: "/computer/choiros/node_modules", Mode: sandbox.ReadOnly}
	git := sandbox.Mount{Source: sandbox.Live(".git"), Target: "/computer/.git", Mode: sandbox.ReadOnly}
	return map[string]sandbox.BoxSpec{
		"keeper": {Kind: contract.BoxKeeper, Mounts: []sandbox.Mount{
			{Source: sandbox.Live(""), Target: "/computer", Mode: sandbox.ReadWrite},
			{Source: sandbox.Snapshot(""), Target: "/snapshots", Mode: sandbox.ReadWrite},
			{Source: sandbox.Written(""), Target: "/uppers", Mode: sandbox.ReadOnly},
		}},
		"desktop": {Kind: contract.BoxDesktop, Mounts: []sandbox.Mount{
			{Source: sandbox.Live("choiros"), Target: "/computer/choiros", Mode: sandbox.ReadOnly}, modules,
		}},
		"terminal": {Kind: contract.BoxTerminal, Mounts: []sandbox.Mount{
			{Source: sandbox.Live(""), Target: "/computer", Mode: sandbox.ReadWrite}, git, modules,
		}},
		"task": {Kind: contract.BoxTask, Mounts: []sandbox.Mount{
			{Target: "/computer", Mode: sandbox.Overlay, Lower: []sandbox.Volume{sandbox.Snapshot("c1")}, Upper: sandbox.Written("t1")},
			git,
			{Target: "/computer/app/node_modules", Mode: sandbox.Overlay, Lower: []sandbox.Volume{sandbox.Live("app/node_modules")},
				Upper: sandbox.Written("t1").At("ignored/h"), Optional: true},
			modules,
		}},
		"verify": {Kind: contract.BoxVerify, Mounts: []sandbox.Mount{
			{Target: "/computer", Mode: sandbox.Overlay, Lower: []sandbox.Volume{sandbox.Snapshot("c1")}}, git,
			{Target: "/computer/app/node_modules", Mode: sandbox.Overlay, Lower: []sandbox.Volume{sandbox.Written("t1").At("ignored/h"), sandbox.Live("app/node_modules")}, Optional: true},
			modules,
		}},
		"build": {Kind: contract.BoxVerify, Mounts: []sandbox.Mount{
			{Target: "/computer", Mode: sandbox.Overlay, Lower: []sandbox.Volume{sandbox.Snapshot("c1")}}, modules,
			{Source: sandbox.Output("build").At("dist"), Target: "/out", Mode: sandbox.ReadWrite},
		}},
		"scratch": {Kind: contract.BoxScratch, Mounts: []sandbox.Mount{
			{Target: "/clone", Mode: sandbox.Overlay, Lower: []sandbox.Volume{sandbox.Snapshot("c1").At("app")}},
		}},
	}
}

// sources returns the paths from which a box's mounts are made. The one of the shell's dependencies
// is outside the computer, and was made by a box.
func (s *swapped) sources(spec sandbox.BoxSpec) []string {
	var out []string
	mounts, err := s.c.(*computer).volumes.mounts(spec.Mounts)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, m := range mounts {
		for _, p := range append([]string{m.Source, m.Upper, m.Work}, m.Lower...) {
			if p != "" {
				out = append(out, p)
			}
		}
	}
	return out
}

// try opens the box and checks that it neither saw nor wrote what it must not. That the box does
// not open is also right.
func (s *swapped) try(what string, spec sandbox.BoxSpec) (opened bool) {
	s.t.Helper()
	spec.ID = fmt.Sprint("b", time.Now().UnixNano())
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	b, err := s.c.Box(ctx, spec)
	if err == nil {
		var look []string
		for _, m := range spec.Mounts {
			look = append(look, m.Target)
		}
		script := "cd /; for d in " + strings.Join(look, " ") + "; do grep -rs " + secret + " $d; echo made 2>/dev/null > $d/made-by-a-box; done; true"
		r := sandboxtest.Run(s.t, guest.NewClient(b.Tether().Transport()), "sh", "-c", script)
		if strings.Contains(r.Out, secret) {
			s.t.Errorf("%s: the box sees the keys: %s", what, r.Out)
		}
		if err := b.Kill(); err != nil {
			s.t.Error(err)
		}
	}
	if left, err := os.ReadDir(s.keys); err != nil || len(left) != 1 {
		s.t.Errorf("%s: something was made among the keys: %v, %v", what, left, err)
		for _, e := range left {
			if e.Name() != "master" {
				_ = os.RemoveAll(filepath.Join(s.keys, e.Name()))
			}
		}
	}
	return err == nil
}

// link puts a link to the keys in the place of p, and returns a function that puts p back.
func (s *swapped) link(p, target string) (back func()) {
	s.t.Helper()
	aside := p + ".aside"
	err := os.Rename(p, aside)
	if errors.Is(err, os.ErrNotExist) {
		aside = ""
		err = os.MkdirAll(filepath.Dir(p), 0o755)
	}
	if err = errors.Join(err, os.Symlink(target, p)); err != nil {
		s.t.Error(err)
	}
	return func() {
		err := os.Remove(p)
		if aside != "" {
			err = errors.Join(err, os.Rename(aside, p))
		}
		if err != nil {
			s.t.Error(err)
		}
	}
}

// TestSourcesSwappedForLinks replaces each source, layer and upper of each kind of box by a link to
// the keys, before or after it is opened.
func TestSourcesSwappedForLinks(t *testing.T) {
	sandboxtest.AsUser(t, func(t *testing.T) {
		s := newSwapped(t)
		for kind, spec := range s.specs() {
			if !s.try(kind, spec) {
				t.Errorf("%s: the box does not open when nothing is wrong", kind)
			}
			for _, p := range s.sources(spec) {
				what := kind + ", " + strings.TrimPrefix(p, s.path("")+"/")
				back := s.link(p, s.keys)
				s.try(what+", before", spec)
				back()
				s.d.opened = func() { back = s.link(p, s.keys) }
				s.try(what+", after", spec)
				s.d.opened = nil
				back()
			}
		}
	})
}

// TestSourcesSwappedAllTheTime does the same continuously, as a program in a box would, to find
// races.
func TestSourcesSwappedAllTheTime(t *testing.T) {
	s := newSwapped(t)
	specs := s.specs()
	for kind, p := range map[string]string{
		"desktop": "workspace/choiros", "terminal": "workspace/.git", "task": "workspace/app/node_modules",
		"verify": "boxes/t1/ignored/h/upper", "build": "boxes/.out-build/dist", "keeper": "snapshots",
	} {
		p = s.path(p)
		if err := os.Symlink(s.keys, p+".link"); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		var flipping sync.WaitGroup
		flipping.Go(func() {
			for n := 0; ; n++ {
				if err := unix.Renameat2(unix.AT_FDCWD, p, unix.AT_FDCWD, p+".link", unix.RENAME_EXCHANGE); err != nil {
					t.Error(err)
					return
				}
				select {
				case <-done:
					if n%2 == 1 {
						return
					}
				default:
				}
			}
		})
		for range 8 {
			s.try(kind+", flipping", specs[kind])
		}
		close(done)
		flipping.Wait()
	}
}

// TestLayersExchanged shows that what is mounted is what was opened, even if something else has its
// name by then.
func TestLayersExchanged(t *testing.T) {
	s := newSwapped(t)
	lower, other := s.path("snapshots/c1/app"), s.path("snapshots/c2")
	s.make("snapshots/c2/other", "x")
	swap := func() {
		if err := unix.Renameat2(unix.AT_FDCWD, lower, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE); err != nil {
			t.Error(err)
		}
	}
	s.d.opened = swap
	if s.try("exchanged", s.specs()["scratch"]) {
		t.Error("the box was opened on another layer than the one that was looked at")
	}
}

// TestTargetsThatAreLinks shows that a link in a tree, where something is to be mounted, does not
// lead to anything being made or covered on the host.
func TestTargetsThatAreLinks(t *testing.T) {
	sandboxtest.AsUser(t, func(t *testing.T) {
		s := newSwapped(t)
		place := filepath.Join(s.dir, "place")
		if err := os.Mkdir(place, 0o755); err != nil {
			t.Fatal(err)
		}
		specs := s.specs()
		for kind, tree := range map[string]string{"desktop": "workspace", "terminal": "workspace", "task": "snapshots/c1", "verify": "snapshots/c1", "build": "snapshots/c1"} {
			for _, at := range []string{"choiros", "app", "choiros/node_modules", "app/node_modules", ".git"} {
				for _, to := range []string{place, "/oldroot" + place, "/newroot/run/choir", "../../../../place"} {
					what := fmt.Sprintf("%s, %s/%s → %s", kind, tree, at, to)
					back := s.link(s.path(filepath.Join(tree, at)), to)
					s.try(what, specs[kind])
					back()
					if left, err := os.ReadDir(place); err != nil || len(left) > 0 {
						t.Fatalf("%s: made on the host: %v, %v", what, left, err)
					}
				}
			}
		}
	})
}

// TestNothingCoversTheGuest shows that nothing can be mounted over the guest, not even by another
// name of its path.
func TestNothingCoversTheGuest(t *testing.T) {
	s := newSwapped(t)
	s.make("snapshots/run/choir", "#!/bin/sh\necho instead of the guest >&2\n")
	if err := os.Chmod(s.path("snapshots/run/choir"), 0o755); err != nil {
		t.Fatal(err)
	}
	b, err := s.c.Box(t.Context(), sandbox.BoxSpec{ID: "covered", Kind: contract.BoxTask, Mounts: []sandbox.Mount{
		{Source: sandbox.Snapshot("run"), Target: "/var/run/choir", Mode: sandbox.ReadOnly},
	}})
	if err == nil {
		err = b.Kill()
	}
	if err != nil && strings.Contains(err.Error(), "instead of the guest") {
		t.Errorf("the guest's program was covered by a box's mount: %v", err)
	}
}

// TestNoDescriptorOfTheHost shows that a box has no descriptor of a directory on the host, which
// would be a way out of it. The one directory that a guest may hold is its box's own /proc.
func TestNoDescriptorOfTheHost(t *testing.T) {
	s := newSwapped(t)
	for kind, spec := range s.specs() {
		spec.ID = "fds-" + kind
		b, err := s.c.Box(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		dir := fmt.Sprintf("/proc/%d/fd", b.(*box).pid)
		fds, err := os.ReadDir(dir)
		if err != nil || len(fds) < 4 {
			t.Fatalf("%v, %v", fds, err)
		}
		own, err := os.Stat(fmt.Sprintf("/proc/%d/root/proc", b.(*box).pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, fd := range fds {
			if info, err := os.Stat(filepath.Join(dir, fd.Name())); err == nil && info.IsDir() && !os.SameFile(info, own) {
				to, _ := os.Readlink(filepath.Join(dir, fd.Name()))
				t.Errorf("%s: the guest holds %s, the directory %s", kind, fd.Name(), to)
			}
		}
		if err := b.Kill(); err != nil {
			t.Error(err)
		}
	}
}
