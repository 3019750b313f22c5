package chaos_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// forkPoints are passed while a computer is forked. From decided on the new computer is there after
// the next start, whether or not anybody was told.
var forkPoints = []struct {
	point   string
	nth     int
	decided bool
}{
	{"fork.checkpointed", 1, false}, {"fork.unpacked", 1, false}, {"fork.written", 1, false}, {"fork.laid", 1, false},
	{"fork.named", 1, true}, {"fork.document", 1, true}, {"fork.documented", 1, true},
	// The first events of the new log, and its first checkpoint; the source may pass these before.
	{"ledger.sent", 1, false}, {"ledger.acknowledged", 1, false}, {"ledger.sent", 2, false}, {"ledger.acknowledged", 2, false},
	{"keeper.commit.written", 1, false}, {"keeper.commit.done", 1, false},
}

// forked is a computer with files and a document, of which forks are made.
type forked struct {
	*world
	checkpoint string
	files      map[string]string
}

func newForked(t *testing.T, data string) *forked {
	t.Helper()
	f := &forked{world: &world{t: t, data: data, crash: t.TempDir(), plans: t.TempDir()}}
	f.in = choirtest.Start(t, f.options())
	f.cid = f.in.Standing(t).ID
	f.in.Must(t, "prompt", "--wait", `write "buy milk" to workspace/list.txt`)
	f.in.Must(t, "exec", "--", "sh", "-c", "mkdir -p workspace/deep/er; for i in $(seq 300); do echo $i > workspace/deep/er/$i; done; printf x > workspace/deep/run; chmod +x workspace/deep/run; : > workspace/empty")
	var runs []view.Run
	f.in.JSON(t, &runs, "runs")
	var document view.Document
	choirtest.Eventually(t, time.Minute, "the run's document has its file", func() bool {
		f.in.JSON(t, &document, "documents", "show", runs[0].Document)
		_, err := os.Stat(f.tree(f.cid, document.Path))
		return err == nil
	})
	var k view.Checkpointed
	f.in.JSON(t, &k, "checkpoint", "-m", "to fork")
	f.checkpoint = k.ID
	f.files = f.held(f.cid)
	f.in.Must(t, "exec", "--", "sh", "-c", "echo later > workspace/list.txt")
	return f
}

// tree is a path in a computer's live files.
func (f *forked) tree(cid contract.CID, p string) string {
	return filepath.Join(f.data, "computers", string(cid), "workspace", filepath.FromSlash(p))
}

// held is what a computer's files hold; nil if it has none.
func (f *forked) held(cid contract.CID) map[string]string {
	f.t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(f.tree(cid, "workspace"), func(p string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		b, err := os.ReadFile(p)
		out[strings.TrimPrefix(p, f.tree(cid, "")+"/")] = fmt.Sprint(info.Mode().Perm()&0o100, string(b))
		return err
	})
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return out
}

// of asks a computer for something.
func (f *forked) of(cid contract.CID, ask func(ctx context.Context, c *client.Client) error) error {
	c, err := client.New(f.in.URL, f.in.Token, string(cid))
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := f.soon()
	defer cancel()
	return ask(ctx, c)
}

// fork asks for a fork with an id.
func (f *forked) fork(cid contract.CID) error {
	return f.of(f.cid, func(ctx context.Context, c *client.Client) error {
		_, err := c.Fork(ctx, cid, "Fork", f.checkpoint)
		return err
	})
}

// look starts choir where it died within a fork. Either nothing of the fork is left, or all of it is
// there; and asking for it again makes it, or returns it as it is.
func (f *forked) look(when string, cid contract.CID, decided bool) {
	t := f.t
	t.Helper()
	in, err := choirtest.TryStart(t, f.options())
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	f.in = in
	if left, err := filepath.Glob(filepath.Join(f.data, "computers", ".fork-*")); err != nil || len(left) > 0 {
		t.Errorf("%s: left: %v, %v", when, left, err)
	}
	var list []view.Computer
	there := false
	in.JSON(t, &list, "computers")
	for _, c := range list {
		there = there || c.ID == cid
	}
	if _, err := os.Lstat(filepath.Dir(f.tree(cid, ""))); there != (err == nil) || decided && !there {
		t.Errorf("%s: listed: %v; its directory: %v", when, there, err)
	}
	if there {
		f.whole(when, cid)
	}
	if err := f.fork(cid); err != nil {
		t.Fatalf("%s: asked again: %v\n%s", when, err, in.Logs())
	}
	f.whole(when+", asked again", cid)
	if got, err := os.ReadFile(f.tree(f.cid, "workspace/list.txt")); string(got) != "later\n" {
		t.Errorf("%s: the source holds %q, %v", when, got, err)
	}
}

