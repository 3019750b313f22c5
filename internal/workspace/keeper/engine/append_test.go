package engine_test

import (
	"os"
	"strings"
	"testing"

	"choir.dev/choiros/internal/workspace/keeper/engine"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// TestAppendedLinesReachTheNewFile has a program append to a file, opening it anew each time,
// before and after the file was exchanged. Both versions must end with the user's lines, and an
// interruption right afterwards must not double them.
func TestAppendedLinesReachTheNewFile(t *testing.T) {
	var c *computer
	die := true
	add := func(name, line string) {
		f, err := os.OpenFile(c.path(name), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := f.WriteString(line); err != nil {
			t.Error(err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	exchanged := 0
	c = open(t, func(o *engine.Options) {
		o.Crash = func(point string) {
			switch point {
			case "apply.staging":
				add("workspace/a.log", "before\n")
				add("workspace/other.txt", "before\n")
			case "apply.exchanged":
				if exchanged++; exchanged == 1 {
					add("workspace/a.log", "after\n")
				} else {
					add("workspace/other.txt", "after\n")
				}
			case "apply.step":
				if die {
					die = false
					panic("the end")
				}
			}
		}
	})
	c.write("workspace/a.log", "1\n2\n3\nend\n")
	c.write("workspace/other.txt", "1\n2\n3\nend\n")
	k := c.begin("t1")
	k.write("workspace/a.log", "one\n2\n3\nend\n")
	k.write("workspace/other.txt", "1\n2\n3\nanother end\n")
	tree := k.tree()
	if _, err := c.Prepare(t.Context(), wire.PrepareRequest{ID: "p", Base: k.base, Tree: tree.Commit, Note: wire.Note{Message: "the task"}}); err != nil {
		t.Fatal(err)
	}
	if err := c.Begin(t.Context(), "p"); err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if p := recover(); p != "the end" {
				t.Fatalf("the applying ended with %v", p)
			}
		}()
		_, err := c.Apply(t.Context(), "p")
		t.Fatalf("the applying was not interrupted: %v", err)
	}()
	if got := c.read("workspace/a.log"); !strings.HasPrefix(got, "one\n") {
		t.Fatalf("a.log was not exchanged before the interruption: %q", got)
	}
	c.reopen()
	if _, err := c.Apply(t.Context(), "p"); err != nil {
		t.Fatal(err)
	}
	c.checkpoint("at rest")
	// Two files are staged, so each file got two lines before.
	if got := c.read("workspace/a.log"); got != "one\n2\n3\nend\nafter\nbefore\nbefore\n" {
		t.Errorf("a.log is %q", got)
	}
	// Where the task changed the end of the file as well, the lines stay in the version to which
	// the user wrote last, and the other version is kept.
	if got := c.read("workspace/other.txt"); !strings.Contains(got, "after\n") && !strings.Contains(got, "before\n") {
		t.Errorf("other.txt is %q", got)
	}
	if all := everything(t, c); !strings.Contains(all, "end\nbefore\nbefore\n") || !strings.Contains(all, "after\n") {
		t.Error("a line is lost")
	}
}

// TestLateLinesReachTheNewFile has a program keep a file open and append to it while a task changes
// the file and while others append to the new one.
func TestLateLinesReachTheNewFile(t *testing.T) {
	c := open(t)
	c.write("workspace/a.log", "1\n2\nend\n")
	k := c.begin("t1")
	k.write("workspace/a.log", "one\n2\nend\n")
	f, err := os.OpenFile(c.path("workspace/a.log"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	k.publish()
	for _, line := range []string{"first\n", "second\n"} {
		if _, err := f.WriteString(line); err != nil {
			t.Fatal(err)
		}
		g, err := os.OpenFile(c.path("workspace/a.log"), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.WriteString("another " + line); err != nil {
			t.Fatal(err)
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		c.checkpoint("looks at it")
		c.checkpoint("and again")
	}
	if got := c.read("workspace/a.log"); got != "one\n2\nend\nanother first\nfirst\nanother second\nsecond\n" {
		t.Errorf("a.log is %q", got)
	}
}
