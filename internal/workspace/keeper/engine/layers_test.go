package engine_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/sandbox/sandboxtest"
	"choir.dev/choiros/internal/workspace/keeper/engine"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

func (c *computer) layerDirs(layers []string) []string {
	var out []string
	for _, l := range layers {
		out = append(out, filepath.Join(c.opts.Snapshots, l))
	}
	return out
}

// inLayers returns where a path is in layers, of which the topmost counts.
func (c *computer) inLayers(layers []string, p string) string {
	dirs := c.layerDirs(layers)
	for _, dir := range dirs {
		if _, err := os.Lstat(filepath.Join(dir, p)); err == nil {
			return filepath.Join(dir, p)
		}
	}
	return filepath.Join(dirs[0], p)
}

// printPicture runs in a child with a mount namespace of its own, and prints the tree there.
func printPicture(root string) error {
	got, err := pictureOf(root)
	if err != nil {
		return err
	}
	// Whoever reads the layers sees plain modes, whatever modes the live files have.
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err == nil && d.Type()&fs.ModeSymlink == 0 && st.Mode().Perm() != 0o755 && (st.Mode().Perm() != 0o644 || d.IsDir()) {
			err = fmt.Errorf("%s has mode %s", p, st.Mode())
		}
		return err
	})
	if err != nil {
		return err
	}
	raw := map[string][]byte{} // names need not be UTF-8
	for p, what := range got {
		raw[fmt.Sprintf("%x", p)] = []byte(what)
	}
	return json.NewEncoder(os.Stdout).Encode(raw)
}

// merged returns what the kernel shows of layers in a user namespace, as in a box.
func (c *computer) merged(layers []string) map[string]string {
	c.t.Helper()
	mnt := c.t.(*testing.T).TempDir()
	mount := "mount -t overlay overlay -o userxattr,lowerdir=" + strings.Join(c.layerDirs(layers), ":") + " " + mnt
	if len(layers) == 1 {
		mount = "mount --bind " + c.layerDirs(layers)[0] + " " + mnt
	}
	cmd := exec.CommandContext(c.t.Context(), "unshare", "-Urm", "sh", "-c", mount+" && exec "+os.Args[0])
	cmd.Env = append(os.Environ(), "KEEPER_PICTURE="+mnt)
	out, err := cmd.Output()
	if err != nil {
		c.t.Fatalf("an overlay in a user namespace needs unshare (util-linux) and Linux 5.11: %v\n%s", err, stderrOf(err))
	}
	var raw map[string][]byte
	if err := json.Unmarshal(out, &raw); err != nil {
		c.t.Fatal(err)
	}
	got := map[string]string{}
	for p, what := range raw {
		var name []byte
		if _, err := fmt.Sscanf(p, "%x", &name); err != nil {
			c.t.Fatal(err)
		}
		got[string(name)] = string(what)
	}
	return got
}

func stderrOf(err error) []byte {
	if exit, ok := err.(*exec.ExitError); ok {
		return exit.Stderr
	}
	return nil
}

// isCheckout fails the test unless the layers show what was seen in the live tree.
func (c *computer) isCheckout(layers []string, want map[string]string) {
	c.t.Helper()
	if got := c.merged(layers); !maps.Equal(got, want) {
		for p, w := range want {
			if got[p] != w {
				c.t.Errorf("%q is %.40q; want %.40q", p, got[p], w)
			}
		}
		for p, g := range got {
			if _, ok := want[p]; !ok {
				c.t.Errorf("%q is there: %.40q", p, g)
			}
		}
		c.t.Fatalf("%d layers are not the checkout", len(layers))
	}
}

