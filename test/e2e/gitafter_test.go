package e2e_test

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// TestWhatWasJustPushedIsEverywhere forks, exports, kills and recovers a computer right behind a
// push into its own files, one that is kept as files and one that is kept as a pack: each has what
// was pushed, with a history that stock git finds whole.
func TestWhatWasJustPushedIsEverywhere(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"as files": 100, "as a pack": 2 << 20} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := choirtest.Scratch(t)
			opts := choirtest.Options{Data: filepath.Join(dir, "data")}
			in := choirtest.Start(t, opts)
			var source []view.Computer
			in.JSON(t, &source, "computers")
			id := string(source[0].ID)
			clone := cloneFiles(t, in)
			content := make([]byte, size)
			for i := range content {
				content[i] = 'a' + byte(rand.N(26))
			}
			push := func(text string) string {
				upToDate(t, clone)
				writes(t, clone, map[string]string{"workspace/pushed.txt": text})
				head := commitsAll(t, clone, "to be everywhere")
				mustGit(t, clone, "push", "-q", "origin", "main")
				return head
			}
			holds := func(what, text, head, files string) {
				t.Helper()
				if b, err := os.ReadFile(filepath.Join(files, "workspace/pushed.txt")); err != nil || string(b) != text {
					t.Errorf("%s has %d bytes of %d: %v", what, len(b), len(text), err)
				}
				if out, err := gitIn(t, files, "--git-dir=.git", "fsck", "--full", "--strict", "--no-dangling"); err != nil {
					t.Errorf("the history of %s: %v\n%s", what, err, out)
				}
				if head == "" {
					return // a fork's history is its own
				}
				if out, err := gitIn(t, files, "--git-dir=.git", "merge-base", "--is-ancestor", head, "refs/heads/main"); err != nil {
					t.Errorf("the history of %s does not have %s: %v\n%s", what, head, err, out)
				}
			}
			live := func(id string) string { return filepath.Join(opts.Data, "computers", id, "workspace") }

			two := "two " + string(content)
			head := push(two)
			archive := filepath.Join(dir, "computer.tar")
			in.Must(t, "export", archive)
			if out, err := exec.CommandContext(t.Context(), "tar", "-xf", archive, "-C", dir).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			holds("an export", two, head, filepath.Join(dir, "files"))

			three := "three " + string(content)
			head = push(three)
			in.Kill()
			if err := os.Remove(filepath.Join(opts.Data, "computers", id, "state.sqlite")); err != nil {
				t.Fatal(err)
			}
			if r := choir(t, nil, "recover", "--data", opts.Data); r.Code != 0 {
				t.Fatalf("recover: %+v", r)
			}
			in = choirtest.Start(t, opts)
			if got := inComputer(t, in, "head -c 6 workspace/pushed.txt"); got != "three " {
				t.Errorf("a computer that was recovered has %q", got)
			}
			holds("what was recovered", three, head, live(id))
			if e := lastOf(t, in, "repository.pushed"); !strings.Contains(string(e.Data), head) {
				t.Errorf("its log has %s", e.Data)
			}
			in.Must(t, "undo")
			if b, err := os.ReadFile(filepath.Join(live(id), "workspace/pushed.txt")); err != nil || string(b) != two {
				t.Errorf("after the undo it has %d bytes, %v", len(b), err)
			}

			clone = cloneFiles(t, in) // at its new address
			four := "four " + string(content)
			push(four)
			var made view.Computer
			in.JSON(t, &made, "computers", "fork", "Behind", "--from", id)
			holds("a fork", four, "", live(string(made.ID)))
		})
	}
}
