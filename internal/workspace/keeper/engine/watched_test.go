package engine_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/workspace/keeper/engine"
	"choir.dev/choiros/internal/workspace/keeper/httpapi"
	"choir.dev/choiros/internal/workspace/keeper/scan"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// believed waits until every file is old enough that it can't have been changed again without a
// trace in its times.
func believed(t *testing.T) {
	t.Helper()
	for began := time.Now(); time.Since(began) <= time.Duration(scan.RacyWindow); {
		time.Sleep(time.Millisecond)
	}
}

// watched is a computer with files in several folders, all of which have been scanned.
func watched(t *testing.T, set ...func(*engine.Options)) *computer {
	c := open(t, set...)
	for i := range 300 {
		c.write(fmt.Sprintf("workspace/w/d%d/f%d", i%15, i), fmt.Sprint("file ", i))
	}
	c.write(".gitignore", "node_modules/\n*.log\n")
	c.write("workspace/node_modules/m/index", "m")
	c.write("workspace/node_modules/m/deep/index", "m")
	c.write("workspace/w/seen.log", "log")
	believed(t)
	c.underStill("first")
	c.underStill("first") // a changed .gitignore makes this scan the whole tree
	c.underStill("first") // this names the same stillness, so nobody wrote during that scan
	return c
}

// whole scans the whole tree, and fails the test if the checkpoint before was not of all of it.
func (c *computer) whole(what string, r wire.CheckpointReply) {
	c.t.Helper()
	all, err := c.Checkpoint(scan.WithStill(c.t.Context(), "none"), wire.CheckpointRequest{FullScan: true, Note: wire.Note{Kind: "auto"}})
	if err != nil {
		c.t.Fatal(err)
	}
	if all.Created || len(all.Unseen) > 0 {
		c.t.Fatalf("%s: a full scan made %+v; unseen: %q", what, all.Commit, all.Unseen)
	}
	if !reflect.DeepEqual(all.LeftOut, r.LeftOut) {
		c.t.Fatalf("%s: left out %+v\na full scan says %+v", what, r.LeftOut, all.LeftOut)
	}
	c.underStill("none") // this names the same stillness, so nobody wrote during that scan
}

// TestWhatIsWatchedIsNotScannedFor shows that what somebody wrote who has ended is captured without
// a full scan, also when it was captured before and written again.
func TestWhatIsWatchedIsNotScannedFor(t *testing.T) {
	c := watched(t)
	for i, do := range []func(){
		func() { c.write("workspace/w/d1/f1", "other") },
		func() { c.write("workspace/w/d1/f1", "again") },
		func() { c.write("workspace/w/d2/new", "new") },
		func() { must(t, os.Remove(c.path("workspace/w/d2/new"))) },
		func() { must(t, os.Rename(c.path("workspace/w/d3/f3"), c.path("workspace/w/d4/moved"))) },
		func() { must(t, os.Chmod(c.path("workspace/w/d4/f4"), 0o755)) },
		func() { must(t, os.Truncate(c.path("workspace/w/d5/f5"), 2)) },
		func() { mapped(t, c.path("workspace/w/d5/f20"), 'M')() },
		func() { // saves as editors do
			c.write("workspace/w/d6/.tmp", "saved")
			must(t, os.Rename(c.path("workspace/w/d6/.tmp"), c.path("workspace/w/d6/f6")))
		},
	} {
		do()
		if r := c.underStill(fmt.Sprint("after ", i)); !r.Created || r.NamesRead > 20 {
			t.Errorf("%d: it read %d names, and made a checkpoint: %t", i, r.NamesRead, r.Created)
		}
	}
	for i := range 3 { // an ignored log, and nothing at all
		c.write("workspace/w/seen.log", strings.Repeat("x", i))
		if r := c.underStill(fmt.Sprint("nothing ", i)); r.Created || r.NamesRead > 20 {
			t.Errorf("nothing happened, and it read %d names: %+v", r.NamesRead, r.Commit)
		}
	}
	c.whole("at the end", c.underStill("none"))
}

