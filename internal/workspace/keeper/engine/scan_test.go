package engine_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/workspace/keeper/engine"
	"choir.dev/choiros/internal/workspace/keeper/wire"
	"choir.dev/choiros/test/choirtest"
)

// TestAScanThatRemembersFindsTheSame makes random changes, some of them meant to deceive, and
// compares each checkpoint of an engine that remembers what it saw with that of an engine that
// hashes everything. The second must find nothing to add, and must leave out the same paths.
func TestAScanThatRemembersFindsTheSame(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("CHOIR_LOOK_SEED"); s != "" {
		if _, err := fmt.Sscan(s, &seed); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("CHOIR_LOOK_SEED=%d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	c := open(t, func(o *engine.Options) { o.Limits.Files = 150 })
	for i := range 40 {
		c.write(fmt.Sprintf("workspace/d%d/f%d", i%5, i), fmt.Sprint(i))
	}
	c.write(".gitignore", "*.log\ncache/\n")
	for step := range 20 {
		for range 1 + rnd.IntN(6) {
			edit(t, c, rnd)
		}
		r := c.checkpoint(fmt.Sprint(step))
		// The second engine knows nothing about any file, because it scans a copy.
		opts := c.opts
		opts.Root = filepath.Join(t.TempDir(), "copy")
		if out, err := exec.Command("cp", "-a", c.opts.Root, opts.Root).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if err := os.RemoveAll(filepath.Join(opts.Root, ".git/choir")); err != nil {
			t.Fatal(err)
		}
		fresh, err := engine.Open(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		again, err := fresh.Checkpoint(t.Context(), wire.CheckpointRequest{Note: wire.Note{Kind: "manual", Message: "again"}})
		if cerr := fresh.Close(); err != nil || cerr != nil {
			t.Fatal(err, cerr)
		}
		if again.Created || again.Tree != r.Tree {
			t.Fatalf("step %d: another scan made %+v", step, again.Commit)
		}
		if !reflect.DeepEqual(again.LeftOut, r.LeftOut) {
			t.Fatalf("step %d: left out %+v\nanother scan says %+v", step, r.LeftOut, again.LeftOut)
		}
		if step%10 == 9 {
			c.reopen()
		}
		if rnd.IntN(3) == 0 { // files seen this long ago are not read again
			believed(t)
		}
	}
}

// edit changes something, and often hides that it did.
func edit(t *testing.T, c *computer, rnd *rand.Rand) {
	t.Helper()
	pick := func() string { return c.path(fmt.Sprintf("workspace/d%d/f%d", rnd.IntN(8), rnd.IntN(40))) }
	must := func(err error) {
		if err != nil && !os.IsNotExist(err) && !os.IsExist(err) && !strings.Contains(err.Error(), "director") && !strings.Contains(err.Error(), "exists") {
			t.Fatal(err)
		}
	}
	p := pick()
	_ = os.MkdirAll(filepath.Dir(p), 0o755)
	switch rnd.IntN(14) {
	case 0, 1, 2: // the same size at the same time
		st, err := os.Lstat(p)
		if err != nil || !st.Mode().IsRegular() || st.Size() == 0 {
			must(os.WriteFile(p, []byte(fmt.Sprint(rnd.Int())), 0o644))
			return
		}
		b := []byte(strings.Repeat(fmt.Sprint(rnd.IntN(10)), int(st.Size())))
		f, err := os.OpenFile(p, os.O_WRONLY, 0)
		must(err)
		_, err = f.WriteAt(b, 0)
		must(err)
		must(f.Close())
		must(os.Chtimes(p, st.ModTime(), st.ModTime()))
	case 3:
		must(os.Rename(p, pick()))
	case 4:
		must(unix.Renameat2(unix.AT_FDCWD, p, unix.AT_FDCWD, pick(), unix.RENAME_EXCHANGE))
	case 5:
		must(os.RemoveAll(p))
	case 6:
		must(os.Chmod(p, []os.FileMode{0o644, 0o755}[rnd.IntN(2)]))
	case 7: // a link in a file's place
		must(os.RemoveAll(p))
		must(os.Symlink(fmt.Sprint(rnd.IntN(3)), p))
	case 8: // a folder in a file's place, empty or not
		must(os.RemoveAll(p))
		must(os.MkdirAll(p, 0o755))
		if rnd.IntN(2) == 0 {
			must(os.WriteFile(filepath.Join(p, "in"), []byte("x"), 0o644))
		}
	case 9: // folders change places
		must(os.Rename(filepath.Dir(p), filepath.Dir(p)+"x"))
		must(os.Rename(filepath.Dir(pick()), filepath.Dir(p)))
	case 10:
		must(os.WriteFile(filepath.Join(filepath.Dir(p), []string{"a.log", ".gitignore"}[rnd.IntN(2)]), []byte([]string{"f1*\n", "!f1*\n", ""}[rnd.IntN(3)]), 0o644))
	case 11: // larger than the limit allows
		dir := c.path(fmt.Sprintf("workspace/heap%d", rnd.IntN(3)))
		must(os.MkdirAll(dir, 0o755))
		for i := range 40 + rnd.IntN(80) {
			must(os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o644))
		}
	case 12:
		must(os.RemoveAll(c.path(fmt.Sprintf("workspace/heap%d", rnd.IntN(3)))))
	case 13: // one of too many new files
		_ = os.WriteFile(c.path(fmt.Sprintf("workspace/heap%d/%d", rnd.IntN(3), rnd.IntN(200))), []byte("x"), 0o644)
	}
}

// TestWhatIsLeftOutIsNotScannedAgain shows that folders with too many files for a checkpoint cost
// nothing as long as nothing happens in them, and that they are captured when there is room.
func TestWhatIsLeftOutIsNotScannedAgain(t *testing.T) {
	c := open(t, func(o *engine.Options) { o.Limits.Files = 100 })
	for i := range 60 {
		c.write(fmt.Sprintf("workspace/mine/f%d", i), "")
	}
	first := c.checkpoint("mine")
	for h := range 10 {
		for i := range 50 {
			c.write(fmt.Sprintf("workspace/heap%d/f%d", h, i), "")
		}
	}
	var r wire.CheckpointReply
	choirtest.Eventually(t, 10*time.Second, "the heaps are passed over", func() bool {
		r = c.checkpoint("again")
		return r.NamesRead < first.NamesRead+20
	})
	if r.Total != 500 || len(r.Left) != 10 || !strings.Contains(r.Left[0].Reason, "raise storage.files, which is 100") {
		t.Errorf("left out: %d, %+v", r.Total, r.Left)
	}
	files, _, err := c.Files(t.Context(), wire.FilesRequest{Path: wire.Path("workspace/heap7")})
	if err != nil || len(files) != 50 || files[0].Unkept == "" {
		t.Errorf("the files of a heap: %+v (%v)", files, err)
	}
	// What is captured stays captured, also in a folder with too many new files.
	c.write("workspace/mine/f1", "changed\n")
	for i := range 60 {
		c.write(fmt.Sprintf("workspace/mine/more%d", i), "")
	}
	c.write("workspace/heap3/another", "")
	r = c.checkpoint("changed")
	if got := stockGit(t, c.opts.Root, "show", "HEAD:workspace/mine/f1"); got != "changed\n" {
		t.Errorf("f1 holds %q", got)
	}
	if r.Total != 561 {
		t.Errorf("%d are left out", r.Total)
	}
	for i := range 60 {
		if err := os.Remove(c.path(fmt.Sprintf("workspace/mine/more%d", i))); err != nil {
			t.Fatal(err)
		}
		if i < 20 {
			if err := os.Remove(c.path(fmt.Sprintf("workspace/mine/f%d", i))); err != nil {
				t.Fatal(err)
			}
		}
	}
	r = c.checkpoint("room")
	if got := strings.Count(stockGit(t, c.opts.Root, "ls-tree", "-r", "--name-only", "HEAD"), "\n"); got != 90 || r.Total != 451 {
		t.Errorf("%d files are captured, %d are left out", got, r.Total)
	}
	again := c.checkpoint("none")
	if again.Created {
		t.Errorf("nothing changed, and there is %+v", again.Commit)
	}
}

// TestMoreThanAScanTakes shows that a tree with more names than one scan may visit is captured as
// far as the scan comes, that this is said, and that what was captured stays.
func TestMoreThanAScanTakes(t *testing.T) {
	c := open(t, func(o *engine.Options) { o.Limits.WalkEntries = 90 })
	for i := range 20 {
		c.write(fmt.Sprintf("workspace/mine/f%d", i), "")
	}
	c.checkpoint("mine")
	for h := range 10 {
		for i := range 25 {
			c.write(fmt.Sprintf("workspace/heap%d/f%d", h, i), "")
		}
	}
	c.write("workspace/mine/f1", "changed\n")
	for i := range 40 {
		c.write(fmt.Sprintf("workspace/f%d", i), "")
	}
	r := c.checkpoint("too many")
	if len(r.Left) == 0 || !strings.Contains(r.Left[0].Reason, "more than 90 files and folders") {
		t.Errorf("left out: %+v", r.Left)
	}
	for i := range 40 {
		if err := os.Remove(c.path(fmt.Sprintf("workspace/f%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	r = c.checkpoint("fewer")
	if got := stockGit(t, c.opts.Root, "show", "HEAD:workspace/mine/f1"); got != "changed\n" || len(r.Left) == 0 {
		t.Errorf("f1 holds %q; left out: %+v", got, r.Left)
	}
	if got := strings.Count(stockGit(t, c.opts.Root, "ls-tree", "-r", "--name-only", "HEAD", "workspace/mine"), "\n"); got != 20 {
		t.Errorf("%d of the captured files are captured", got)
	}
	for h := range 10 {
		if err := os.RemoveAll(c.path(fmt.Sprintf("workspace/heap%d", h))); err != nil {
			t.Fatal(err)
		}
	}
	if r = c.checkpoint("all"); len(r.Left) != 0 {
		t.Errorf("left out: %+v", r.Left)
	}
}
