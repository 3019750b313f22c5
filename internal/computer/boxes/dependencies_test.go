package boxes

import (
	"context"
	"encoding/json"
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
	"choir.dev/choiros/internal/lockfile"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/local"
	"choir.dev/choiros/test/choirtest"
)

// kept is a computer that has installed things, and no boxes.
func keptDependencies(t *testing.T, cid contract.CID) *dependencies {
	t.Helper()
	dir, err := datadir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	path := dir.Computer(cid)
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
	v, err := local.OpenVolumes(local.VolumesOptions{
		Dir: path, Shared: filepath.Join(path, "shared"), Caches: []string{DependenciesDir}, Told: func(err error) { t.Error(err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	})
	return New(Options{
		CID: cid, Machine: &Machine{Storage: config.Default().Storage}, On: onlyVolumes{v: v, dir: path}, Logger: slog.New(slog.DiscardHandler),
	}).installed
}

// onlyVolumes is a computer of the driver that has no boxes, only what they see.
type onlyVolumes struct {
	sandbox.Computer
	v   *local.Volumes
	dir string
}

func (o onlyVolumes) Volumes() sandbox.Volumes { return o.v }

// at is where a volume lies.
func (o onlyVolumes) at(t testing.TB, v sandbox.Volume) string {
	t.Helper()
	p, err := o.v.Path(v)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// path joins names to the computer's directory.
func (d *dependencies) path(names ...string) string {
	return filepath.Join(append([]string{d.c.o.On.(onlyVolumes).dir}, names...)...)
}

// dir is where what is installed under a key lies, all of it without one.
func (d *dependencies) dir(names ...string) string {
	return d.path(append([]string{DependenciesDir}, names...)...)
}

func (d *dependencies) lay(t *testing.T, key string, bytes int64, used time.Time, mounts ...installedMount) {
	t.Helper()
	for _, m := range mounts {
		if err := os.MkdirAll(d.dir(key, m.Source), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b, err := json.Marshal(installed{Packages: 1, Bytes: bytes, Mounts: mounts})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(d.dir(key), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.dir(key, entryFile), b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(d.dir(key), used, used); err != nil {
		t.Fatal(err)
	}
}

func (d *dependencies) keys(t *testing.T) []string {
	t.Helper()
	list, err := os.ReadDir(d.dir())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range list {
		out = append(out, e.Name())
	}
	return out
}

// TestAttack40_AChecksBoxWritesOverACopy: what was installed is in every check's
// box below a throwaway layer, in the place of what the user has there, and it
// is the computer's own.
func TestAttack40_AChecksBoxWritesOverACopy(t *testing.T) {
	d := keptDependencies(t, "cid-one")
	h := &held{env: map[string]string{}}
	npm := installedMount{Source: "src/p/node_modules", Target: "/computer/p/node_modules"}
	h.add("npm-1", lockfile.NPM, installed{Mounts: []installedMount{npm}})
	h.add("go-1", lockfile.Go, installed{Mounts: []installedMount{{Source: "out", Target: inside(lockfile.Go)}}})
	h.add("go-2", lockfile.Go, installed{Mounts: []installedMount{{Source: "out", Target: inside(lockfile.Go)}}})
	users := sandbox.Mount{Target: npm.Target, Mode: sandbox.Overlay, Lower: []sandbox.Volume{sandbox.Live("p/node_modules")}}
	mounts, env := WithDependencies([]sandbox.Mount{users}, []ports.Dependencies{h})
	if len(mounts) != 2 || mounts[0].Target != npm.Target || len(mounts[1].Lower) != 2 || env["GOMODCACHE"] != mounts[1].Target || env["GOPROXY"] != "off" {
		t.Fatalf("%+v, %v", mounts, env)
	}
	for _, m := range mounts {
		if m.Mode != sandbox.Overlay || !m.Upper.IsZero() || !m.Source.IsZero() {
			t.Errorf("a check writes into what was installed: %+v", m)
		}
		for _, l := range m.Lower {
			if at := d.c.o.On.(onlyVolumes).at(t, l); !strings.HasPrefix(at, d.dir()+"/") || !strings.Contains(at, "cid-one") {
				t.Errorf("%s is not this computer's", l)
			}
		}
	}
}

// TestWhatWasInstalledIsBounded: what was not used for longest goes first, what
// is in use stays, what was begun is swept, and what is not whole is not used.
func TestWhatWasInstalledIsBounded(t *testing.T) {
	d := keptDependencies(t, "cid-one")
	now := time.Now()
	at := installedMount{Source: "out", Target: "/dependencies/go"}
	for i, key := range []string{"go-oldest", "go-old", "go-new"} {
		d.lay(t, key, 100, now.Add(time.Duration(i)*time.Second), at)
	}
	if _, err := d.hold(t.Context(), "go-oldest"); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(d.dir("go-oldest"), now, now); err != nil {
		t.Fatal(err)
	}
	if err := d.room(context.Background(), 200); err != nil || !slices.Equal(d.keys(t), []string{"go-new", "go-oldest"}) {
		t.Errorf("%v: %v", d.keys(t), err)
	}
	if _, err := d.entry(t.Context(), "go-new"); err != nil {
		t.Error(err)
	}
	outside := t.TempDir()
	if err := os.Remove(d.dir("go-new", "out")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, d.dir("go-new", "out")); err != nil {
		t.Fatal(err)
	}
	if _, err := d.entry(t.Context(), "go-new"); err == nil {
		t.Error("a link is taken for what was installed")
	}
	if err := os.MkdirAll(filepath.Join(d.dir(filling+"go-x"), "src"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := d.sweep(t.Context()); err != nil || !slices.Equal(d.keys(t), []string{"go-new", "go-oldest"}) {
		t.Errorf("%v: %v", d.keys(t), err)
	}
	choirtest.Eventually(t, 10*time.Second, "what went is removed", func() bool {
		list, err := os.ReadDir(d.path("removing", "boxes"))
		return err == nil && len(list) == 0
	})
}
