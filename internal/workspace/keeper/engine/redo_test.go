package engine_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/workspace/keeper/engine"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// pending is a put whose names were not waited for, as its record in the trash says.
type pending struct {
	id, path string
	fresh    bool // nothing was there before the put
}

// putAndDie has a child make puts to paths and die by SIGKILL, and returns in their order those
// that are not known to be on disk. Their contents are "put 0", "put 1" and so on.
func putAndDie(t *testing.T, c *computer, pad int, paths ...string) []pending {
	t.Helper()
	return actsAndDie(t, c, "puts", pad, paths...)
}

// actsAndDie is putAndDie for what a child does of any kind.
func actsAndDie(t *testing.T, c *computer, do string, pad int, what ...string) []pending {
	t.Helper()
	if c.Engine != nil {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		c.Engine = nil
	}
	var ahead time.Duration
	if c.opts.Now != nil {
		ahead = time.Until(c.opts.Now())
	}
	if !runChild(t, childSpec{Root: c.opts.Root, Snapshots: c.opts.Snapshots, Uppers: c.opts.Uppers, Do: do, Pad: pad, Ahead: ahead, To: strings.Join(what, "\n")}) {
		t.Fatal("it was not killed")
	}
	files, err := filepath.Glob(c.path(".git/choir/trash/*/redo"))
	if err != nil {
		t.Fatal(err)
	}
	type turned struct {
		pending
		turn int
	}
	var all []turned
	for _, file := range files {
		var r struct {
			Turn int `json:"turn"`
			Was  *struct{}
		}
		var m struct{ Path string }
		readJSON(t, file, &r)
		readJSON(t, filepath.Join(filepath.Dir(file), "meta.json"), &m)
		all = append(all, turned{pending{filepath.Base(filepath.Dir(file)), m.Path, r.Was == nil}, r.Turn})
	}
	slices.SortFunc(all, func(a, b turned) int { return a.turn - b.turn })
	out := make([]pending, len(all))
	for i, a := range all {
		out[i] = a.pending
	}
	return out
}

func readJSON(t *testing.T, file string, v any) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// takeBack undoes what a put did to names, as if the power cut had come before they were on disk.
func (p pending) takeBack(t *testing.T, c *computer) {
	t.Helper()
	flag := uint(unix.RENAME_EXCHANGE)
	if p.fresh {
		flag = unix.RENAME_NOREPLACE
	}
	if err := unix.Renameat2(unix.AT_FDCWD, c.path(p.path), unix.AT_FDCWD, p.content(c), flag); err != nil {
		t.Fatal(err)
	}
}

func (p pending) entry(c *computer) string   { return c.path(".git/choir/trash/" + p.id) }
func (p pending) content(c *computer) string { return filepath.Join(p.entry(c), "content") }

// lost says what else of a put's names a power cut took.
var lost = map[string]func(t *testing.T, c *computer, p pending){
	"nothing": func(*testing.T, *computer, pending) {},
	"content": func(t *testing.T, c *computer, p pending) {
		if !p.fresh { // otherwise the file would have come and gone
			removed(t, p.content(c))
		}
	},
	"records": func(t *testing.T, c *computer, p pending) {
		for _, name := range []string{"meta.json", "redo", "uncaptured"} {
			removed(t, filepath.Join(p.entry(c), name))
		}
	},
	"all": func(t *testing.T, c *computer, p pending) { removed(t, p.entry(c)) },
	"all but the file": func(t *testing.T, c *computer, p pending) {
		if err := os.Rename(p.content(c), c.path(".git/choir/incoming-"+p.id)); err != nil {
			t.Fatal(err)
		}
		removed(t, p.entry(c))
	},
}

func removed(t *testing.T, name string) {
	t.Helper()
	if err := os.RemoveAll(name); err != nil {
		t.Fatal(err)
	}
}