// TestWhatTheWatchCantTellIsScannedFor shows that each way to write that the events of the watched
// folders do not name is found by a full scan.
func TestWhatTheWatchCantTellIsScannedFor(t *testing.T) {
	c := watched(t)
	victim := func(i int) string { return fmt.Sprintf("workspace/w/d%d/f%d", i%15, i) }
	for i, way := range []struct {
		what string
		do   func(victim string)
	}{
		{"another name in a folder, which is gone", func(p string) { throughLink(t, c, p, "workspace/w/d7/alias", true) }},
		{"another name, which stays", func(p string) { throughLink(t, c, p, "workspace/w/d7/stays", false) }},
		{"a name that the scan met, which is another now", func(p string) { throughLink(t, c, p, "workspace/w/d7/stays", false) }},
		{"another name in a folder that is ignored, which is gone", func(p string) { throughLink(t, c, p, "workspace/node_modules/m/deep/alias", true) }},
		{"another name in a folder that is new, which is gone", func(p string) {
			must(t, os.Mkdir(c.path("workspace/w/d7/new"), 0o755))
			throughLink(t, c, p, "workspace/w/d7/new/alias", true)
			must(t, os.Remove(c.path("workspace/w/d7/new")))
		}},
		{"another name that something else displaced", func(p string) {
			throughLink(t, c, p, "workspace/w/d8/alias", false)
			c.write("workspace/w/d8/tmp", "x")
			must(t, os.Rename(c.path("workspace/w/d8/tmp"), c.path("workspace/w/d8/alias")))
		}},
		{"another name that was moved and is gone", func(p string) {
			throughLink(t, c, p, "workspace/w/d9/alias", false)
			must(t, os.Rename(c.path("workspace/w/d9/alias"), c.path("workspace/w/d9/alias2")))
			must(t, os.Remove(c.path("workspace/w/d9/alias2")))
		}},
		{"another name that went where nothing is watched", func(p string) {
			throughLink(t, c, p, "workspace/w/d10/alias", false)
			must(t, os.Rename(c.path("workspace/w/d10/alias"), c.path(".git/choir/alias")))
			must(t, os.WriteFile(c.path(".git/choir/alias"), []byte("from outside"), 0o644))
			must(t, os.Remove(c.path(".git/choir/alias")))
		}},
		{"a name that is gone since before the last scan", func(p string) {
			must(t, os.Link(c.path(p), c.path("workspace/w/d9/open")))
			f, err := os.OpenFile(c.path("workspace/w/d9/open"), os.O_WRONLY, 0)
			must(t, err)
			must(t, os.Remove(c.path("workspace/w/d9/open")))
			c.underStill("while it is open")
			_, err = f.WriteString("open")
			must(t, errors.Join(err, f.Close()))
		}},
		{"a folder that moved", func(p string) {
			must(t, os.Rename(filepath.Dir(c.path(p)), c.path("workspace/w/moved")))
			c.write("workspace/w/moved/"+filepath.Base(p), "there")
			must(t, os.Rename(c.path("workspace/w/moved"), filepath.Dir(c.path(p))))
		}},
		{"more than the kernel keeps", func(p string) {
			for i := range 20_000 {
				must(t, os.Chmod(c.path(victim(100+i%2)), 0o644))
			}
			c.write(p, "lost among others")
		}},
	} {
		way.do(victim(30 + i))
		r := c.underStill(fmt.Sprint("way ", i))
		got, err := os.ReadFile(c.path(victim(30 + i)))
		must(t, err)
		if held := stockGit(t, c.opts.Root, "show", "HEAD:"+victim(30+i)); held != string(got) || !r.Created {
			t.Errorf("%s: the checkpoint has %q where the file holds %q", way.what, held, got)
		}
		c.whole(way.what, r)
	}
}

// throughLink writes to a file through another name of it.
func throughLink(t *testing.T, c *computer, p, alias string, gone bool) {
	t.Helper()
	if err := os.Link(c.path(p), c.path(alias)); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	} else if err != nil {
		must(t, os.Remove(c.path(alias)))
		must(t, os.Link(c.path(p), c.path(alias)))
	}
	must(t, os.WriteFile(c.path(alias), []byte("by "+alias), 0o644))
	if gone {
		must(t, os.Remove(c.path(alias)))
	}
}

// mapped opens a file, maps it and closes it. The function that it returns writes to the mapping
// and ends it.
func mapped(t *testing.T, p string, with byte) (write func()) {
	t.Helper()
	f, err := os.OpenFile(p, os.O_RDWR, 0)
	must(t, err)
	m, err := unix.Mmap(int(f.Fd()), 0, 1, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, errors.Join(err, f.Close()))
	return func() {
		m[0] = with
		must(t, unix.Munmap(m))
	}
}

