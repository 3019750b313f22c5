package chaos_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"choir.dev/choiros/internal/workspace/keeper/engine"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// fileSystems are the kinds on which power cuts among acts are tried, with the programs that make
// them. Their journals differ: ext4 and XFS keep the order of all changes of names, btrfs writes
// those of a file that is synced ahead of the others.
var fileSystems = map[string][]string{
	"ext4":  {"mkfs.ext4", "-q", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"},
	"xfs":   {"mkfs.xfs", "-q", "-K"},
	"btrfs": {"mkfs.btrfs", "-q", "-K"},
}

// TestPowerCutsAmongActsOnEachFileSystem has a keeper put, remove and move files on a recorded disk,
// while a log beside them is synced after some, and programs sync files and folders of the tree, so
// that changes of names come to the disk that a file system may take out of their order. At each cut
// everything that was acknowledged must be done, and of the act under way all or nothing.
func TestPowerCutsAmongActsOnEachFileSystem(t *testing.T) {
	if !mountable(t) {
		return
	}
	acts, cuts := 24, 10
	if long > 0 {
		acts, cuts = 120, 120
	}
	for name, mkfs := range fileSystems {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(mkfs[0]); err != nil {
				t.Skipf("power cuts were not tried on %s: %v", name, err)
			}
			a := newActs(t, random("acts on "+name), mkfs)
			for range acts {
				a.step()
			}
			a.cuts(cuts)
		})
	}
}

// acting is a keeper on a recorded disk, and what it acknowledged.
type acting struct {
	t      *testing.T
	disk   *disk
	dice   *rand.Rand
	keeper *engine.Engine
	did    []string
	told   []told
}

// told is the tree at the instant at which an act was acknowledged.
type told struct {
	at   int
	tree map[string]string
}

func newActs(t *testing.T, dice *rand.Rand, mkfs []string) *acting {
	t.Helper()
	a := &acting{t: t, disk: newDiskOf(t, 400<<20, mkfs...), dice: dice}
	live := filepath.Join(a.disk.path(), "live")
	a.must(errors.Join(os.Mkdir(live, 0o755), os.WriteFile(filepath.Join(live, "a"), []byte("first"), 0o644)))
	var err error
	a.keeper, err = engine.Open(t.Context(), engine.Options{Root: live, Snapshots: filepath.Join(a.disk.path(), "snapshots"), Uppers: filepath.Join(a.disk.path(), "uppers")})
	a.must(err)
	_, err = a.keeper.Checkpoint(t.Context(), wire.CheckpointRequest{})
	a.must(err)
	a.told = []told{{a.disk.now(), map[string]string{"a": "first"}}}
	return a
}

func (a *acting) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

// step has the keeper do something, unless it refuses it, and others sync what they like.
func (a *acting) step() {
	a.t.Helper()
	ctx := a.t.Context()
	pick := func() string { return putPaths[a.dice.IntN(len(putPaths))] }
	do := act{path: pick()}
	var err error
	switch a.dice.IntN(7) {
	case 0, 1, 2:
		do.op, do.text = "put", fmt.Sprintf("<put %d>", len(a.did))
		_, err = a.keeper.Write(ctx, wire.WriteRequest{Path: wire.Path(do.path)}, strings.NewReader(do.text))
	case 3:
		do.op = "remove"
		_, err = a.keeper.Remove(ctx, wire.RemoveRequest{Path: wire.Path(do.path)})
	case 4, 5:
		do.op, do.from = "move", pick()
		_, err = a.keeper.Move(ctx, wire.MoveRequest{From: wire.Path(do.from), To: wire.Path(do.path)})
	case 6:
		a.must(a.keeper.Settle(ctx))
		return
	}
	if err == nil {
		tree := maps.Clone(a.told[len(a.told)-1].tree)
		do.again(tree)
		a.did = append(a.did, strings.Join([]string{do.op, do.from, do.path}, " "))
		a.told = append(a.told, told{a.disk.now(), tree})
	}
	switch a.dice.IntN(4) {
	case 0:
		a.sync("log")
	case 1:
		a.sync("live/" + pick())
	case 2:
		a.sync("live")
	}
}

// sync has a program sync a file or folder, if it is there; the log has a line more.
func (a *acting) sync(p string) {
	a.t.Helper()
	flag := os.O_RDONLY
	if p == "log" {
		flag = os.O_WRONLY | os.O_CREATE | os.O_APPEND
	}
	f, err := os.OpenFile(filepath.Join(a.disk.path(), p), flag, 0o600)
	if err != nil {
		return
	}
	if p == "log" {
		_, err = fmt.Fprintln(f, "a line")
	}
	a.must(errors.Join(err, f.Sync(), f.Close()))
}

// cuts looks at the disk that cuts of the power leave, half of them right after something was
// acknowledged.
func (a *acting) cuts(n int) {
	a.t.Helper()
	first, last := a.told[0].at, a.disk.now()
	a.must(a.keeper.Close())
	a.disk.unmount() // two file systems with one id are not mounted side by side
	for i := range n {
		at := first + a.dice.IntN(last-first+1)
		if i%2 == 0 {
			at = a.told[a.dice.IntN(len(a.told))].at
		}
		a.cut(at)
	}
}

func (a *acting) cut(at int) {
	a.t.Helper()
	image := filepath.Join(a.disk.dir, "cut.img")
	after := &puts{t: a.t, mount: a.disk.path()}
	for try := 0; after.unmount == nil; try++ {
		a.disk.failure(a.t, at, 0, a.dice, image)
		var err error
		if after.unmount, err = tryMount(a.t, image, after.mount); err != nil && try == 5 { // a superblock of several sectors may be torn
			a.t.Fatal(err)
		}
	}
	k := 0
	for k+1 < len(a.told) && a.told[k+1].at <= at {
		k++
	}
	before := after.picture()
	a.must(os.WriteFile(after.at(".git/choir/open"), []byte("another boot"), 0o644))
	after.open()
	defer after.stop()
	h, err := after.keeper.Heal(a.t.Context())
	a.must(err)
	got := after.picture()
	if !sameFiles(got, a.told[k].tree) && (k+1 == len(a.told) || !sameFiles(got, a.told[k+1].tree)) {
		a.t.Errorf("cut at %d, after %d of %q: the tree is\n%q; want\n%q. The disk had\n%q; healed: %+v", at, k, a.did, got, a.told[k].tree, before, h)
	}
}

// sameFiles compares two trees without their folders: one may be there of a put that is under way.
func sameFiles(a, b map[string]string) bool {
	return maps.Equal(filesOf(a), filesOf(b))
}

func filesOf(tree map[string]string) map[string]string {
	out := maps.Clone(tree)
	maps.DeleteFunc(out, func(_, text string) bool { return text == "/" })
	return out
}