// TestAPowerCutKeepsWhatWasPut has the machine end after acknowledged puts, of whose changes of
// names any number is on disk, in the order in which they were made, with more or less of the
// others' records. After the start each file must have what was put last, what each put displaced
// must be in the trash, and each put must be reported once.
func TestAPowerCutKeepsWhatWasPut(t *testing.T) {
	t.Parallel()
	paths := []string{"a", "a", "new/dir/b", "a", "new/dir/b"}
	displaced := []string{"first", "put 0", "", "put 1", "put 2"}
	for what, lose := range lost {
		for kept := range len(paths) + 1 {
			if kept == len(paths) && what != "nothing" {
				continue
			}
			t.Run(fmt.Sprintf("%d kept, of the others %s is lost", kept, what), func(t *testing.T) {
				c := open(t)
				c.write("a", "first")
				puts := putAndDie(t, c, 0, paths...)
				if len(puts) != len(paths) {
					t.Fatalf("%d puts are not known to be on disk", len(puts))
				}
				for _, p := range slices.Backward(puts[kept:]) {
					p.takeBack(t, c)
				}
				for _, p := range puts[kept:] {
					lose(t, c, p)
				}
				if kept <= 2 {
					removed(t, c.path("new"))
				}
				for range 2 { // a second start changes nothing
					c.reopen()
					if a, b := c.read("a"), c.read("new/dir/b"); a != "put 3" || b != "put 4" {
						t.Errorf("a holds %q and b %q", a, b)
					}
					for i, p := range puts {
						got, err := os.ReadFile(p.content(c))
						if string(got) != displaced[i] || err != nil && displaced[i] != "" {
							t.Errorf("put %d displaced %q, %v; want %q", i, got, err, displaced[i])
						}
					}
					operations, err := c.UnloggedOperations(t.Context())
					if err != nil || len(operations) != len(paths) {
						t.Errorf("%d puts are told, %v", len(operations), err)
					}
				}
				if left, err := filepath.Glob(c.path(".git/choir/trash/*/redo")); err != nil || len(left) > 0 {
					t.Errorf("left: %v, %v", left, err)
				}
				if _, err := c.Undo(t.Context(), wire.UndoRequest{Op: "write", ID: puts[3].id, Path: "a"}); err != nil || c.read("a") != "put 1" {
					t.Errorf("undone: %q, %v", c.read("a"), err)
				}
			})
		}
	}
}

// TestAPutOverWhatAPowerCutTookTooIsThere shows that a put is there although the file of a
// program's that it displaced did not reach the disk either, so that something older is in its
// place.
func TestAPutOverWhatAPowerCutTookTooIsThere(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"tmp > a", " > a"} {
		for _, kill := range []string{"", "journal.synced", "puts.synced"} {
			t.Run(program+", "+kill, func(t *testing.T) {
				c := open(t)
				c.write("a", "first")
				c.write("tmp", "a program's")
				puts := putAndDie(t, c, 0, "a", program, "a", "a")
				if len(puts) != 3 {
					t.Fatalf("%d puts are not known to be on disk", len(puts))
				}
				puts[2].takeBack(t, c)
				puts[1].takeBack(t, c)
				lost["all"](t, c, puts[2])
				lost["all"](t, c, puts[1])
				if err := os.Rename(c.path("a.old"), c.path("a")); err != nil {
					t.Fatal(err)
				}
				if kill != "" && !runChild(t, childSpec{Root: c.opts.Root, Snapshots: c.opts.Snapshots, Uppers: c.opts.Uppers, Point: kill, Nth: 1}) {
					t.Fatal("it was not killed")
				}
				c.reopen()
				if got := c.read("a"); got != "put 3" {
					t.Errorf("a holds %q", got)
				}
				for i, want := range []string{"first", "put 0", "put 2"} {
					if got, err := os.ReadFile(puts[i].content(c)); string(got) != want {
						t.Errorf("put %d displaced %q, %v; want %q", i, got, err, want)
					}
				}
			})
		}
	}
}

// TestACopyOfAllFilesIsWhatItIs shows that in a copy of all files, where no inode is what it was, a
// put is not repeated over what came after it.
func TestACopyOfAllFilesIsWhatItIs(t *testing.T) {
	c := open(t)
	c.write("a", "first")
	putAndDie(t, c, 0, "fresh", "a")
	c.write("fresh", "newer")
	to := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", c.opts.Root+"/.", to).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c.opts.Root = to
	c.reopen()
	if a, b := c.read("a"), c.read("fresh"); a != "put 1" || b != "newer" {
		t.Errorf("a holds %q and fresh %q", a, b)
	}
}

