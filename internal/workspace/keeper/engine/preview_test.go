package engine_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// TestAPreviewSaysWhatARestoreDoes makes random histories, with nested repositories, ignored files
// and paths that change their kind, and restores random places in them. What a dry run says must be
// what the restore says it did, and what differs in the files afterwards, and a dry run must change
// no file.
func TestAPreviewSaysWhatARestoreDoes(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("CHOIR_LOOK_SEED"); s != "" {
		if _, err := fmt.Sscan(s, &seed); err != nil {
			t.Fatal(err)
		}
	}
	for i, seed := range []uint64{
		seed, seed + 1,
		1795377535812333358, 1795377652255402328, // one commit's change of a path is not taken back, and another commit's is
		1795378463102795298, // an ignored file is in the way
		11537483630894,      // an ignored file is in a folder that was empty
	} {
		t.Run(fmt.Sprintf("CHOIR_LOOK_SEED=%d", seed), func(t *testing.T) { previewsOf(t, seed, i == 1) })
	}
}

// previewsOf runs one seed. With mixed, commits are also taken back for some paths only, and files
// are kept.
func previewsOf(t *testing.T, seed uint64, mixed bool) {
	rnd := rand.New(rand.NewPCG(seed, 2))
	c := open(t)
	for i := range 20 {
		c.write(fmt.Sprintf("workspace/d%d/f%d", i%5, i), fmt.Sprint(i))
	}
	made := []string{c.checkpoint("first").Commit.Commit}
	nested := 0
	for step := range 12 {
		for range 1 + rnd.IntN(5) {
			edit(t, c, rnd)
		}
		nestedEdit(t, c, rnd)
		if rnd.IntN(3) > 0 { // otherwise the restore itself finds what was edited
			made = append(made, c.checkpoint(fmt.Sprint(step)).Commit.Commit)
		}
		nestedEdit(t, c, rnd)
		req := wire.RestoreRequest{ID: fmt.Sprintf("r%d", step), To: made[max(rnd.IntN(len(made)), rnd.IntN(len(made)))]}
		switch rnd.IntN(5) {
		case 0:
			req.Paths = []wire.Path{wire.Path(fmt.Sprintf("workspace/d%d", rnd.IntN(8))), "workspace/n0"}
		case 1:
			req.Paths = []wire.Path{wire.Path(fmt.Sprintf("workspace/d%d/f%d", rnd.IntN(8), rnd.IntN(40)))}
		case 2:
			req.To = ""
			for i := len(made) - 1; i >= 0 && len(req.Revert) < 1+rnd.IntN(3); i-- {
				req.Revert = append(req.Revert, wire.Reverted{Commit: made[i]})
			}
		case 3:
			req.Keep = []wire.Path{wire.Path(fmt.Sprintf("workspace/d%d/f%d", rnd.IntN(8), rnd.IntN(40)))}
		}
		if mixed && len(req.Revert) > 0 {
			req.Paths = []wire.Path{wire.Path(fmt.Sprintf("workspace/d%d", rnd.IntN(8))), wire.Path(fmt.Sprintf("workspace/d%d/f%d", rnd.IntN(8), rnd.IntN(40)))}[rnd.IntN(2):]
			req.Keep = []wire.Path{wire.Path(fmt.Sprintf("workspace/d%d/f%d", rnd.IntN(8), rnd.IntN(40)))}
		}
		before := leaves(t, c.opts.Root)
		dry := req
		dry.DryRun = true
		said := c.restore(dry)
		if now := leaves(t, c.opts.Root); !maps.Equal(before, now) {
			t.Fatalf("step %d: a dry run changed %q", step, changed(before, now))
		}
		did := c.restore(req)
		if a, b := fmt.Sprint(said.DiffReply, said.Conflicts), fmt.Sprint(did.DiffReply, did.Conflicts); a != b {
			t.Fatalf("step %d: the dry run says\n%s\nthe restore\n%s", step, a, b)
		}
		if a, b := tellsOf(said), changed(before, leaves(t, c.opts.Root)); !slices.Equal(a, b) {
			t.Fatalf("step %d: the dry run tells of\n%q\nother in the files is\n%q", step, a, b)
		}
		nested += len(said.Repositories)
	}
	if nested == 0 {
		t.Error("no restore changed a nested repository")
	}
}

