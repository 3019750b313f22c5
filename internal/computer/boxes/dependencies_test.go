package boxes

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/config"
	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/egress"
	"choir.dev/choiros/internal/lockfile"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/local"
	"choir.dev/choiros/internal/supervise"
)

// machineDependencies returns the dependencies of several computers of one machine, which have
// volumes and no boxes, and which share the machine's trees.
func machineDependencies(t *testing.T, cids ...contract.CID) []*dependencies {
	t.Helper()
	dir, err := datadir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	proxy, err := egress.NewProxy(egress.Options{Logger: slog.New(slog.DiscardHandler), Decide: func(context.Context, egress.Scope, bool, contract.EgressDecided) error {
		return errors.New("nothing is asked")
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	machine := &Machine{Storage: config.Default().Storage, Proxy: proxy, Policy: &egress.Sources{Logger: slog.New(slog.DiscardHandler)}}
	var out []*dependencies
	for _, cid := range cids {
		path := dir.Computer(cid)
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		v, err := local.OpenVolumes(local.VolumesOptions{
			Dir: path, Shared: filepath.Join(dir.Path(), "cache"), Caches: []string{DependenciesDir}, OnError: func(err error) { t.Error(err) },
		})
		if err != nil {
			t.Fatal(err)
		}
		services := supervise.New(t.Context(), supervise.Options{Name: "computer"})
		awake, sleep := context.WithCancel(t.Context())
		t.Cleanup(func() {
			sleep()
			services.Close()
			if err := v.Close(); err != nil {
				t.Error(err)
			}
		})
		d := New(Options{CID: cid, Machine: machine, On: onlyVolumes{v: v, dir: path, sleep: sleep}, Awake: awake, Once: services.Task, Logger: slog.New(slog.DiscardHandler)}).installed
		out = append(out, d)
	}
	return out
}

// onlyVolumes is a driver's computer that has volumes and no boxes.
type onlyVolumes struct {
	sandbox.Computer
	v     *local.Volumes
	dir   string
	sleep func()
}

func (o onlyVolumes) Volumes() sandbox.Volumes { return o.v }

// at returns the path of a volume.
func (o onlyVolumes) at(t testing.TB, v sandbox.Volume) string {
	t.Helper()
	p, err := o.v.Path(v)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// dir returns the directory of the tree with a key, and without a key the directory of all trees.
func (d *dependencies) dir(t testing.TB, of *trees, names ...string) string {
	t.Helper()
	on := d.boxes.options.On.(onlyVolumes)
	return filepath.Join(append([]string{filepath.Dir(on.at(t, of.tree("x")))}, names...)...)
}

// filled returns a filler that makes a tree of these files, and of links given by their targets.
func (d *dependencies) filled(files, links map[string]string, mounts ...installedMount) filler {
	return func(ctx context.Context, tmp sandbox.Volume) (installed, error) {
		if err := d.volumes().Make(ctx, tmp); err != nil {
			return installed{}, err
		}
		at, err := d.boxes.options.On.(onlyVolumes).v.Path(tmp)
		if err != nil {
			return installed{}, err
		}
		for name, text := range files {
			err = errors.Join(err, os.MkdirAll(filepath.Dir(filepath.Join(at, name)), 0o755), os.WriteFile(filepath.Join(at, name), []byte(text), 0o644))
		}
		for name, to := range links {
			err = errors.Join(err, os.MkdirAll(filepath.Dir(filepath.Join(at, name)), 0o755), os.Symlink(to, filepath.Join(at, name)))
		}
		return installed{Packages: 1, Mounts: mounts}, err
	}
}

// has makes sure that the tree with a key exists, and releases it.
func (d *dependencies) has(t *testing.T, of *trees, key string, make filler) {
	t.Helper()
	if _, _, err := of.made(t.Context(), d.boxes, d.turn, key, make); err != nil {
		t.Fatal(err)
	}
	of.release(key)
}

// keys returns the names of all trees, including incomplete ones.
func (d *dependencies) keys(t *testing.T, of *trees) []string {
	t.Helper()
	list, err := d.volumes().List(t.Context(), of.in)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var out []string
	for _, e := range list {
		out = append(out, e.Name)
	}
	slices.Sort(out)
	return out
}

var goTree = installedMount{Source: "out", Target: "/dependencies/go"}

// TestAttack40_AChecksBoxWritesOverACopy: in a check's box, installed dependencies, both the
// computer's own and the shared ones, are in the place of the user's, below a throwaway layer.
func TestAttack40_AChecksBoxWritesOverACopy(t *testing.T) {
	d := machineDependencies(t, "cid-one")[0]
	all := d.boxes.options.Machine.sharedTrees()
	h := &held{env: map[string]string{}}
	npm := installedMount{Source: "src/p/node_modules", Target: "/computer/p/node_modules"}
	over := installedMount{Source: "upper/p/node_modules", Target: npm.Target}
	h.add(lockfile.NPM, []part{{d.own, "npm-over-1", installed{Mounts: []installedMount{over}}}, {all, "npm-1", installed{Mounts: []installedMount{npm}}}})
	h.add(lockfile.Go, []part{{all, "go-1", installed{Mounts: []installedMount{goTree}}}})
	h.add(lockfile.Go, []part{{d.own, "go-2", installed{Mounts: []installedMount{goTree}}}})
	users := sandbox.Mount{Target: npm.Target, Mode: sandbox.Overlay, Lower: []sandbox.Volume{sandbox.Live("p/node_modules")}}
	mounts, env := WithDependencies([]sandbox.Mount{users}, []ports.Dependencies{h})
	for _, m := range mounts {
		if m.Mode != sandbox.Overlay || !m.Upper.IsZero() || !m.Source.IsZero() {
			t.Errorf("a check writes into what was installed: %+v", m)
		}
	}
	if len(mounts) != 2 || mounts[0].Target != npm.Target || env["GOMODCACHE"] != mounts[1].Target || env["GOPROXY"] != "off" {
		t.Fatalf("%+v, %v", mounts, env)
	}
	want := [][]sandbox.Volume{{d.own.tree("npm-over-1").At(over.Source), all.tree("npm-1").At(npm.Source)}, {all.tree("go-1").At("out"), d.own.tree("go-2").At("out")}}
	for i, m := range mounts {
		if !slices.Equal(m.Lower, want[i]) {
			t.Errorf("%s shows %v; want %v", m.Target, m.Lower, want[i])
		}
	}
}

// TestWhatWasInstalledIsBounded shows that the trees that were not used for longest are removed
// first, that a tree in use stays, and that incomplete trees are swept and not used.
func TestWhatWasInstalledIsBounded(t *testing.T) {
	d := machineDependencies(t, "cid-one")[0]
	for _, of := range []*trees{d.own, d.boxes.options.Machine.sharedTrees()} {
		make := d.filled(map[string]string{"out/file": strings.Repeat("x", 100<<10)}, nil, goTree)
		now := time.Now()
		for i, key := range []string{"go-oldest", "go-old", "go-new"} {
			d.has(t, of, key, make)
			used := now.Add(time.Duration(i-10) * time.Second)
			if err := os.Chtimes(d.dir(t, of, key), used, used); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := of.hold(t.Context(), d.volumes(), "go-oldest"); err != nil {
			t.Fatal(err)
		}
		used := now.Add(-time.Hour)
		if err := os.Chtimes(d.dir(t, of, "go-oldest"), used, used); err != nil {
			t.Fatal(err)
		}
		of.most = 250 << 10
		if err := of.bound(t.Context(), d.volumes()); err != nil || !slices.Equal(d.keys(t, of), []string{"go-new", "go-oldest"}) {
			t.Errorf("%v: %v", d.keys(t, of), err)
		}
		of.release("go-oldest")
		of.most = 0
		if err := of.bound(t.Context(), d.volumes()); err != nil || len(d.keys(t, of)) != 0 {
			t.Errorf("%v: %v", d.keys(t, of), err)
		}
	}
}

// TestWhatADeathLeftIsNotUsed shows that a tree that a killed process left incomplete is removed
// before the first request for a tree, and that its key can be used again.
func TestWhatADeathLeftIsNotUsed(t *testing.T) {
	d := machineDependencies(t, "cid-one")[0]
	for _, of := range []*trees{d.own, d.boxes.options.Machine.sharedTrees()} {
		if err := os.MkdirAll(d.dir(t, of, filling+"go-x-1", "out"), 0o755); err != nil {
			t.Fatal(err)
		}
		d.has(t, of, "go-x", d.filled(map[string]string{"out/file": "x"}, nil, goTree))
		if got := d.keys(t, of); !slices.Equal(got, []string{"go-x"}) {
			t.Errorf("there are %v", got)
		}
	}
}
