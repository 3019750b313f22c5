package engine_test

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/engine"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// opened returns what is told of a file, and all of its content.
func (c *computer) opened(p string) (id, state, content string) {
	c.t.Helper()
	o, err := c.Open(c.t.Context(), p)
	if err != nil {
		c.t.Fatal(err)
	}
	defer o.Close()
	b, err := io.ReadAll(io.NewSectionReader(o, 0, o.Size))
	if err != nil || o.Whole() != nil {
		c.t.Fatalf("%v, %v", err, o.Whole())
	}
	return o.ID, o.State, string(b)
}

var largeText = strings.Repeat("0123456789abcde\n", 1<<17) // 2 MiB

// TestALargeFileIsNamedByItsState shows that a large file that is in no checkpoint yet has an id
// too. It is made of the file's state, which every change alters, whatever time a program sets
// afterwards.
func TestALargeFileIsNamedByItsState(t *testing.T) {
	c := open(t)
	c.write("big", largeText)
	id, state, content := c.opened("big")
	if id == "" || id != state || content != largeText {
		t.Fatalf("it is %q in state %q", id, state)
	}
	if again, _, _ := c.opened("big"); again != id {
		t.Errorf("asked again, it is %q; it was %q", again, id)
	}
	// The file is changed without changing its size, and then its old time is set again.
	st, err := os.Stat(c.path("big"))
	if err != nil {
		t.Fatal(err)
	}
	c.write("big", strings.ToUpper(largeText))
	if err := os.Chtimes(c.path("big"), st.ModTime(), st.ModTime()); err != nil {
		t.Fatal(err)
	}
	changed, _, _ := c.opened("big")
	if changed == "" || changed == id {
		t.Errorf("changed, it is %q; it was %q", changed, id)
	}
	// Once a checkpoint holds the file, its content's id is known without reading it.
	c.checkpoint("big")
	captured, state, _ := c.opened("big")
	if info, err := c.Stat(c.ctx(), "big"); err != nil || captured == changed && captured == state || len(captured) != len(info.ID) && captured != state {
		t.Errorf("captured, it is %q (%v)", captured, err)
	}
}