// randomStep changes the live tree, so that files, modes, links and folders replace each other.
func randomStep(t *testing.T, rng *rand.Rand, root string) {
	names := []string{"a", "b", "c", ".git", ".gitattributes", "x.choir", ".empty.choir", "y.chunks.choir", "\xff"}
	p := "workspace"
	for range 1 + rng.IntN(4) {
		name := names[rng.IntN(len(names))]
		if name == ".git" && rng.IntN(4) > 0 {
			name = "d"
		}
		p = path.Join(p, name)
	}
	at := filepath.Join(root, p)
	// Whatever is in the way is removed.
	for dir := filepath.Dir(at); dir != root; dir = filepath.Dir(dir) {
		if st, err := os.Lstat(dir); err == nil && !st.IsDir() {
			must(t, os.RemoveAll(dir))
		}
	}
	what := rng.IntN(10)
	if what == 0 {
		must(t, os.RemoveAll(at))
		return
	}
	must(t, os.MkdirAll(filepath.Dir(at), 0o755))
	switch what {
	case 1, 2, 3, 4:
		must(t, os.RemoveAll(at))
		must(t, os.WriteFile(at, []byte(strings.Repeat(fmt.Sprintln(rng.Uint64()), 1+rng.IntN(300))), []fs.FileMode{0o600, 0o644, 0o755, 0o711}[rng.IntN(4)]))
	case 5:
		must(t, os.RemoveAll(at))
		must(t, os.Symlink([]string{"a", "..", "/etc/passwd", "nowhere"}[rng.IntN(4)], at))
	case 6:
		must(t, os.RemoveAll(at))
		must(t, os.Mkdir(at, 0o750))
	case 7:
		if st, err := os.Lstat(at); err == nil && st.Mode().IsRegular() {
			must(t, os.Chmod(at, st.Mode()^0o111))
		}
	default:
		entries, err := os.ReadDir(filepath.Join(root, "workspace"))
		must(t, err)
		if len(entries) > 0 {
			from := filepath.Join(root, "workspace", entries[rng.IntN(len(entries))].Name())
			if at != from && !strings.HasPrefix(at, from+"/") {
				must(t, os.RemoveAll(at))
				must(t, os.Rename(from, at))
			}
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestLayersAreTheCheckout shows over random histories that the kernel shows of a snapshot's layers
// what was checkpointed, as root and as an ordinary user, and goes on showing it for as long as
// they are held.
func TestLayersAreTheCheckout(t *testing.T) {
	sandboxtest.AsUser(t, func(t *testing.T) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 0))
		c := open(t, func(o *engine.Options) { o.Limits.FileBytes = 3000 })
		for i := range 60 {
			c.write(fmt.Sprintf("workspace/still/%d/%d", i%7, i), fmt.Sprint(i))
		}
		type held struct {
			layers []string
			want   map[string]string
		}
		var kept []held
		lengths := map[int]int{}
		for n := range 30 {
			for range 1 + rng.IntN(4) {
				randomStep(t, rng, c.opts.Root)
			}
			r := c.checkpoint(fmt.Sprint(n))
			want := picture(t, c.opts.Root)
			s, err := c.Snapshot(t.Context(), r.Commit.Commit)
			must(t, err)
			lengths[len(s.Layers)]++
			if len(s.Layers) > wire.MaxLayers {
				t.Fatalf("%d layers", len(s.Layers))
			}
			c.isCheckout(s.Layers, want)
			if rng.IntN(3) == 0 {
				kept = append(kept, held{s.Layers, want})
			}
			switch rng.IntN(6) {
			case 0:
				c.reopen()
			case 1:
				must(t, c.Maintain(t.Context()))
			}
			if len(kept) > 3 {
				kept = kept[1:]
			}
			var keep []string
			for _, h := range kept {
				keep = append(keep, h.layers...)
			}
			must(t, c.ReleaseSnapshots(t.Context(), keep))
		}
		for _, h := range kept {
			c.isCheckout(h.layers, h.want)
		}
		if lengths[1] == 30 || len(lengths) < 2 {
			t.Errorf("chains were of these lengths: %v", lengths)
		}
	})
}

// TestASnapshotCostsWhatChanged shows that for a snapshot of a large tree only what is different is
// created or linked, however many snapshots there are.
func TestASnapshotCostsWhatChanged(t *testing.T) {
	c := open(t)
	for i := range 1500 {
		c.write(fmt.Sprintf("workspace/d%d/f%d", i%30, i), fmt.Sprint(i))
	}
	first, err := c.Snapshot(t.Context(), c.checkpoint("first").Commit.Commit)
	must(t, err)
	if len(first.Layers) != 1 {
		t.Fatalf("the first snapshot has %d layers", len(first.Layers))
	}
	made := 0
	seen := map[string]bool{first.Layers[0]: true}
	for i := range 40 {
		c.write(fmt.Sprintf("workspace/d%d/f%d", i%30, i), fmt.Sprint("other ", i))
		s, err := c.Snapshot(t.Context(), c.checkpoint("next").Commit.Commit)
		must(t, err)
		if s.Layers[len(s.Layers)-1] != first.Layers[0] || len(s.Layers) > wire.MaxLayers {
			t.Fatalf("snapshot %d: %d layers", i, len(s.Layers))
		}
		for _, l := range s.Layers {
			if !seen[l] {
				seen[l] = true
				made += len(picture(t, filepath.Join(c.opts.Snapshots, l)))
			}
		}
		must(t, c.ReleaseSnapshots(t.Context(), nil))
	}
	if made > 40*30 {
		t.Errorf("40 snapshots of one file each took %d files and folders", made)
	}
	var st unix.Stat_t
	must(t, unix.Lstat(filepath.Join(c.opts.Snapshots, first.Layers[0], "workspace/d0/f600"), &st))
	if st.Nlink != 1 {
		t.Errorf("what nobody changed has %d links", st.Nlink)
	}
	// When most of the tree changed, the snapshot is made whole again.
	for i := range 1500 {
		c.write(fmt.Sprintf("workspace/d%d/f%d", i%30, i), fmt.Sprint("all ", i))
	}
	s, err := c.Snapshot(t.Context(), c.checkpoint("all").Commit.Commit)
	must(t, err)
	if len(s.Layers) != 1 {
		t.Errorf("after everything changed there are %d layers", len(s.Layers))
	}
}

