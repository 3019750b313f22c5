package engine_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"choir.dev/choiros/internal/workspace/keeper/engine"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

const beginsRoot = "CHOIR_TEST_BEGINS"

// begins is the file that marks a repository in which nothing counts yet, because its first commit
// is still to come.
const begins = ".git/choir/begins"

func (c *computer) has(p string) bool {
	_, err := os.Lstat(c.path(p))
	return err == nil
}

// TestAHistoryWithoutACommitIsMadeAnew shows that what a first checkpoint wrote before it was
// interrupted is removed and made again, because it was never synced, so that a power cut may have
// torn all of it.
func TestAHistoryWithoutACommitIsMadeAnew(t *testing.T) {
	t.Parallel()
	died := errors.New("it died")
	armed := true
	c := open(t, func(o *engine.Options) {
		o.Crash = func(point string) {
			if armed && point == "commit.written" {
				panic(died)
			}
		}
	})
	for i := range 60 { // so many files make a pack
		c.write("f"+strings.Repeat("x", i), "content "+strings.Repeat("y", i))
	}
	func() {
		defer func() {
			if recover() != died {
				t.Error("it came to its end")
			}
		}()
		c.checkpoint("the first")
	}()
	armed = false
	if !c.has(begins) || c.has(".git/refs/heads/main") {
		t.Fatal("a history counts that has no commit")
	}
	// A power cut left names whose content is not on disk, and files that were still being written.
	packs, err := filepath.Glob(c.path(".git/objects/pack/*"))
	if err != nil || len(packs) == 0 {
		t.Fatal("there is no pack", err)
	}
	objects, _ := filepath.Glob(c.path(".git/objects/??/*")) // the pattern is valid
	made, err := filepath.Glob(c.path(".git/*"))
	if err != nil || len(made) == 0 {
		t.Fatal("there is no repository", err)
	}
	more, _ := filepath.Glob(c.path(".git/*/*")) // the pattern is valid
	for _, p := range slices.Concat(packs, objects, made, more) {
		if st, err := os.Stat(p); err != nil || st.IsDir() {
			continue
		}
		if err := errors.Join(os.Chmod(p, 0o644), os.Truncate(p, 0)); err != nil {
			t.Fatal(err)
		}
	}
	c.reopen()
	first := c.checkpoint("the first")
	if !first.Created || first.Commit.Kind != "initial" || c.has(begins) || c.has(".git-new") {
		t.Errorf("%+v", first)
	}
	c.reopen() // the end of the test has git check it
	if c.Head() != first.Commit.Commit {
		t.Errorf("it is at %q; want %q", c.Head(), first.Commit.Commit)
	}
}

// TestWhatWasKeptBeforeTheFirstCommitCounts shows that acknowledged puts stay when there is no
// commit yet, and that a history with a branch stays whatever else lies in it.
func TestWhatWasKeptBeforeTheFirstCommitCounts(t *testing.T) {
	t.Parallel()
	c := open(t)
	if !c.has(begins) {
		t.Fatal("a new history counts")
	}
	c.write("a.txt", "a")
	if _, err := c.Remove(c.ctx(), wire.RemoveRequest{Path: "a.txt"}); err != nil {
		t.Fatal(err)
	}
	if c.has(begins) {
		t.Error("something was kept in a history that does not count")
	}
	kept := trashed(t, c)
	c.reopen()
	if now := trashed(t, c); len(kept) != 1 || len(now) != 1 {
		t.Errorf("the trash had %v, and has %v", kept, now)
	}
	c.write("b.txt", "b")
	first := c.checkpoint("the first")
	writeFile(t, c.path(begins), "")
	c.reopen()
	if c.Head() != first.Commit.Commit || c.has(begins) {
		t.Errorf("it is at %q; want %q", c.Head(), first.Commit.Commit)
	}
}

// TestAFirstCommitIsOnDiskBeforeItsBranch follows the system calls of a first commit: everything is
// synced at once, then the branch gets its name, and that name is synced.
func TestAFirstCommitIsOnDiskBeforeItsBranch(t *testing.T) {
	if root := os.Getenv(beginsRoot); root != "" {
		c := open(t, func(o *engine.Options) { o.Root = root })
		for i := range 60 {
			c.write("f"+strings.Repeat("x", i), "content "+strings.Repeat("y", i))
		}
		c.checkpoint("the first")
		return
	}
	t.Parallel()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Fatal("this test needs strace: install it, for example with: apt-get install strace")
	}
	root := filepath.Join(t.TempDir(), "live")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	trace := filepath.Join(t.TempDir(), "trace")
	cmd := exec.CommandContext(t.Context(), strace, "-f", "-y", "-o", trace, "-e", "trace=rename,renameat,renameat2,link,linkat,syncfs,fsync", os.Args[0], "-test.run=^TestAFirstCommitIsOnDiskBeforeItsBranch$")
	cmd.Env = append(os.Environ(), beginsRoot+"="+root)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	var calls []string
	for _, m := range regexp.MustCompile(`(?m)^\d+ +(?:(link)(?:at)?\(.*/objects/|(syncfs)\(|rename\w*\(.*"[^"]*/(\.git|main)"|(fsync)\(\d+<([^>]*)>)`).FindAllStringSubmatch(string(b), -1) {
		call := m[1] + m[2] + m[3]
		if m[4] != "" {
			call = "fsync " + filepath.Base(m[5])
		}
		if n := len(calls); n == 0 || calls[n-1] != call {
			calls = append(calls, call)
		}
		if call == "fsync heads" {
			break
		}
	}
	if got, want := strings.Join(calls, ", "), ".git, link, syncfs, main, fsync heads"; got != want {
		t.Errorf("%s; want %s\n%s", got, want, b)
	}
}