// TestAFileWithTwoNamesIsAlwaysScanned shows that a file that the scan met under two names is
// always inspected, because a change through one name is not told at the other.
func TestAFileWithTwoNamesIsAlwaysScanned(t *testing.T) {
	c := watched(t)
	must(t, os.Link(c.path("workspace/w/d1/f1"), c.path("workspace/w/d2/two")))
	c.underStill("linked")
	believed(t)
	c.underStill("believed")
	c.underStill("believed")
	c.write("workspace/w/d2/two", "by the other name")
	r := c.underStill("written")
	if held := stockGit(t, c.opts.Root, "show", "HEAD:workspace/w/d1/f1"); held != "by the other name" || r.NamesRead > 20 {
		t.Errorf("it holds %q; read %d names", held, r.NamesRead)
	}
}

// TestWithoutAWatchEverythingIsScanned shows that checkpoints hold the same when there are more
// folders than may be watched, or when none may be.
func TestWithoutAWatchEverythingIsScanned(t *testing.T) {
	for most, why := range map[int]string{-1: "watching is off", 5: "there are more than 5 directories"} {
		c := watched(t, func(o *engine.Options) { o.Watched = most })
		c.write("workspace/w/d1/f1", "other")
		if r := c.underStill("after"); !r.Created || r.NamesRead < 300 || r.Unwatched != why {
			t.Errorf("with at most %d watches it read %d names, for %q", most, r.NamesRead, r.Unwatched)
		}
	}
}

// TestAWatchThatMissedSomethingIsNotTrusted shows that a full scan that finds more than the watch
// told says so, and that the watch is not used any more.
func TestAWatchThatMissedSomethingIsNotTrusted(t *testing.T) {
	c := watched(t)
	// A program on the host that has a file mapped lives on, which nobody could know.
	at, err := os.OpenFile(c.path("workspace/w/d1/f1"), os.O_RDWR, 0)
	must(t, err)
	m, err := unix.Mmap(int(at.Fd()), 0, 4, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, errors.Join(err, at.Close()))
	c.underStill("opened")
	believed(t)
	c.underStill("believed")
	copy(m, "mmap")
	all, err := c.Checkpoint(scan.WithStill(t.Context(), "believed"), wire.CheckpointRequest{FullScan: true, Note: wire.Note{Kind: "auto"}})
	must(t, err)
	if !all.Created || len(all.Unseen) != 1 || all.Unseen[0] != "workspace/w/d1/f1" {
		t.Errorf("it says that %q was not seen", all.Unseen)
	}
	must(t, unix.Munmap(m))
	if r := c.underStill("later"); r.NamesRead < 300 || !strings.HasPrefix(r.Unwatched, "a change was not seen") {
		t.Errorf("after that it read %d names, for %q", r.NamesRead, r.Unwatched)
	}
}

// TestAWatchSeesWhatAScanFinds makes random changes, each by somebody who has ended when the next
// checkpoint is made, and compares with full scans.
func TestAWatchSeesWhatAScanFinds(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("CHOIR_LOOK_SEED"); s != "" {
		_, err := fmt.Sscan(s, &seed)
		must(t, err)
	}
	t.Logf("CHOIR_LOOK_SEED=%d", seed)
	rnd := rand.New(rand.NewPCG(seed, 2))
	c := watched(t)
	few := 0
	for step := range 60 {
		for range 1 + rnd.IntN(4) {
			slyEdit(t, c, rnd)
		}
		r := c.underStill(fmt.Sprint("step ", step))
		if r.NamesRead < 100 {
			few++
		}
		c.underStill(fmt.Sprint("step ", step)) // before the next change
		if rnd.IntN(3) == 0 {
			c.whole(fmt.Sprint("step ", step), r)
		}
		if rnd.IntN(4) == 0 {
			believed(t)
		}
	}
	if few < 5 {
		t.Errorf("only %d of the scans were not full ones", few)
	}
}

