package boxes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/egress"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/lockfile"
	"choir.dev/choiros/internal/sandbox"
)

// npmLock is a project with one package, "dep", an optional one for every machine, "more", and one
// for another kind of machine, with a dependency.
const npmLock = `{"name":"p","lockfileVersion":3,"packages":{"":{"name":"p","dependencies":{"dep":"1"},"optionalDependencies":{"more":"1","other":"1"}},
 "node_modules/dep":{"version":"1.0.0","resolved":"https://registry.example/dep.tgz","integrity":"sha512-AA==","hasInstallScript":true},
 "node_modules/more":{"version":"1.0.0","resolved":"https://registry.example/more.tgz","integrity":"sha512-AA==","optional":true,"os":["!win32"]},
 "node_modules/other":{"version":"1.0.0","resolved":"https://registry.example/other.tgz","integrity":"sha512-AA==","optional":true,"os":["win32"],"dependencies":{"theirs":"1"}},
 "node_modules/theirs":{"version":"1.0.0","resolved":"https://registry.example/theirs.tgz","integrity":"sha512-AA==","optional":true}}}`

func npmProject(more map[string]string) map[string]string {
	files := map[string]string{"p/package-lock.json": npmLock, "p/package.json": `{"name":"p"}`}
	maps.Copy(files, more)
	return files
}

