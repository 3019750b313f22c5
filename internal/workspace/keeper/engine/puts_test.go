package engine_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"choir.dev/choiros/internal/workspace/keeper/wire"
	"pgregory.net/rapid"
)

func (c *computer) put(p, content string) {
	c.t.Helper()
	if _, err := c.Write(c.t.Context(), wire.WriteRequest{Path: wire.Path(p)}, strings.NewReader(content)); err != nil {
		c.t.Fatal(err)
	}
}

// wake opens the engine as a computer does that wakes.
func (c *computer) wake() {
	c.t.Helper()
	c.reopen()
	if _, err := c.Heal(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
}

// inHistory returns what each checkpoint of the main line, newest first, holds at a path, or "-"
// where it holds nothing.
func (c *computer) inHistory(p string) []string {
	c.t.Helper()
	list, err := c.List(c.t.Context(), wire.ListRequest{Limit: 100})
	if err != nil {
		c.t.Fatal(err)
	}
	out := make([]string, len(list))
	for i, commit := range list {
		var b strings.Builder
		if _, _, err := c.Show(c.t.Context(), commit.Commit, p, 1<<20, &b); err != nil {
			b.Reset()
			b.WriteString("-")
		}
		out[i] = b.String()
	}
	return out
}

// TestWhatAProgramDoesToAPutIsNotItsEnd shows that what was put is in the history although a
// program wrote over it or removed it before there was a checkpoint, whether the keeper lives on,
// ends or is killed meanwhile.
func TestWhatAProgramDoesToAPutIsNotItsEnd(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		program func(c *computer)
		put     []string
		path    string // "a" when empty
		history string // the versions of a, newest first
	}{
		"it stays":              {put: []string{"put"}, history: "put first"},
		"written over in place": {program: func(c *computer) { c.write("a", "program") }, put: []string{"put"}, history: "program put first"},
		"the same again":        {program: func(c *computer) { c.write("a", "first") }, put: []string{"put"}, history: "first put first"},
		"what it was":           {program: func(c *computer) { c.write("a", "program") }, put: []string{"first"}, history: "program first"},
		"removed":               {program: func(c *computer) { remove(c, "a") }, put: []string{"put"}, history: "- put first"},
		"renamed":               {program: func(c *computer) { rename(c, "a", "b") }, put: []string{"put"}, history: "- first"},
		"displaced by a put":    {put: []string{"one", "two"}, history: "two first"},
		"a folder now":          {program: func(c *computer) { remove(c, "a"); c.write("a/b/c", "x") }, put: []string{"put"}, history: "- put first"},
		"in a folder that was a file": {
			program: func(c *computer) { remove(c, "d"); c.write("d", "a file again") },
			put:     []string{"put"}, path: "d/e", history: "first first first",
		},
		"in an ignored folder": {program: func(c *computer) { c.write("ignored/x", "program") }, put: []string{"put"}, path: "ignored/x", history: "first"},
	} {
		for _, end := range []string{"", "shutdown", "killed"} {
			t.Run(name+" "+end, func(t *testing.T) {
				c := open(t)
				c.write("a", "first")
				c.write(".gitignore", "ignored/\n")
				c.checkpoint("first")
				p := "a"
				if test.path != "" {
					p = test.path
				}
				for _, content := range test.put {
					c.put(p, content)
				}
				if end != "" {
					c.ended(t, end)
				}
				if test.program != nil {
					test.program(c)
				}
				if end != "" {
					c.wake()
				}
				r := c.checkpoint("after")
				want := strings.Fields(test.history)
				if got := c.inHistory("a"); fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("the history of a is %q; want %q", got, want)
				}
				if test.path == "d/e" && fmt.Sprint(c.inHistory(p)) != "[- put -]" {
					t.Errorf("the history of %s is %q", p, c.inHistory(p))
				}
				if made := len(want) - 2; made != len(r.Puts) && made >= 0 && len(want) > 1 {
					t.Errorf("the checkpoint tells of %d others, not of %d: %+v", len(r.Puts), made, r.Puts)
				}
				for _, put := range r.Puts {
					if put.Kind != "auto" || !strings.Contains(put.Message, p+" as it was put") {
						t.Errorf("%+v", put)
					}
				}
				// Capturing it once is enough, and the next keeper knows that.
				for range 2 {
					c.write("a2", "something else")
					if r := c.checkpoint("and again"); len(r.Puts) > 0 {
						t.Errorf("kept again: %+v", r.Puts)
					}
					c.ended(t, "killed")
					remove(c, "a2")
					c.wake()
				}
			})
		}
	}
}