func slyEdit(t *testing.T, c *computer, rnd *rand.Rand) {
	t.Helper()
	name := func() string { // most of these exist
		i := rnd.IntN(60)
		return c.path(fmt.Sprintf("workspace/w/d%d/f%d", i%15+rnd.IntN(30)/29, i))
	}
	p, q := name(), name()
	switch rnd.IntN(16) {
	case 0, 1, 2, 3: // a change that fails is no change
		_ = os.WriteFile(p, []byte(fmt.Sprint(rnd.IntN(1000))), 0o644)
	case 4:
		_ = os.Rename(p, q)
	case 5:
		_ = unix.Renameat2(unix.AT_FDCWD, p, unix.AT_FDCWD, q, unix.RENAME_EXCHANGE)
	case 6:
		_ = os.Remove(p)
	case 7:
		if os.Link(p, q) == nil && rnd.IntN(2) == 0 {
			_ = os.WriteFile(q, []byte(fmt.Sprint("linked ", rnd.IntN(1000))), 0o644)
			_ = os.Remove([]string{p, q}[rnd.IntN(2)])
		}
	case 8:
		_ = os.Chmod(p, []os.FileMode{0o644, 0o755}[rnd.IntN(2)])
	case 9:
		_ = os.Truncate(p, int64(rnd.IntN(4)))
	case 10:
		if st, err := os.Lstat(p); err == nil && st.Mode().IsRegular() && st.Size() > 0 {
			mapped(t, p, byte('a'+rnd.IntN(26)))()
		}
	case 11: // a file without a name that gets one
		fd, err := unix.Open(filepath.Dir(p), unix.O_TMPFILE|unix.O_RDWR, 0o644)
		if err != nil {
			return
		}
		_ = unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, q, unix.AT_SYMLINK_FOLLOW)
		_, _ = unix.Write(fd, []byte(fmt.Sprint(rnd.IntN(1000))))
		_ = unix.Close(fd)
	case 12:
		_ = os.Remove(p)
		_ = os.Symlink("x", p)
	case 13:
		d := filepath.Dir(p)
		_ = os.Rename(d, d+"x")
		_ = os.WriteFile(d+"x/in", []byte(fmt.Sprint(rnd.IntN(1000))), 0o644)
		_ = os.Rename(d+"x", filepath.Dir(q))
	case 14:
		_ = os.WriteFile(filepath.Dir(p)+"/more.log", []byte(fmt.Sprint(rnd.IntN(1000))), 0o644)
	case 15:
		_ = os.MkdirAll(p, 0o755)
		_ = os.WriteFile(p+"/in", []byte("in"), 0o644)
	}
}

// TestAKeeperHasAsManyWatchesAsItIsTold shows that a request says how many watches there may be and
// the answer how many there are. With too few the whole tree is scanned, until there may be enough
// again.
func TestAKeeperHasAsManyWatchesAsItIsTold(t *testing.T) {
	c := watched(t)
	srv := httptest.NewServer(httpapi.Handler(c.Engine))
	t.Cleanup(srv.Close)
	asked, err := json.Marshal(wire.CheckpointRequest{FullScan: true, Note: wire.Note{Kind: "before"}})
	must(t, err)
	ask := func(still string, may int) (r wire.CheckpointReply, has int) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/keeper/checkpoint", bytes.NewReader(asked))
		must(t, err)
		req.Header.Set(wire.StillHeader, still)
		req.Header.Set(wire.WatchesHeader, fmt.Sprint(may))
		resp, err := http.DefaultClient.Do(req)
		must(t, err)
		defer resp.Body.Close()
		must(t, wire.Decode(resp.Body, &r))
		has, err = strconv.Atoi(resp.Header.Get(wire.WatchesHeader))
		must(t, err)
		return r, has
	}
	_, most := ask("a", 8192)
	if most < 30 || most > 60 {
		t.Fatalf("it has %d watches", most)
	}
	if r, has := ask("b", 20); has != 0 || r.Unwatched != "there are more than 10 directories" {
		t.Errorf("of 20 it has %d, for %q", has, r.Unwatched)
	}
	if r, has := ask("c", 0); has != 0 || !strings.HasPrefix(r.Unwatched, "other computers") {
		t.Errorf("of none it has %d, for %q", has, r.Unwatched)
	}
	for i := 0; ; i++ {
		if r, has := ask(fmt.Sprint("d", i), 8192); has == most && r.Unwatched == "" {
			break
		} else if i > 20 {
			t.Fatalf("of enough it has %d, for %q", has, r.Unwatched)
		}
	}
}
