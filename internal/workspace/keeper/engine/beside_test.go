package engine_test

import (
	"crypto/sha1"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/workspace/keeper/scan"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// beside makes a checkpoint while somebody who can write is alive.
func (c *computer) beside(full bool) wire.CheckpointReply {
	c.t.Helper()
	r, err := c.Checkpoint(scan.WithStill(c.t.Context(), wire.WritersWatched), wire.CheckpointRequest{FullScan: full, Note: wire.Note{Kind: "before"}})
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

// holds fails the test unless the newest checkpoint has a file as it is now.
func (c *computer) holds(what, p string) {
	c.t.Helper()
	if held, is := stockGit(c.t, c.opts.Root, "show", "HEAD:"+p), c.read(p); held != is {
		c.t.Errorf("%s: the checkpoint has %q where the file holds %q", what, held, is)
	}
}

// holdsAll fails the test unless the newest checkpoint has all files as they are now. It reads the
// files themselves, independently of what the scanner remembers.
func (c *computer) holdsAll(what string) {
	c.t.Helper()
	for line := range strings.Lines(stockGit(c.t, c.opts.Root, "ls-tree", "-r", "HEAD", "workspace/w")) {
		meta, p, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		st, err := os.Lstat(c.path(p))
		if err != nil || !st.Mode().IsRegular() {
			continue // the mark of an empty folder
		}
		is := c.read(p)
		if want := fmt.Sprintf("%x", sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(is), is))); strings.Fields(meta)[2] != want {
			c.t.Errorf("%s: the checkpoint has other content of %s than %q", what, p, is)
		}
	}
}

// opened is a file that is open for writing or mapped.
type opened struct {
	fd  int
	mem []byte
}

func openFor(t *testing.T, name string) *opened {
	t.Helper()
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC, 0)
	must(t, err)
	return &opened{fd: fd}
}

// mapIt maps the open file and closes it.
func (o *opened) mapIt(t *testing.T) *opened {
	t.Helper()
	var err error
	o.mem, err = unix.Mmap(o.fd, 0, 1, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, errors.Join(err, unix.Close(o.fd)))
	o.fd = -1
	return o
}

func (o *opened) store(t *testing.T, with byte) {
	t.Helper()
	if o.mem != nil {
		o.mem[0] = with
		return
	}
	_, err := unix.Pwrite(o.fd, []byte{with}, 0)
	must(t, err)
}

func (o *opened) end(t *testing.T) {
	t.Helper()
	if o.mem != nil {
		must(t, unix.Munmap(o.mem))
		return
	}
	must(t, unix.Close(o.fd))
}

// TestWhatALivingWriterWritesIsSeen shows that while somebody lives who can write at any time, each
// scan sees what was written before it, and inspects only the files in which that may be.
func TestWhatALivingWriterWritesIsSeen(t *testing.T) {
	c := watched(t)
	f := func(i int) string { return fmt.Sprintf("workspace/w/d%d/f%d", i%15, i) }
	var kept *opened
	for i, step := range []struct {
		what, at string
		do       func()
	}{
		{"a write", f(1), func() { c.write(f(1), "one") }},
		{"a descriptor that stays", f(2), func() { kept = openFor(t, c.path(f(2))); kept.store(t, 'A') }},
		{"the same descriptor again", f(2), func() { kept.store(t, 'B') }},
		{"a mapping that stays, of the same file", f(2), func() { kept.mapIt(t).store(t, 'C') }},
		{"a mapping of a file that was opened before the scan before", f(3), func() {
			kept.end(t)
			kept = openFor(t, c.path(f(3))).mapIt(t)
			c.beside(false)
			believed(t)
			c.beside(false)
			kept.store(t, 'D')
		}},
		{"a mapping of a file that was moved since", "workspace/w/d4/moved", func() {
			kept.end(t)
			kept = openFor(t, c.path(f(4))).mapIt(t) // mapped anew, because in a file system in memory a second store changes no time
			must(t, os.Rename(c.path(f(4)), c.path("workspace/w/d4/moved")))
			c.beside(false)
			believed(t)
			c.beside(false)
			kept.store(t, 'E')
		}},
		{"a file that had no name when it was opened", f(5), func() {
			kept.end(t)
			fd, err := unix.Open(c.path("workspace/w/d6"), unix.O_TMPFILE|unix.O_RDWR, 0o644)
			must(t, err)
			_, err = unix.Write(fd, []byte("tmpfile"))
			must(t, errors.Join(err, os.Remove(c.path(f(5))), unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, c.path(f(5)), unix.AT_SYMLINK_FOLLOW)))
			kept = &opened{fd: fd}
			kept.mapIt(t)
			c.beside(false)
			believed(t)
			c.beside(false)
			kept.store(t, 'F')
		}},
	} {
		step.do()
		if r := c.beside(false); !r.Created {
			t.Errorf("%d, %s: nothing was seen", i, step.what)
		} else if r.NamesRead > 40 && i < 6 {
			t.Errorf("%d, %s: it read %d names", i, step.what, r.NamesRead)
		}
		c.holds(step.what, step.at)
		if all := c.beside(true); all.Created || len(all.Unseen) > 0 {
			t.Errorf("%d, %s: a full scan made %+v", i, step.what, all.Commit)
		}
	}
	kept.end(t)
}