func remove(c *computer, p string) {
	c.t.Helper()
	if err := os.RemoveAll(c.path(p)); err != nil {
		c.t.Fatal(err)
	}
}

func rename(c *computer, from, to string) {
	c.t.Helper()
	if err := os.Rename(c.path(from), c.path(to)); err != nil {
		c.t.Fatal(err)
	}
}

// TestPutsOfOneFileAreKeptOneByOne shows that each version that a program wrote over is there, in
// the order in which they were put.
func TestPutsOfOneFileAreKeptOneByOne(t *testing.T) {
	c := open(t)
	c.checkpoint("empty")
	for i := range 3 {
		for _, p := range []string{"a", "b"} {
			c.put(p, fmt.Sprintf("%s%d", p, i))
			c.write(p, "program")
		}
	}
	r := c.checkpoint("after")
	if len(r.Puts) > 4 {
		t.Errorf("%d checkpoints for three versions of two files", len(r.Puts))
	}
	for _, p := range []string{"a", "b"} {
		got := strings.Join(c.inHistory(p), " ")
		if i := strings.Index(got, p+"2"); i < 0 || !strings.Contains(got[i:], p+"1") || !strings.Contains(got[strings.Index(got, p+"1"):], p+"0") {
			t.Errorf("the history of %s is %s", p, got)
		}
	}
}

// TestALargePutIsKeptToo shows the same for a file that is kept as chunks.
func TestALargePutIsKeptToo(t *testing.T) {
	c := open(t, lowThreshold)
	c.checkpoint("empty")
	content := noise(3, 3*large)
	c.put("large", content)
	c.write("large", "program")
	if r := c.checkpoint("after"); len(r.Puts) != 1 {
		t.Fatalf("kept: %+v", r.Puts)
	}
	list, err := c.List(t.Context(), wire.ListRequest{Limit: 2})
	if err != nil {
		t.Fatal(err)
	}
	c.restore(wire.RestoreRequest{ID: "r", To: list[1].Commit})
	if c.read("large") != content {
		t.Error("it is another one")
	}
}

// TestAPutThatIsKeptMayDie kills the keeper while it captures what was put.
func TestAPutThatIsKeptMayDie(t *testing.T) {
	for _, point := range []string{"puts.written", "commit.done", "checkpoint.captured"} {
		t.Run(point, func(t *testing.T) {
			c := open(t)
			c.write("a", "first")
			c.checkpoint("first")
			c.put("a", "put")
			c.write("a", "program")
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			c.Engine = nil
			spec := childSpec{Root: c.opts.Root, Snapshots: c.opts.Snapshots, Uppers: c.opts.Uppers, Point: point, Nth: 1, Do: "checkpoint"}
			if !runChild(t, spec) {
				t.Fatal("it was not killed")
			}
			c.reopen()
			c.checkpoint("after")
			if got := strings.Join(c.inHistory("a"), " "); got != "program put first" {
				t.Errorf("the history of a is %s", got)
			}
			unmarked, err := c.Unmarked(t.Context())
			if err != nil || len(unmarked) != 3 {
				t.Errorf("%d checkpoints are to be told, %v", len(unmarked), err)
			}
		})
	}
}

