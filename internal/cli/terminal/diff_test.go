package terminal

import (
	"bufio"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/creack/pty"
)

// TestADiffHasColoursOnATerminal shows that a diff's lines are coloured by their meaning and not by
// their first character, and that in a pipe a diff has no colours and no alignment, so that tools
// can read it.
func TestADiffHasColoursOnATerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	const diff = "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1,3 +1,3 @@\n a\tb\tc\n--- \tgone\x1b[2J\n+++\tcome\n longer than that\tx\n@@ -9 +9 @@\n-x\n\\ No newline at end of file\n+y\n"
	plain := strings.ReplaceAll(diff, "\x1b", "")
	shows := func(w io.Writer) { Row(w, "one", "two"); Diff(w, diff); Coloured(w, Red, "removes", "a") }
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := Table(w, shows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || string(got) != "one  two\n"+plain+"removes  a\n" {
		t.Errorf("%v: in a pipe there is %q", err, got)
	}
	ours, theirs, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	defer theirs.Close()
	if err := Table(theirs, shows); err != nil {
		t.Fatal(err)
	}
	hues := []Hue{Plainly, Bold, Bold, Bold, Cyan, Plainly, Red, Green, Plainly, Cyan, Red, Plainly, Green, Red}
	lines := bufio.NewReader(ours)
	for i, want := range strings.Split("one  two\n"+plain+"removes  a", "\n") {
		if hues[i] != Plainly {
			want = "\x1b[" + string(hues[i]) + "m" + want + "\x1b[0m"
		}
		got, err := lines.ReadString('\n')
		if got = strings.TrimRight(got, "\r\n"); err != nil || strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(want), " ") {
			t.Errorf("%v: line %d is %q; want %q", err, i, got, want)
		}
	}
	t.Setenv("NO_COLOR", "1")
	if err := Table(theirs, func(w io.Writer) { Diff(w, "@@ -1 +1 @@\n-x\n") }); err != nil {
		t.Fatal(err)
	}
	if got, err := lines.ReadString('\n'); err != nil || strings.Contains(got, "\x1b") {
		t.Errorf("%v: with NO_COLOR there is %q", err, got)
	}
}