// whole compares a fork with the checkpoint that it was made of.
func (f *forked) whole(when string, cid contract.CID) {
	t := f.t
	t.Helper()
	f.in.Must(t, "files", "ls", "--computer", string(cid)) // which wakes it
	err := f.of(cid, func(ctx context.Context, c *client.Client) error {
		info, err := c.Info(ctx)
		if err == nil && info.State != view.StateAwake && info.State != view.StateWorking {
			err = fmt.Errorf("it is %s: %+v", info.State, info.Trouble)
		}
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v\n%s", when, err, f.in.Logs())
	}
	// Its documents are made before it is awake.
	if got := f.in.Must(t, "events", "--type", "document.revised", "--computer", string(cid)); strings.Count(got, "document.revised") != 1 {
		t.Errorf("%s: its documents: %q", when, got)
	}
	got := f.held(cid)
	for p, want := range f.files {
		if got[p] != want {
			t.Errorf("%s: %s holds %.60q; want %.60q", when, p, got[p], want)
		}
	}
	if len(got) != len(f.files) {
		t.Errorf("%s: it has %d files, not %d", when, len(got), len(f.files))
	}
	var event contract.Event
	var created contract.ComputerCreated
	first := f.in.Must(t, "events", "--limit", "1", "--json", "--computer", string(cid))
	if err := json.Unmarshal([]byte(first), &event); err != nil || event.Type != "computer.created" || json.Unmarshal(event.Data, &created) != nil || created.From != string(f.cid) || created.Checkpoint != f.checkpoint || created.Name != "Fork" {
		t.Errorf("%s: its log begins with %s, %v", when, first, err)
	}
}

// TestForksAreKilled kills choir at each step of a fork.
func TestForksAreKilled(t *testing.T) {
	t.Parallel()
	f := newForked(t, filepath.Join(t.TempDir(), "data"))
	for _, p := range forkPoints {
		when := fmt.Sprintf("a fork killed at %s %d", p.point, p.nth)
		cid := contract.NewCID()
		f.arm(p.point, p.nth)
		err := f.fork(cid)
		if !f.hit() {
			t.Fatalf("%s: the point was never reached: %v; passed were %v", when, err, f.passes())
		}
		if !inBox(p.point) {
			f.dead(when)
		} else {
			f.in.Kill()
		}
		f.disarm()
		f.look(when, cid, p.decided)
		histogram.add(p.point+" of a fork", "whole")
		err = f.of(cid, func(ctx context.Context, c *client.Client) error {
			_, err := c.RemoveComputer(ctx)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			return
		}
	}
	f.in.Stop(t)
}

// TestPowerCutsInAFork cuts the power within a fork, and right after it was told: nothing of it is
// left, or all of it is there.
func TestPowerCutsInAFork(t *testing.T) {
	if !mountable(t) {
		return
	}
	d := newDisk(t, 3<<30) // a fork leaves the last of the room to others
	f := newForked(t, filepath.Join(d.path(), "data"))
	run(t, "sync", "-f", f.data)
	cid := contract.NewCID()
	begun := d.now()
	if err := f.fork(cid); err != nil {
		t.Fatal(err)
	}
	told := d.now()
	f.whole("not cut", cid)
	f.in.Stop(t)
	images := 8
	if long > 0 {
		images = 60
	}
	dice := random("power cuts in a fork")
	image, mnt := filepath.Join(d.dir, "cut.img"), filepath.Join(t.TempDir(), "cut")
	if err := os.Mkdir(mnt, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range images {
		part := max(1, (told-begun)/images)
		at := min(begun+1+i*part+dice.IntN(part), told)
		if i == images-1 {
			at = told
		}
		t.Run(fmt.Sprintf("the power fails after %d of %d", at-begun, told-begun), func(t *testing.T) {
			var unmount func()
			for try := 0; ; try++ {
				d.failure(t, at, 0, dice, image)
				var err error
				if unmount, err = tryMount(t, image, mnt); err == nil {
					break
				} else if try == 5 { // ext4 writes its superblock in two sectors, of which one may be torn
					t.Fatal(err)
				}
			}
			cut := &world{t: t, data: filepath.Join(mnt, "data"), crash: f.crash, plans: f.plans, cid: f.cid}
			after := &forked{world: cut, checkpoint: f.checkpoint, files: f.files}
			for _, c := range []contract.CID{f.cid, cid} { // a machine that was without power has another boot id
				open := after.tree(c, ".git/choir/open")
				if _, err := os.Lstat(open); err == nil {
					if err := os.WriteFile(open, []byte("the boot before"), 0o644); err != nil {
						t.Fatal(err)
					}
				}
			}
			after.look("after the power cut", cid, at >= told)
			after.in.Stop(t)
			unmount()
			histogram.add("power cut in a fork", "whole")
		})
	}
}