// TestEveryPutIsSomewhere has puts, removals, moves, programs and checkpoints follow each other in
// any order.
func TestEveryPutIsSomewhere(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		c := open(t)
		paths := []string{"a", "b", "d", "d/e"}
		pick := func() string { return rapid.SampledFrom(paths).Draw(r, "path") }
		var puts []string
		ctx := context.Background()
		for i := range rapid.IntRange(1, 25).Draw(r, "steps") {
			p := pick()
			switch rapid.SampledFrom([]string{"put", "put", "write", "unlink", "checkpoint", "remove", "move", "killed", "shutdown"}).Draw(r, "what") {
			case "put":
				text := fmt.Sprintf("<put %d>", i)
				if _, err := c.Write(ctx, wire.WriteRequest{Path: wire.Path(p)}, strings.NewReader(text)); err == nil {
					puts = append(puts, text)
				}
			case "write":
				if os.MkdirAll(filepath.Dir(c.path(p)), 0o755) == nil {
					_ = os.WriteFile(c.path(p), []byte(fmt.Sprintf("<program %d>", i)), 0o644) // a folder may be there
				}
			case "unlink":
				_ = os.RemoveAll(c.path(p)) // its folder may be a file
			case "checkpoint":
				c.checkpoint("one")
			case "remove":
				_, _ = c.Remove(ctx, wire.RemoveRequest{Path: wire.Path(p)}) // nothing may be there
			case "move":
				_, _ = c.Move(ctx, wire.MoveRequest{From: wire.Path(p), To: wire.Path(pick())}) // likewise
			case "killed":
				c.ended(t, "killed")
				c.wake()
			case "shutdown":
				c.reopen()
			}
		}
		c.checkpoint("the last")
		all := everything(t, c)
		for _, text := range puts {
			if !strings.Contains(all, text) {
				r.Fatalf("%s is nowhere", text)
			}
		}
	})
}

// TestManyPutsCostACheckpointWhatTheyAre shows that four times as many puts, all of one size and
// none of them in a checkpoint yet, cost a checkpoint some four times the work and not sixteen
// times, and that the trash is read once.
func TestManyPutsCostACheckpointWhatTheyAre(t *testing.T) {
	for name, where := range map[string]func(i int) string{
		"of one file":     func(int) string { return "a" },
		"of many files":   func(i int) string { return fmt.Sprint("d/", i) },
		"in many folders": func(i int) string { return fmt.Sprintf("d/%d/%d", i%7, i) },
	} {
		t.Run(name, func(t *testing.T) {
			work := func(n int) uint64 {
				c := open(t)
				c.checkpoint("empty")
				for i := range n {
					c.put(where(i), fmt.Sprintf("%06d", i))
				}
				for i := range n {
					c.write(where(i), "program")
				}
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				r := c.checkpoint("after")
				runtime.ReadMemStats(&after)
				if len(r.Puts) != 1 {
					t.Fatalf("%d checkpoints of what was put", len(r.Puts))
				}
				return after.Mallocs - before.Mallocs
			}
			few, many := work(50), work(200)
			if many > 8*few {
				t.Errorf("%d allocations for 50 puts, %d for 200", few, many)
			}
		})
	}
}

// TestAPutInTheTrashThatAProgramHoldsIsKept shows that a put that another put displaced is kept
// although a program that has it open, or has another name of it, writes to it in the trash.
func TestAPutInTheTrashThatAProgramHoldsIsKept(t *testing.T) {
	for name, hold := range map[string]func(c *computer) (file string){
		"open for writing": func(c *computer) string {
			f, err := os.OpenFile(c.path("a"), os.O_RDWR, 0)
			if err != nil {
				c.t.Fatal(err)
			}
			c.t.Cleanup(func() { _ = f.Close() })
			return fmt.Sprint("/proc/self/fd/", f.Fd())
		},
		"open for reading": func(c *computer) string {
			f, err := os.Open(c.path("a"))
			if err != nil {
				c.t.Fatal(err)
			}
			c.t.Cleanup(func() { _ = f.Close() })
			return fmt.Sprint("/proc/self/fd/", f.Fd())
		},
		"another name in an ignored folder": func(c *computer) string {
			c.write("ignored/x", "x")
			if err := os.Link(c.path("a"), c.path("ignored/a")); err != nil {
				c.t.Fatal(err)
			}
			return c.path("ignored/a")
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := open(t)
			c.write(".gitignore", "ignored/\n")
			c.checkpoint("first")
			c.put("a", "one")
			file := hold(c)
			c.put("a", "two")
			c.checkpoint("after")
			if err := os.WriteFile(file, []byte("program"), 0o644); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(c.inHistory("a"), " "); got != "two one -" {
				t.Errorf("the history of a is %s, and in the trash is what the program wrote", got)
			}
		})
	}
}