// nestedEdit makes a nested repository, commits or stages in one, or removes it.
func nestedEdit(t *testing.T, c *computer, rnd *rand.Rand) {
	t.Helper()
	dir := c.path(fmt.Sprintf("workspace/n%d", rnd.IntN(2)))
	git := func(args ...string) { gitIn(t, dir, args...) }
	if _, err := os.Stat(filepath.Join(dir, ".git")); err != nil {
		writeFile(t, filepath.Join(dir, "a.txt"), "a\n")
		git("init", "-q", "--template=")
	}
	switch rnd.IntN(6) {
	case 0:
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	case 1:
		writeFile(t, filepath.Join(dir, "staged.txt"), fmt.Sprint(rnd.Int()))
		git("add", "-A")
	case 2, 3: // changes its index alone
		git("rm", "-rq", "--cached", "--ignore-unmatch", ".")
	default:
		writeFile(t, filepath.Join(dir, "a.txt"), fmt.Sprint(rnd.Int()))
		git("add", "-A")
		git("commit", "-qm", fmt.Sprint(rnd.Int()))
	}
}

// gitIn runs git in a nested repository.
func gitIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=n", "-c", "user.email=n@n", "-c", "init.defaultBranch=main", "-c", "safe.directory=*"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// tellsOf returns what a restore says that it changes, with a nested repository by its folder.
func tellsOf(r wire.RestoreReply) []string {
	var out []string
	for _, ch := range r.Changes {
		out = append(out, strings.TrimSuffix(string(ch.Path), "/"))
	}
	for _, ch := range r.Repositories {
		out = append(out, string(ch.Path)+"/.git")
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// leaves returns a picture without the folders that are not empty.
func leaves(t *testing.T, root string) map[string]string {
	t.Helper()
	all := picture(t, root)
	for p := range maps.Clone(all) {
		for dir := filepath.Dir(p); dir != "."; dir = filepath.Dir(dir) {
			delete(all, dir)
		}
	}
	delete(all, ".")
	return all
}

// changed returns what differs between two pictures: files, links and empty folders, and a nested
// repository's own data as one.
func changed(a, b map[string]string) []string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	var out []string
	for p := range all {
		if a[p] == b[p] {
			continue
		}
		if i := strings.Index(p+"/", "/.git/"); i >= 0 {
			p = p[:i] + "/.git"
		}
		out = append(out, p)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// TestWhatIsNotTakenBackOfOneCommitIsTakenBackOfNone takes back two commits that changed a file,
// where lines of one were edited since. The file must stay as it is, and that must be told. Half of
// it was once taken back without a word.
func TestWhatIsNotTakenBackOfOneCommitIsTakenBackOfNone(t *testing.T) {
	for _, edited := range []int{1, 9} { // the line that the older commit changed, and the one that the newer changed
		c := open(t)
		lines := make([]string, 12)
		write := func(n int, what string) {
			lines[n] = what
			c.write("workspace/text", strings.Join(lines, "\n")+"\n")
		}
		write(0, "first")
		c.checkpoint("first")
		write(1, "older")
		c.write("workspace/other", "older")
		older := c.checkpoint("older").Commit.Commit
		write(9, "newer")
		newer := c.checkpoint("newer").Commit.Commit
		write(edited, "mine")
		before := leaves(t, c.opts.Root)
		req := wire.RestoreRequest{ID: "r", Revert: []wire.Reverted{{Commit: newer}, {Commit: older}}, DryRun: true}
		for _, req.DryRun = range []bool{true, false} {
			r := c.restore(req)
			if got := tellsOf(r); !slices.Equal(got, []string{"workspace/other"}) || len(r.Conflicts) != 1 || r.Conflicts[0].Path != "workspace/text" {
				t.Errorf("line %d edited: told are changes %q and conflicts %+v", edited, got, r.Conflicts)
			}
		}
		if got := changed(before, leaves(t, c.opts.Root)); !slices.Equal(got, []string{"workspace/other"}) {
			t.Errorf("line %d edited: other in the files is %q", edited, got)
		}
	}
}

// TestARepositoryIsTakenBackWholeOrNotAtAll takes back two commits that changed a nested
// repository, of which one can't be taken back because another commit between them changed it too.
// Then nothing of the repository may change, not even what only the other commit changed.
func TestARepositoryIsTakenBackWholeOrNotAtAll(t *testing.T) {
	c := open(t)
	git := func(args ...string) string { return gitIn(t, c.path("workspace/n"), args...) }
	writeFile(t, c.path("workspace/n/a.txt"), "a\n")
	git("init", "-q", "--template=")
	git("add", "-A")
	git("commit", "-qm", "one")
	c.checkpoint("one")
	git("commit", "-q", "--allow-empty", "-m", "two")
	two := c.checkpoint("two").Commit.Commit
	git("commit", "-q", "--allow-empty", "-m", "three")
	c.checkpoint("three")
	git("checkout", "-q", "-b", "other")
	other := c.checkpoint("other").Commit.Commit
	before := leaves(t, c.opts.Root)
	r := c.restore(wire.RestoreRequest{ID: "r", Revert: []wire.Reverted{{Commit: other}, {Commit: two}}})
	if got := changed(before, leaves(t, c.opts.Root)); len(got) > 0 || len(r.Conflicts) == 0 {
		t.Errorf("taken back is %q, and told are %+v", got, r.Conflicts)
	}
}

// TestTakingBackHalfACommitLeavesARepositoryWhole shows that when a checkpoint fell between the
// objects of a nested repository's commit and the ref that names them, taking that checkpoint back
// removes no object, because the ref stays.
func TestTakingBackHalfACommitLeavesARepositoryWhole(t *testing.T) {
	c := open(t)
	dir := c.path("workspace/n")
	git := func(args ...string) string { return gitIn(t, dir, args...) }
	writeFile(t, filepath.Join(dir, "a.txt"), "a\n")
	git("init", "-q", "--template=")
	git("add", "-A")
	git("commit", "-qm", "one")
	c.checkpoint("one")
	commit := git("commit-tree", "-m", "two", "HEAD^{tree}")
	half := c.checkpoint("half").Commit.Commit
	git("update-ref", "refs/heads/main", commit)
	c.checkpoint("two")
	c.restore(wire.RestoreRequest{ID: "r", Revert: []wire.Reverted{{Commit: half}}})
	git("fsck", "--strict")
	if git("rev-parse", "HEAD") != commit {
		t.Error("the ref changed")
	}
}

// TestAFolderThatDoesNotBecomeEmptyIsNotTold shows that a restore does not report a folder as
// emptied when something that no checkpoint holds is in it, or in its place, and stays.
func TestAFolderThatDoesNotBecomeEmptyIsNotTold(t *testing.T) {
	c := open(t)
	for _, dir := range []string{"workspace/in", "workspace/place", "workspace/empty"} {
		if err := os.MkdirAll(c.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	first := c.checkpoint("first").Commit.Commit
	c.write("workspace/.gitignore", "place\n*.o\n")
	c.write("workspace/in/a", "a")
	c.write("workspace/in/a.o", "ignored")
	c.write("workspace/empty/a", "a")
	if err := os.Remove(c.path("workspace/place")); err != nil {
		t.Fatal(err)
	}
	c.checkpoint("second")
	c.write("workspace/place", "ignored")
	before := leaves(t, c.opts.Root)
	for _, dry := range []bool{true, false} {
		r := c.restore(wire.RestoreRequest{ID: "r", To: first, DryRun: dry})
		want := []string{"workspace/.gitignore", "workspace/empty", "workspace/empty/a", "workspace/in/a"}
		if got := tellsOf(r); !slices.Equal(got, want) || len(r.Conflicts) > 0 {
			t.Errorf("told with dry run %t: %q, %+v", dry, got, r.Conflicts)
		}
		if got := changed(before, leaves(t, c.opts.Root)); !dry && !slices.Equal(got, want) {
			t.Errorf("other in the files is %q", got)
		}
	}
}