// TestTheSameTreeIsTheSameSnapshot shows that commits with the same tree share their layers.
func TestTheSameTreeIsTheSameSnapshot(t *testing.T) {
	c := open(t)
	c.write("workspace/a", "a\n")
	one := c.checkpoint("one")
	two, err := c.Checkpoint(t.Context(), wire.CheckpointRequest{Force: true, Note: wire.Note{Kind: "manual"}})
	must(t, err)
	a, err := c.Snapshot(t.Context(), one.Commit.Commit)
	must(t, err)
	b, err := c.Snapshot(t.Context(), two.Commit.Commit)
	must(t, err)
	if one.Commit.Commit == two.Commit.Commit || !slices.Equal(a.Layers, b.Layers) {
		t.Errorf("%v and %v of %s and %s", a.Layers, b.Layers, one.Commit.Commit, two.Commit.Commit)
	}
}

// TestALayerOfAnotherBootIsCompared shows that a layer from before the machine last started is
// checked before it is used, because nothing in a layer is synced.
func TestALayerOfAnotherBootIsCompared(t *testing.T) {
	for name, damage := range map[string]func(c *computer, layers []string) error{
		"nothing": func(*computer, []string) error { return nil },
		"a file of the whole layer": func(c *computer, l []string) error {
			return os.Truncate(filepath.Join(c.opts.Snapshots, l[1], "workspace/f7"), 0)
		},
		"a file of the upper layer": func(c *computer, l []string) error {
			return os.Remove(filepath.Join(c.opts.Snapshots, l[0], "workspace/f1"))
		},
		"a whiteout": func(c *computer, l []string) error {
			return os.Remove(filepath.Join(c.opts.Snapshots, l[0], "workspace/f2"))
		},
		"a folder": func(c *computer, l []string) error {
			return os.Remove(filepath.Join(c.opts.Snapshots, l[0], "workspace/new"))
		},
		"the whole layer": func(c *computer, l []string) error {
			return os.RemoveAll(filepath.Join(c.opts.Snapshots, l[1]))
		},
		"a mark": func(c *computer, l []string) error {
			return os.Truncate(filepath.Join(c.opts.Snapshots, "."+l[0]+".ok"), 9)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := open(t)
			for i := range 30 {
				c.write(fmt.Sprintf("workspace/f%d", i), fmt.Sprint(i))
			}
			first := c.checkpoint("first")
			_, err := c.Snapshot(t.Context(), first.Commit.Commit)
			must(t, err)
			c.write("workspace/f1", "other")
			must(t, os.Remove(c.path("workspace/f2")))
			must(t, os.Mkdir(c.path("workspace/new"), 0o755))
			second := c.checkpoint("second")
			s, err := c.Snapshot(t.Context(), second.Commit.Commit)
			must(t, err)
			if len(s.Layers) != 2 {
				t.Fatalf("layers: %v", s.Layers)
			}
			want := picture(t, c.opts.Root)
			must(t, damage(c, s.Layers))
			boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
			must(t, err)
			marks, err := filepath.Glob(filepath.Join(c.opts.Snapshots, ".*.ok"))
			must(t, err)
			for _, m := range marks {
				raw, err := os.ReadFile(m)
				must(t, err)
				must(t, os.WriteFile(m, []byte(strings.ReplaceAll(string(raw), strings.TrimSpace(string(boot)), "another")), 0o644))
			}
			c.reopen()
			s, err = c.Snapshot(t.Context(), second.Commit.Commit)
			must(t, err)
			c.isCheckout(s.Layers, want)
		})
	}
}

// TestPartsOfLayersAreSwept shows that what an engine that died left half made is removed, as are
// the checkouts of a version that had no layers.
func TestPartsOfLayersAreSwept(t *testing.T) {
	c := open(t)
	c.write("workspace/a", "a\n")
	r := c.checkpoint("a")
	for _, name := range []string{".tmp-" + r.Commit.Commit, r.Commit.Commit} {
		writeFile(t, filepath.Join(c.opts.Snapshots, name, "workspace/part"), "part")
	}
	writeFile(t, filepath.Join(c.opts.Snapshots, "."+r.Commit.Commit+".ok"), "a boot")
	s, err := c.Snapshot(t.Context(), r.Commit.Commit)
	must(t, err)
	must(t, c.ReleaseSnapshots(t.Context(), nil))
	entries, err := os.ReadDir(c.opts.Snapshots)
	must(t, err)
	if len(entries) != 2 || entries[1].Name() != s.Layers[0] {
		t.Errorf("left: %v", entries)
	}
}

func mknodWhiteout(name string) error { return unix.Mknod(name, unix.S_IFCHR, 0) }