// TestAStartThatPutsAgainMayDie shows that when a keeper is killed while it repeats puts that a
// power cut took, the next one continues.
func TestAStartThatPutsAgainMayDie(t *testing.T) {
	t.Parallel()
	for _, at := range []struct {
		point string
		nth   int32
	}{{"journal.synced", 1}, {"journal.synced", 2}, {"journal.synced", 3}, {"journal.synced", 4}, {"puts.synced", 1}} {
		t.Run(fmt.Sprintf("%s %d", at.point, at.nth), func(t *testing.T) {
			c := open(t)
			c.write("a", "first")
			puts := putAndDie(t, c, 0, "a", "a", "b")
			for _, p := range slices.Backward(puts) {
				p.takeBack(t, c)
			}
			for _, p := range puts {
				lost["all"](t, c, p)
			}
			if !runChild(t, childSpec{Root: c.opts.Root, Snapshots: c.opts.Snapshots, Uppers: c.opts.Uppers, Point: at.point, Nth: at.nth}) {
				t.Fatal("it was not killed")
			}
			c.reopen()
			if a, b := c.read("a"), c.read("b"); a != "put 1" || b != "put 2" {
				t.Errorf("a holds %q and b %q", a, b)
			}
			for i, want := range []string{"first", "put 0"} {
				if got, err := os.ReadFile(puts[i].content(c)); string(got) != want {
					t.Errorf("put %d displaced %q, %v; want %q", i, got, err, want)
				}
			}
		})
	}
}

// TestWhatIsNewerThanAPutStays shows that a put is not repeated over what a program did after it
// and what of that reached the disk, and that what was put is in the history then.
func TestWhatIsNewerThanAPutStays(t *testing.T) {
	t.Parallel()
	for what, does := range map[string]func(c *computer, p string) error{
		"writes over it": func(c *computer, p string) error { return os.WriteFile(c.path(p), []byte("newer"), 0o644) },
		"empties it":     func(c *computer, p string) error { return os.Truncate(c.path(p), 0) },
		"replaces it": func(c *computer, p string) error {
			return errorsOf(os.WriteFile(c.path("tmp"), []byte("newer"), 0o644), os.Rename(c.path("tmp"), c.path(p)))
		},
		"moves it":             func(c *computer, p string) error { return os.Rename(c.path(p), c.path("elsewhere")) },
		"removes it":           func(c *computer, p string) error { return os.Remove(c.path(p)) },
		"makes a folder of it": func(c *computer, p string) error { return errorsOf(os.Remove(c.path(p)), os.Mkdir(c.path(p), 0o755)) },
		"moves its folder":     func(c *computer, _ string) error { return os.Rename(c.path("d"), c.path("e")) },
		"makes a file of its folder": func(c *computer, _ string) error {
			return errorsOf(os.RemoveAll(c.path("d")), os.WriteFile(c.path("d"), []byte("newer"), 0o644))
		},
	} {
		for _, p := range []string{"d/was", "d/fresh"} {
			t.Run(what+" "+p, func(t *testing.T) {
				c := open(t)
				c.write("d/was", "first")
				c.checkpoint("before")
				puts := putAndDie(t, c, 0, p)
				if err := does(c, p); err != nil {
					t.Fatal(err)
				}
				want := picture(t, c.opts.Root)
				for range 2 {
					c.wake()
					samePicture(t, picture(t, c.opts.Root), want)
				}
				if got, _ := os.ReadFile(puts[0].content(c)); p == "d/was" && string(got) != "first" {
					t.Errorf("the trash holds %q", got)
				}
				c.checkpoint("after")
				if !strings.Contains(everything(t, c), "put 0") {
					t.Error("what was put is nowhere")
				}
			})
		}
	}
}

// TestAPutOfWhatWasThereIsKept shows that a put of the content that the file already had counts as
// done, although what it displaced does not tell that, and that a program that writes over it loses
// nothing of it, also when the keeper dies before it was told that the put is logged.
func TestAPutOfWhatWasThereIsKept(t *testing.T) {
	t.Parallel()
	c := open(t)
	c.write("a", "put 0")
	putAndDie(t, c, 0, "a")
	c.write("a", "newer")
	c.wake()
	if operations, err := c.UnloggedOperations(t.Context()); err != nil || len(operations) != 1 {
		t.Errorf("told: %v, %v", operations, err)
	}
	c.checkpoint("after")
	if !strings.Contains(everything(t, c), "put 0") {
		t.Error("what was put is nowhere")
	}
}