// TestWhatBesideAWriterCantBeToldIsScannedFor shows that after anything that makes it unknown who
// can write to which file, the whole tree is scanned as long as somebody can write, and that what
// is known of the files is used again afterwards.
func TestWhatBesideAWriterCantBeToldIsScannedFor(t *testing.T) {
	for what, do := range map[string]func(c *computer, victim string){
		"another name, which is gone, of a file that was opened by it": func(c *computer, p string) {
			must(t, os.Link(c.path(p), c.path("workspace/w/d9/alias")))
			o := openFor(t, c.path("workspace/w/d9/alias")).mapIt(t)
			must(t, os.Remove(c.path("workspace/w/d9/alias")))
			c.beside(false)
			o.store(t, 'X')
			t.Cleanup(func() { o.end(t) })
		},
		"another name in a folder that is gone, by which it is opened later": func(c *computer, p string) {
			must(t, errors.Join(os.Mkdir(c.path("workspace/new"), 0o755), os.Link(c.path(p), c.path("workspace/new/alias"))))
			at, err := unix.Open(c.path("workspace/new/alias"), unix.O_PATH, 0)
			must(t, errors.Join(err, os.Remove(c.path("workspace/new/alias")), os.Remove(c.path("workspace/new"))))
			c.beside(false)
			must(t, os.WriteFile(fmt.Sprintf("/proc/self/fd/%d", at), []byte("by the folder that is gone"), 0o644))
			must(t, unix.Close(at))
		},
		"more files are opened than are remembered": func(c *computer, p string) {
			for i := range 20_000 { // alternating files, because the kernel merges equal events
				file, err := os.Open(c.path(fmt.Sprintf("workspace/w/d%d/f%d", i%15, i%300)))
				must(t, errors.Join(err, file.Close()))
			}
			openFor(t, c.path(p)).mapIt(t).store(t, 'X')
		},
	} {
		c := watched(t)
		p := "workspace/w/d7/f7"
		do(c, p)
		if r := c.beside(false); !r.Created || r.NamesRead < 300 {
			t.Errorf("%s: it read %d names, and made a checkpoint: %t", what, r.NamesRead, r.Created)
		}
		c.holds(what, p)
		c.underStill("over")
		c.underStill("over")
		c.write(p, "later")
		if r := c.beside(false); !r.Created || r.NamesRead > 40 {
			t.Errorf("%s, and later: it read %d names, and made a checkpoint: %t", what, r.NamesRead, r.Created)
		}
	}
}