func readLock(t *testing.T, tool lockfile.Tool, files map[string]string) lockfile.Lock {
	t.Helper()
	lock, err := lockfile.Read(tool, "p", func(p string, _ int) ([]byte, error) {
		text, ok := files[p]
		if !ok {
			return nil, fault.New("", fault.NotFound, "", nil)
		}
		return []byte(text), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

// played are boxes in which a stand-in for npm runs.
type played struct {
	mu    sync.Mutex
	specs []sandbox.BoxSpec
	// leave out this package, which is optional
	without string
}

// programs installs stand-ins for the programs of boxes, which print their versions.
func withPrograms(t *testing.T, ds []*dependencies) (npm string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"npm", "node"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho 1.0.0\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	ds[0].boxes.options.Machine.Path = dir
	return filepath.Join(dir, "npm")
}

func (p *played) in(t *testing.T, d *dependencies) {
	t.Helper()
	d.boxes.install = func(_ context.Context, spec sandbox.BoxSpec, lock lockfile.Lock, argv []string) error {
		p.mu.Lock()
		p.specs = append(p.specs, spec)
		p.mu.Unlock()
		m := spec.Mounts[0]
		at, err := d.boxes.options.On.(onlyVolumes).v.Path(m.Source)
		if m.Mode == sandbox.Overlay {
			at, err = d.boxes.options.On.(onlyVolumes).v.Path(m.Upper)
		}
		if err != nil {
			return err
		}
		modules := filepath.Join(at, lock.Dir, "node_modules")
		if argv[1] == "rebuild" {
			return errors.Join(os.MkdirAll(filepath.Join(modules, "dep"), 0o755),
				os.WriteFile(filepath.Join(modules, "dep", "built"), []byte(d.boxes.options.CID), 0o644))
		}
		for _, name := range []string{"dep", "more"} {
			if name != p.without {
				err = errors.Join(err, os.MkdirAll(filepath.Join(modules, name), 0o755), os.WriteFile(filepath.Join(modules, name, "index.js"), []byte(name), 0o644))
			}
		}
		return err
	}
}

func (d *dependencies) get(t *testing.T, lock lockfile.Lock) available {
	t.Helper()
	got, err := d.have(t.Context(), lock, ports.LockRequest{})
	if err != nil {
		t.Fatal(err)
	}
	release(got.parts)
	return got
}

// TestComputersShareWhatIsFetched shows that one computer fetches for both, in a box that sees only
// the named files and writes to a place of its own, and that the packages' scripts run once for
// each computer.
func TestComputersShareWhatIsFetched(t *testing.T) {
	both := machineDependencies(t, "cid-one", "cid-two")
	withPrograms(t, both)
	var p played
	p.in(t, both[0])
	p.in(t, both[1])
	lock := readLock(t, lockfile.NPM, npmProject(nil))
	one, two := both[0].get(t, lock), both[1].get(t, lock)
	if one.key != two.key || one.kept || !two.kept || len(p.specs) != 3 || p.specs[2].Proxy {
		t.Fatalf("%s (kept %t) and %s (kept %t) in %d boxes", one.key, one.kept, two.key, two.kept, len(p.specs))
	}
	for i, h := range []available{one, two} {
		if len(h.parts) != 2 || h.parts[1].trees != both[0].boxes.options.Machine.sharedTrees() || h.parts[0].trees != both[i].own {
			t.Errorf("%+v", h.parts)
		}
		over := both[i].dir(t, both[i].own, h.parts[0].key, "upper/p/node_modules/dep/built")
		if b, err := os.ReadFile(over); err != nil || string(b) != string(both[i].boxes.options.CID) {
			t.Errorf("its scripts left %q, %v", b, err)
		}
	}
	if again := both[1].get(t, lock); len(p.specs) != 3 || !again.kept {
		t.Errorf("it was installed again, in %d boxes", len(p.specs))
	}
}

// TestAttack40_WhatEverybodyGetsIsNamedByAllThatSteersIt shows that computers share a tree only if
// everything that their installations see is equal; with the same lock file and another setting, a
// computer gets its own tree.
func TestAttack40_WhatEverybodyGetsIsNamedByAllThatSteersIt(t *testing.T) {
	d := machineDependencies(t, "cid-one")[0]
	npm := withPrograms(t, []*dependencies{d})
	keys := map[string]string{}
	differs := func(what string, lock lockfile.Lock) {
		t.Helper()
		own, err := d.boxes.recipe(t.Context(), lock)
		if err != nil {
			t.Fatal(err)
		}
		all, err := own.forAll(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := keys[all.key()]; ok {
			t.Errorf("%s gets what %s left for all", what, other)
		}
		keys[all.key()] = what
	}
	lock := readLock(t, lockfile.NPM, npmProject(nil))
	differs("the project", lock)
	differs("one with other scripts", readLock(t, lockfile.NPM, npmProject(map[string]string{"p/package.json": `{"name":"p","scripts":{"prepare":"x"}}`})))
	differs("one that leaves some out", readLock(t, lockfile.NPM, npmProject(map[string]string{"p/.npmrc": "omit=dev\n"})))
	d.boxes.options.Machine.known.settings = nil
	t.Setenv("npm_config_registry", "https://other.example/")
	differs("one with another registry", lock)
	extra, err := egress.ParseRules([]string{"more.example:443"})
	if err != nil {
		t.Fatal(err)
	}
	d.boxes.options.Machine.Policy.Extra = extra
	differs("one that reaches more", lock)
	at, err := os.Stat(npm)
	if err != nil {
		t.Fatal(err)
	}
	// Packages come like this: another version has the same size and time.
	if err := errors.Join(os.WriteFile(npm, []byte("#!/bin/sh\necho 2.0.0\n"), 0o755), os.Chtimes(npm, at.ModTime(), at.ModTime())); err != nil {
		t.Fatal(err)
	}
	clear(d.boxes.options.Machine.known.said)
	differs("one of another npm", lock)
}

// TestAttack40_NoPackagesCodeRanOverWhatAllGet shows that the box that runs packages' scripts can't
// write to the shared tree, and has no network.
func TestAttack40_NoPackagesCodeRanOverWhatAllGet(t *testing.T) {
	d := machineDependencies(t, "cid-one")[0]
	withPrograms(t, []*dependencies{d})
	var p played
	p.in(t, d)
	got := d.get(t, readLock(t, lockfile.NPM, npmProject(nil)))
	shared := got.parts[len(got.parts)-1]
	if _, err := os.Stat(d.dir(t, shared.trees, shared.key, "src/p/node_modules/dep/built")); err == nil {
		t.Error("a package's script wrote what all computers get")
	}
	if last := p.specs[len(p.specs)-1]; last.Proxy || last.Handler != nil {
		t.Error("a package's script has a network")
	}
}

// TestAttack40_WhatAConnectionWasTakenFromIsNobodyElses shows that a tree without an optional
// package that this machine should have, as after a lost connection, is used by its own computer
// only.
func TestAttack40_WhatAConnectionWasTakenFromIsNobodyElses(t *testing.T) {
	both := machineDependencies(t, "cid-one", "cid-two")
	withPrograms(t, both)
	hindered, p := played{without: "more"}, played{}
	hindered.in(t, both[0])
	p.in(t, both[1])
	lock := readLock(t, lockfile.NPM, npmProject(nil))
	if got := both[0].get(t, lock); len(got.parts) != 1 || got.parts[0].trees != both[0].own {
		t.Errorf("a tree that lacks a package is shared: %+v", got)
	}
	clear(both[0].boxes.options.Machine.sharedTrees().failed) // as a minute later
	got := both[1].get(t, lock)
	shared := got.parts[len(got.parts)-1]
	if _, err := os.Stat(both[1].dir(t, shared.trees, shared.key, "src/p/node_modules/more")); err != nil {
		t.Errorf("another computer lacks it: %v", err)
	}
	if again := both[0].get(t, lock); !again.kept || again.parts[0].trees != both[0].own {
		t.Errorf("what it has of its own is not used: %+v", again)
	}
}

// TestWhatStaysWithItsComputer shows that a tree is not shared if it was fetched from an address
// that may contain a secret, or that is outside the machine's own grant.
func TestWhatStaysWithItsComputer(t *testing.T) {
	both := machineDependencies(t, "cid-one", "cid-two")
	withPrograms(t, both)
	var p played
	p.in(t, both[0])
	secret := readLock(t, lockfile.NPM, map[string]string{"p/package.json": "{}", "p/package-lock.json": strings.ReplaceAll(npmLock, "dep.tgz", "dep.tgz?token=x")})
	if got := both[0].get(t, secret); len(got.parts) != 1 || got.parts[0].trees != both[0].own {
		t.Errorf("what a token fetched is shared: %+v", got)
	}
	plays := both[0].boxes.install
	both[0].boxes.install = func(ctx context.Context, spec sandbox.BoxSpec, lock lockfile.Lock, argv []string) error {
		if spec.Proxy && strings.Contains(path.Dir(spec.Limits.Counted[0].Name), DependenciesDir) && spec.Limits.Counted[0].Kind == sandbox.VolumeShared {
			return fault.New("", fault.Denied, "", fmt.Errorf("it may not be reached"))
		}
		return plays(ctx, spec, lock, argv)
	}
	beyond := readLock(t, lockfile.NPM, npmProject(map[string]string{"p/package.json": `{"name":"beyond"}`}))
	if got := both[0].get(t, beyond); len(got.parts) != 1 || got.parts[0].trees != both[0].own {
		t.Errorf("what was granted to one is shared: %+v", got)
	}
	if got := both[0].keys(t, both[0].boxes.options.Machine.sharedTrees()); slices.ContainsFunc(got, func(k string) bool { return true }) {
		t.Errorf("all computers have %v", got)
	}
}
