package engine_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// ended closes the engine and makes it look as if it had ended in a given way.
func (c *computer) ended(t *testing.T, how string) {
	t.Helper()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	c.Engine = nil
	if got := c.read(".git/choir/open"); got != "closed "+strings.TrimSpace(string(boot)) {
		t.Fatalf("it shut down with %q", got)
	}
	switch how {
	case "shutdown":
	case "shutdown, then another boot":
		c.write(".git/choir/open", "closed another boot")
	case "killed":
		c.write(".git/choir/open", strings.TrimSpace(string(boot)))
	case "power cut":
		c.write(".git/choir/open", "another boot")
	case "nobody knows":
		if err := os.Remove(c.path(".git/choir/open")); err != nil {
			t.Fatal(err)
		}
	case "an empty note":
		c.write(".git/choir/open", "")
	default:
		t.Fatalf("there is no end %q", how)
	}
}

// TestWhichEndIsLookedInto shows that after a clean end nothing is taken for damage, apart from
// what nobody does on purpose when the machine ended later, and that an end that is not known to be
// clean is taken for an unclean one.
func TestWhichEndIsLookedInto(t *testing.T) {
	text := strings.Repeat("a line of somebody's work\n", 1000)
	for how, want := range map[string]string{
		"shutdown":                    "",
		"shutdown, then another boot": "zeroed",
		"killed":                      "emptied zeroed",
		"power cut":                   "emptied zeroed; new/empty new/zeroes",
		"nobody knows":                "emptied zeroed; new/empty new/zeroes",
		"an empty note":               "emptied zeroed; new/empty new/zeroes",
	} {
		t.Run(how, func(t *testing.T) {
			c := open(t)
			c.write("emptied", "work\n")
			c.write("zeroed", text)
			c.checkpoint("whole")
			c.ended(t, how)
			c.write("emptied", "")
			c.write("zeroed", strings.Repeat("\x00", len(text)))
			c.write("new/empty", "")
			c.write("new/zeroes", "\x00\x00\x00")
			c.write("new/text", "text\n")
			c.reopen()
			h, err := c.Heal(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var healed, suspect []string
			for _, f := range h.Healed {
				healed = append(healed, string(f.Path))
			}
			for _, f := range h.Suspect {
				suspect = append(suspect, string(f.Path))
			}
			got := strings.TrimSuffix(strings.Join(healed, " ")+"; "+strings.Join(suspect, " "), "; ")
			if got != want {
				t.Errorf("put back and suspect: %q; want %q", got, want)
			}
			if again, err := c.Heal(t.Context()); err != nil || len(again.Healed)+len(again.Suspect) > 0 {
				t.Errorf("again: %+v, %v", again, err)
			}
		})
	}
}

// TestWhatAPowerCutEmptiedIsNobodysWork shows that new files without content are in no checkpoint
// and are named in each, also by a later engine, until somebody changes them. Files that were
// acknowledged, or that are older than what a power cut can have emptied, are left as they are.
func TestWhatAPowerCutEmptiedIsNobodysWork(t *testing.T) {
	c := open(t)
	c.write("first", "first\n")
	c.checkpoint("whole")
	c.write("command/empty", "")
	c.write("command/zeroes", "\x00\x00")
	if err := c.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(t.Context(), wire.WriteRequest{Path: "put"}, strings.NewReader("")); err != nil {
		t.Fatal(err)
	}
	archive, err := smallArchive("empty", "")
	if err != nil {
		t.Fatal(err)
	}
	brought, err := c.Import(t.Context(), wire.ImportRequest{Path: "workspace/new"}, archive)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.OperationsLogged(t.Context(), []string{brought.ID}); err != nil {
		t.Fatal(err)
	}
	c.ended(t, "power cut")
	for _, p := range []string{"cut/written", "cut/touched", "cut/left", "cut/removed"} {
		c.write(p, "")
	}
	c.reopen()
	if _, err := c.Heal(t.Context()); err != nil {
		t.Fatal(err)
	}
	holds := func(k wire.CheckpointReply, want ...string) {
		t.Helper()
		got := strings.Fields(stockGit(t, c.opts.Root, "ls-tree", "-r", "--name-only", k.Commit.Commit))
		want = append(want, "first", "command/empty", "command/zeroes", "put", "workspace/new/empty")
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("the checkpoint holds %v; want %v", got, want)
		}
	}
	first := c.checkpoint("after the cut")
	holds(first)
	if len(first.Left) != 4 || !strings.Contains(first.Left[0].Reason, "touch it") || len(first.Skipped) != 4 {
		t.Errorf("left out: %+v; the commit says %v", first.Left, first.Skipped)
	}
	c.reopen()
	holds(c.checkpoint("a later engine"))
	c.write("cut/written", "at last\n")
	if err := os.Chtimes(c.path("cut/touched"), time.Now(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(c.path("cut/removed")); err != nil {
		t.Fatal(err)
	}
	k := c.checkpoint("touched")
	holds(k, "cut/written", "cut/touched")
	if len(k.Left) != 1 || k.Left[0].Path != "cut/left" {
		t.Errorf("left out: %+v", k.Left)
	}
	c.write("cut/removed", "")
	holds(c.checkpoint("another of the name"), "cut/written", "cut/touched", "cut/removed")
}

// TestAfterShutdownNothingChanges shows that an engine that has ended cleanly refuses changes,
// because they would not be synced and could not be told from those that were.
func TestAfterShutdownNothingChanges(t *testing.T) {
	c := open(t)
	c.write("a", "a\n")
	c.checkpoint("a")
	if err := c.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, put := c.Write(t.Context(), wire.WriteRequest{Path: "b"}, strings.NewReader("b"))
	_, move := c.Move(t.Context(), wire.MoveRequest{From: "a", To: "b"})
	_, removed := c.Remove(t.Context(), wire.RemoveRequest{Path: "a"})
	_, saved := c.Checkpoint(t.Context(), wire.CheckpointRequest{Force: true})
	for name, err := range map[string]error{"put": put, "move": move, "removal": removed, "checkpoint": saved, "folder": c.Mkdir(t.Context(), "d")} {
		if !fault.Is(err, fault.Unavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := c.Shutdown(t.Context()); err != nil {
		t.Errorf("again: %v", err)
	}
}

// TestAnEndBeforeTheCheckIsNoShutdown shows that when an engine ends before it has looked for damage,
// that is no clean end, so that the next engine still looks.
func TestAnEndBeforeTheCheckIsNoShutdown(t *testing.T) {
	c := open(t)
	c.write("a", "a\n")
	c.checkpoint("a")
	c.ended(t, "power cut")
	c.write("a", "")
	c.reopen()
	c.reopen()
	if h, err := c.Heal(t.Context()); err != nil || len(h.Healed) != 1 {
		t.Errorf("%+v, %v", h, err)
	}
}