// TestAWriterThatCameDuringTheNewestRequestIsScannedFor shows that a file that was opened while the
// newest request of a stillness was served is inspected, because somebody who began just then may
// have opened it.
func TestAWriterThatCameDuringTheNewestRequestIsScannedFor(t *testing.T) {
	c := watched(t)
	ran := false
	ctx := scan.WithStill(t.Context(), "first") // nobody could write when this was sent, and now somebody can
	o := openFor(t, c.path("workspace/w/d2/f2")).mapIt(t)
	c.write("workspace/w/d3/f3", "so that there is something to do")
	_, err := c.Checkpoint(ctx, wire.CheckpointRequest{Note: wire.Note{Kind: "before"}})
	must(t, err)
	believed(t)
	c.beside(false)
	o.store(t, 'X')
	ran = c.beside(false).Created
	c.holds("opened while it was asked", "workspace/w/d2/f2")
	if !ran {
		t.Error("nothing was seen")
	}
	o.end(t)
}

// TestBesideAWriterAScanFindsTheSame makes random changes, also through descriptors and mappings
// that stay open, and compares each scan with a scan of everything, and now and then with the files
// themselves.
func TestBesideAWriterAScanFindsTheSame(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("CHOIR_LOOK_SEED"); s != "" {
		_, err := fmt.Sscan(s, &seed)
		must(t, err)
	}
	t.Logf("CHOIR_LOOK_SEED=%d", seed)
	rnd := rand.New(rand.NewPCG(seed, 3))
	c := watched(t)
	var kept []*opened
	few := 0
	for step := range 150 {
		for range 1 + rnd.IntN(3) {
			switch rnd.IntN(8) {
			case 0:
				kept = append(kept, livingEdit(t, c, rnd)...)
			case 1, 2:
				if len(kept) > 0 {
					kept[rnd.IntN(len(kept))].store(t, byte('a'+rnd.IntN(26)))
				}
			case 3:
				if n := len(kept); n > 0 {
					kept[n-1].end(t)
					kept = kept[:n-1]
				}
			case 4:
				slyEdit(t, c, rnd)
			default:
				c.write(fmt.Sprintf("workspace/w/d%d/own%d", step%15, step), fmt.Sprint("step ", step, rnd.IntN(9)))
			}
		}
		if c.beside(false).NamesRead < 100 {
			few++
		}
		if all := c.beside(true); all.Created || len(all.Unseen) > 0 {
			t.Fatalf("step %d: a full scan made %+v", step, all.Commit)
		}
		if rnd.IntN(6) == 0 { // and once more into a page that was written to already
			believed(t)
			c.beside(false)
			for _, o := range kept {
				o.store(t, byte('a'+rnd.IntN(26)))
			}
			c.beside(false)
			c.holdsAll(fmt.Sprint("step ", step))
		}
		if rnd.IntN(10) == 0 { // all of them end, and others begin
			for _, o := range kept {
				o.end(t)
			}
			kept = nil
			c.underStill(fmt.Sprint("step ", step))
			c.underStill(fmt.Sprint("step ", step))
		}
	}
	for _, o := range kept {
		o.end(t)
	}
	t.Logf("%d of 150 scans were not full ones", few)
	if few < 10 {
		t.Errorf("only %d of the scans were not full ones", few)
	}
}

// livingEdit opens a file in one of the ways in which it can be opened.
func livingEdit(t *testing.T, c *computer, rnd *rand.Rand) []*opened {
	t.Helper()
	name := c.path(fmt.Sprintf("workspace/w/d%d/f%d", rnd.IntN(15), rnd.IntN(60)))
	if st, err := os.Lstat(name); err != nil || !st.Mode().IsRegular() || st.Size() == 0 {
		return nil
	}
	switch rnd.IntN(4) {
	case 0:
		return []*opened{openFor(t, name)}
	case 1: // through the descriptor of somebody who can only name the file
		at, err := unix.Open(name, unix.O_PATH, 0)
		must(t, err)
		o := openFor(t, fmt.Sprintf("/proc/self/fd/%d", at))
		must(t, unix.Close(at))
		return []*opened{o}
	case 2: // and then moved
		o := openFor(t, name).mapIt(t)
		must(t, os.Rename(name, filepath.Dir(name)+"/moved"))
		return []*opened{o}
	}
	return []*opened{openFor(t, name).mapIt(t)}
}