// TestAPutMakesOneFileOfItsRecords shows that all records of a put are one file with several names,
// because creating a file takes a file system longer than all else that a put does with it.
func TestAPutMakesOneFileOfItsRecords(t *testing.T) {
	t.Parallel()
	c := open(t)
	c.write("a", "first")
	w, err := c.Write(t.Context(), wire.WriteRequest{Path: "a"}, strings.NewReader("put"))
	if err == nil {
		err = c.OperationsLogged(t.Context(), []string{w.Op})
	}
	if err != nil {
		t.Fatal(err)
	}
	entry := func(name string) string { return c.path(".git/choir/trash/" + w.Op + "/" + name) }
	record, err := os.Lstat(entry("meta.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"redo", "uncaptured", "took", "told"} {
		if st, err := os.Lstat(entry(name)); err != nil || !os.SameFile(st, record) {
			t.Errorf("%s is a file of its own, or none: %v", name, err)
		}
	}
	// Whichever of them is removed or written anew, the others stay as they are.
	c.checkpoint("after")
	if err := c.OperationsLogged(t.Context(), []string{w.Op}); err != nil {
		t.Fatal(err)
	}
	var m struct{ Path string }
	if readJSON(t, entry("meta.json"), &m); m.Path != "a" {
		t.Errorf("the record is of %q", m.Path)
	}
}

func errorsOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// TestWhatAProgramWroteToWhatIsDisplacedAgain shows that what a program writes into the trash,
// through a descriptor of a file that a put displaced, stays when the put is done again.
func TestWhatAProgramWroteToWhatIsDisplacedAgain(t *testing.T) {
	c := open(t)
	c.write("a", "first")
	puts := putAndDie(t, c, 0, "a")
	puts[0].takeBack(t, c)
	f, err := os.OpenFile(c.path("a"), os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = f.WriteString(" and more")
	}
	if err := errorsOf(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	c.reopen()
	if got := c.read("a"); got != "put 0" {
		t.Errorf("a holds %q", got)
	}
	if got, err := os.ReadFile(puts[0].content(c)); string(got) != "first and more" {
		t.Errorf("the trash holds %q, %v", got, err)
	}
}

// TestAPutOfWhichAProgramWasFasterIsSynced shows that a put that displaces something other than
// what was there when it was recorded is synced at once. A start could not recognise what it
// displaced, so the put is not left to a start.
func TestAPutOfWhichAProgramWasFasterIsSynced(t *testing.T) {
	for _, first := range []string{"first", ""} {
		c := open(t)
		if first != "" {
			c.write("a", first)
		}
		c.write("tmp", "newer")
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		c.Engine = nil
		runChild(t, childSpec{Root: c.opts.Root, Snapshots: c.opts.Snapshots, Uppers: c.opts.Uppers, Do: "puts", To: "a", Faster: "tmp"})
		if left, err := filepath.Glob(c.path(".git/choir/trash/*/redo")); err != nil || len(left) > 0 {
			t.Errorf("left to the next start: %v, %v", left, err)
		}
		c.reopen()
		if got := c.read("a"); got != "put 0" {
			t.Errorf("a holds %q", got)
		}
		if got := trashed(t, c)["a"]; got != "newer" {
			t.Errorf("the trash holds %q", got)
		}
	}
}

// TestAPutThatNeverWasInTheJournal shows that nothing is left after a start of a put whose entry is
// torn, and which therefore was not acknowledged.
func TestAPutThatNeverWasInTheJournal(t *testing.T) {
	c := open(t)
	c.write("a", "first")
	puts := putAndDie(t, c, 0, "a", "a")
	journal := c.path(".git/choir/journal")
	st, err := os.Stat(journal)
	if err == nil {
		err = os.Truncate(journal, st.Size()-1)
	}
	if err != nil {
		t.Fatal(err)
	}
	puts[1].takeBack(t, c)
	lost["records"](t, c, puts[1])
	c.reopen()
	if got := c.read("a"); got != "put 0" {
		t.Errorf("a holds %q", got)
	}
	if got, err := os.ReadFile(puts[0].content(c)); string(got) != "first" {
		t.Errorf("the trash holds %q, %v", got, err)
	}
	if operations, err := c.UnloggedOperations(t.Context()); err != nil || len(operations) != 1 {
		t.Errorf("told: %+v, %v", operations, err)
	}
}

// TestPutsOutliveTheJournal shows that puts are still repeated after the journal was full and began
// anew, because their records hold them.
func TestPutsOutliveTheJournal(t *testing.T) {
	t.Parallel()
	c := open(t)
	c.write("a", "first")
	puts := putAndDie(t, c, 600<<10, slices.Repeat([]string{"a"}, 34)...)
	if st, err := os.Stat(c.path(".git/choir/journal")); err != nil || st.Size() > 10<<20 {
		t.Fatalf("the journal did not begin anew: %d bytes, %v", st.Size(), err)
	}
	if len(puts) != 34 {
		t.Fatalf("%d puts are not known to be on disk", len(puts))
	}
	for _, p := range slices.Backward(puts) {
		p.takeBack(t, c)
	}
	lost["content"](t, c, puts[0])
	c.reopen()
	if got := c.read("a"); !strings.HasPrefix(got, "put 33") {
		t.Errorf("a holds %.20q", got)
	}
	for i, want := 0, "first"; i < len(puts); i, want = i+1, fmt.Sprintf("put %d", i) {
		if got, err := os.ReadFile(puts[i].content(c)); !strings.HasPrefix(string(got), want) {
			t.Errorf("put %d displaced %.20q, %v; want %q", i, got, err, want)
		}
	}
}

// TestActsAreSettled shows that before anything but a put, a removal or a move changes the tree, the
// ones before it are on disk, and that they are at a command's end, at a shutdown, and at one that
// many others were made before.
func TestActsAreSettled(t *testing.T) {
	ctx := t.Context()
	for what, do := range map[string]func(c *computer) error{
		"checkpoint": func(c *computer) error { _, err := c.Checkpoint(ctx, wire.CheckpointRequest{}); return err },
		"import": func(c *computer) error {
			archive, err := smallArchive("file", "imported")
			if err == nil {
				_, err = c.Import(ctx, wire.ImportRequest{Path: "workspace/new"}, archive)
			}
			return err
		},
		"settle":   func(c *computer) error { return c.Settle(ctx) },
		"shutdown": func(c *computer) error { return c.Shutdown(ctx) },
		"many": func(c *computer) error {
			for i := range 30 {
				c.put("a", fmt.Sprint(i))
				_, err := c.Move(ctx, wire.MoveRequest{From: "a", To: "c"})
				if err == nil {
					_, err = c.Remove(ctx, wire.RemoveRequest{Path: "c"})
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(what, func(t *testing.T) {
			c := open(t)
			c.put("gone", "put")
			c.put("d/a", "put")
			_, err := c.Remove(ctx, wire.RemoveRequest{Path: "gone"})
			if err == nil {
				_, err = c.Move(ctx, wire.MoveRequest{From: "d", To: "e"})
			}
			must(t, err)
			first, err := filepath.Glob(c.path(".git/choir/trash/*/redo"))
			if err != nil || len(first) != 4 {
				t.Fatalf("%d changes are not known to be on disk, %v", len(first), err)
			}
			if err := do(c); err != nil {
				t.Fatal(err)
			}
			for _, file := range first {
				if _, err := os.Stat(file); !os.IsNotExist(err) {
					t.Errorf("%s is not settled: %v", file, err)
				}
			}
		})
	}
}

// TestAPutIsSettledBeforeAnEarlierPlanIsApplied shows that a publish that was prepared before a put
// also finds the put on disk.
func TestAPutIsSettledBeforeAnEarlierPlanIsApplied(t *testing.T) {
	ctx := t.Context()
	var c *computer
	left, steps := 0, 0
	c = open(t, func(o *engine.Options) {
		o.Crash = func(point string) {
			if point == "apply.step" {
				found, err := filepath.Glob(c.path(".git/choir/trash/*/redo"))
				must(t, err)
				left, steps = left+len(found), steps+1
			}
		}
	})
	c.write("a", "one")
	first := c.checkpoint("first").Commit.Commit
	c.write("a", "two")
	second := c.checkpoint("second").Commit.Commit
	_, err := c.Prepare(ctx, wire.PrepareRequest{ID: "p", Base: second, Tree: first, Note: wire.Note{Message: "back"}})
	must(t, err)
	c.put("b", "put")
	must(t, c.Begin(ctx, "p"))
	_, err = c.Apply(ctx, "p")
	must(t, err)
	if left > 0 || steps == 0 {
		t.Errorf("in %d steps %d puts were not known to be on disk", steps, left)
	}
}