// TestAFileThatIsWrittenHasNoName shows that a file that somebody has open for writing, or mapped,
// has no id, because what was read under an id could change and keep it.
func TestAFileThatIsWrittenHasNoName(t *testing.T) {
	c := open(t)
	c.write("big", largeText)
	f, err := os.OpenFile(c.path("big"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if id, _, _ := c.opened("big"); id != "" {
		t.Errorf("while a program has it open for writing it is %q", id)
	}
	page, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if id, _, _ := c.opened("big"); id != "" {
		t.Errorf("while a program has it mapped it is %q", id)
	}
	if err := unix.Munmap(page); err != nil {
		t.Fatal(err)
	}
	if id, _, _ := c.opened("big"); id == "" {
		t.Error("once nobody writes to it, it has no name")
	}
}

// TestWhatIsReadIsWhatWasNamed shows that what is read of a large file under its id is all of one
// state, or is known not to be, and that of a small file the bytes that were hashed are the bytes
// that are returned.
func TestWhatIsReadIsWhatWasNamed(t *testing.T) {
	c := open(t)
	c.write("big", largeText)
	c.write("small", "one\n")
	big, err := c.Open(c.ctx(), "big")
	if err != nil {
		t.Fatal(err)
	}
	defer big.Close()
	small, err := c.Open(c.ctx(), "small")
	if err != nil {
		t.Fatal(err)
	}
	defer small.Close()
	if big.ID == "" || big.Whole() != nil || small.Whole() != nil {
		t.Fatalf("%q: %v, %v", big.ID, big.Whole(), small.Whole())
	}
	for _, p := range []string{"big", "small"} {
		f, err := os.OpenFile(c.path(p), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte("X"), 0); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if big.Whole() == nil {
		t.Error("a large file that was written to meanwhile is taken for what was opened")
	}
	b := make([]byte, small.Size)
	if _, err := small.ReadAt(b, 0); err != nil || !bytes.Equal(b, []byte("one\n")) || small.Whole() != nil {
		t.Errorf("of a small one came %q (%v), %v", b, err, small.Whole())
	}
	if err := os.Symlink("small", c.path("link")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Open(c.ctx(), "link"); !fault.Is(err, fault.Invalid) {
		t.Errorf("a link: %v", err)
	}
}

// TestAPutOverAState shows that a put may name what it displaces by its state, and that it does not
// replace what a program put there in between.
func TestAPutOverAState(t *testing.T) {
	faster := false
	var c *computer
	c = open(t, func(o *engine.Options) {
		o.Crash = func(point string) {
			if point == "trash.intended" && faster {
				faster = false
				c.write("big", "a program was faster")
			}
		}
	})
	put := func(only, content string) error {
		_, err := c.Write(c.ctx(), wire.WriteRequest{Path: "big", If: only}, strings.NewReader(content))
		return err
	}
	c.write("big", largeText)
	was, _, _ := c.opened("big")
	c.write("big", strings.ToUpper(largeText))
	if err := put(was, "put"); !fault.Is(err, fault.Conflict) || c.read("big") != strings.ToUpper(largeText) {
		t.Fatalf("over a state that has gone: %v", err)
	}
	is, _, _ := c.opened("big")
	faster = true
	if err := put(is, "put"); !fault.Is(err, fault.Conflict) || faster || c.read("big") != "a program was faster" {
		t.Fatalf("over a change in between: %v", err)
	}
	c.write("big", largeText)
	is, _, _ = c.opened("big")
	if err := put(is, "put"); err != nil || c.read("big") != "put" {
		t.Errorf("over the state that it is in: %v", err)
	}
}

// TestARemovalOfWhatWasRead shows that a removal may name what it removes. What was taken is
// compared with that, and goes back where it was when it is something else.
func TestARemovalOfWhatWasRead(t *testing.T) {
	var c *computer
	var late *os.File
	c = open(t, func(o *engine.Options) {
		o.Crash = func(point string) {
			if point == "trash.moved" && late != nil {
				if _, err := late.WriteAt([]byte("late"), 0); err != nil {
					t.Error(err)
				}
				late = nil
			}
		}
	})
	c.write("a", "first\n")
	c.write("folder/a", "x\n")
	first, _, _ := c.opened("a")
	remove := func(p, only string) error {
		_, err := c.Remove(c.ctx(), wire.RemoveRequest{Path: wire.Path(p), If: only})
		return err
	}
	trash := func() int {
		r, err := c.Trash(c.ctx(), wire.TrashRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return len(r.Items)
	}
	c.write("a", "second\n")
	for p, only := range map[string]string{"a": first, "folder": first} {
		if err := remove(p, only); !fault.Is(err, fault.Conflict) || trash() != 0 {
			t.Errorf("%s, as what it is not: %v; %d in the trash", p, err, trash())
		}
	}
	if err := remove("a", "none"); !fault.Is(err, fault.Conflict) {
		t.Errorf("only if nothing is there: %v", err)
	}
	second, _, _ := c.opened("a")
	f, err := os.OpenFile(c.path("a"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	late = f
	if err := remove("a", second); !fault.Is(err, fault.Conflict) || c.read("a") != "latend\n" || trash() != 0 {
		t.Errorf("written to as it was taken: %v; it holds %q, and %d are in the trash", err, c.read("a"), trash())
	}
	if operations, err := c.UnloggedOperations(c.ctx()); err != nil || len(operations) != 0 {
		t.Errorf("told: %+v, %v", operations, err)
	}
	third, _, _ := c.opened("a")
	if err := remove("a", third); err != nil || trash() != 1 {
		t.Errorf("as what it is: %v; %d in the trash", err, trash())
	}
	if err := remove("folder", "any"); err != nil || trash() != 2 {
		t.Errorf("whatever it is: %v; %d in the trash", err, trash())
	}
}
