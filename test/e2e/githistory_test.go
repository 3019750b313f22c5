package e2e_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// cloneFiles clones the history of the computer's own files, with a token that may push.
func cloneFiles(t *testing.T, in *choirtest.Instance) string {
	t.Helper()
	a := access(t, in, "--write")
	all := filepath.Join(t.TempDir(), "all")
	mustGit(t, t.TempDir(), "clone", "-q", a.with(a.Token.Secret), all)
	return all
}

// upToDate pulls, which must always be a fast-forward.
func upToDate(t *testing.T, clone string) {
	t.Helper()
	mustGit(t, clone, "pull", "-q", "--ff-only")
	if got := mustGit(t, clone, "status", "--porcelain", "--branch"); got != "## main...origin/main\n" {
		t.Errorf("after a pull git status says %q", got)
	}
}

// writes changes files of a clone, and removes those without content.
func writes(t *testing.T, clone string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		at := filepath.Join(clone, name)
		if content == "" {
			if err := os.Remove(at); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// puts puts a file into the computer, which by itself makes no checkpoint.
func puts(t *testing.T, in *choirtest.Instance, name, content string) {
	t.Helper()
	if r, err := in.RunInput(t.Context(), []byte(content), "files", "put", "-", name); err != nil || r.Code != 0 {
		t.Fatalf("files put %s: %+v, %v", name, r, err)
	}
}

// commitsAll commits all changes of a clone.
func commitsAll(t *testing.T, clone, message string) string {
	t.Helper()
	mustGit(t, clone, "add", "-A")
	mustGit(t, clone, "commit", "-q", "-m", message)
	return headOf(t, clone)
}

// TestGitOfTheComputersFiles pushes into the history of the computer's own files with stock git: a
// push is a publish with a checkpoint, which has the pushed commits as a parent.
func TestGitOfTheComputersFiles(t *testing.T) {
	t.Parallel()
	gitOfTheComputersFiles(t, choirtest.Options{})
}

// TestGitOfTheComputersFilesAsAUser does the same with choir running as an ordinary user. If the
// tests do not run as root, the test before this one has done that already.
func TestGitOfTheComputersFilesAsAUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		return
	}
	dir := choirtest.Scratch(t)
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	gitOfTheComputersFiles(t, choirtest.Options{User: nobody, Data: filepath.Join(dir, "data")})
}

func gitOfTheComputersFiles(t *testing.T, opts choirtest.Options) {
	in := choirtest.Start(t, opts)
	inComputer(t, in, "mkdir -p workspace/p && cd workspace/p && seq 20 > lines.txt && echo gone > gone.txt && echo run > run.sh && ln -s lines.txt link")
	in.Must(t, "checkpoint", "-m", "begin")
	clone := cloneFiles(t, in)
	for _, part := range []struct {
		name string
		run  func(t *testing.T, in *choirtest.Instance, clone string)
	}{
		{"files, modes and links come and go", filesArePushed},
		{"what was edited meanwhile stays", filesPushedBesideEdits},
		{"what does not go together changes nothing", filesPushedInConflict},
		{"what only a clone may do", filesPushedOtherwise},
		{"merges, and nothing at all", filesPushedMerged},
		{"what no checkpoint takes", filesPushedAreIgnored},
		{"who may", filesPushedByWhom},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, in, clone) })
		if out := inComputer(t, in, "git --git-dir=.git fsck --full --strict 2>&1 | grep -v dangling || true"); strings.Contains(out, "error") || strings.Contains(out, "missing") {
			t.Errorf("after %q the history is damaged:\n%s", part.name, out)
		}
	}
}

func filesArePushed(t *testing.T, in *choirtest.Instance, clone string) {
	writes(t, clone, map[string]string{"workspace/p/new/deep.txt": "deep\n", "workspace/p/gone.txt": "", "workspace/p/lines.txt": "1\n2\n"})
	commitsAll(t, clone, "first of two")
	if err := os.Chmod(filepath.Join(clone, "workspace/p/run.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../lines.txt", filepath.Join(clone, "workspace/p/new/link")); err != nil {
		t.Fatal(err)
	}
	head := commitsAll(t, clone, "second of two")
	out := mustGit(t, clone, "push", "--progress", "origin", "main")
	for _, words := range []string{"remote: Receiving", "remote: Publishing"} {
		if !strings.Contains(out, words) {
			t.Errorf("of the push git heard nothing of %q:\n%s", words, out)
		}
	}
	want := "deep\n1\n2\n../lines.txt\n0 0\n"
	if got := inComputer(t, in, "cd workspace/p && cat new/deep.txt lines.txt && readlink new/link && test -x run.sh && echo $? $(ls gone.txt 2>/dev/null | wc -l)"); got != want {
		t.Errorf("after the push the computer has %q, want %q", got, want)
	}
	var pushed contract.RepositoryPushed
	e := lastOf(t, in, "repository.pushed")
	if err := json.Unmarshal(e.Data, &pushed); err != nil || pushed.Path != "" || len(pushed.Refs) != 1 || pushed.Refs[0].New != head || !strings.HasPrefix(e.Actor, "person:") {
		t.Errorf("the log has %s by %s: %v", e.Data, e.Actor, err)
	}
	upToDate(t, clone)
	if got := mustGit(t, clone, "log", "-1", "--format=%P %s"); !strings.Contains(got, head) || !strings.Contains(got, "Push of 2 commits: second of two") {
		t.Errorf("the checkpoint of the push is %q, pushed was %s", got, head)
	}
	if got := mustGit(t, clone, "log", "-3", "--format=%an %s", "HEAD^2"); !strings.HasPrefix(got, "me second of two\nme first of two\n") {
		t.Errorf("beside it the history has %q", got)
	}
	var list []view.Checkpoint
	in.JSON(t, &list, "checkpoints")
	for _, c := range list[:2] {
		if strings.Contains(c.Message, "of two") && c.Kind != "push" {
			t.Errorf("a pushed commit is taken for a checkpoint: %+v", c)
		}
	}
	if out := in.Must(t, "undo"); !strings.Contains(out, "the computer's files") {
		t.Errorf("undo says %q", out)
	}
	if got := inComputer(t, in, "cd workspace/p && ls && tail -n1 lines.txt && test -x run.sh || echo plain"); got != "gone.txt\nlines.txt\nlink\nrun.sh\n20\nplain\n" {
		t.Errorf("after the undo the computer has %q", got)
	}
	in.Must(t, "undo") // this undoes the undo
	if got := inComputer(t, in, "cat workspace/p/new/deep.txt"); got != "deep\n" {
		t.Errorf("after both the computer has %q", got)
	}
	upToDate(t, clone)
}

// filesPushedBesideEdits shows that changed lines of one file are merged, that nothing else
// changes, and that what is in no checkpoint yet is in the one before the push.
func filesPushedBesideEdits(t *testing.T, in *choirtest.Instance, clone string) {
	inComputer(t, in, "cd workspace/p && seq 20 > lines.txt && echo mine > mine.txt")
	in.Must(t, "checkpoint")
	upToDate(t, clone)
	b, err := os.ReadFile(filepath.Join(clone, "workspace/p/lines.txt"))
	if err != nil {
		t.Fatal(err)
	}
	puts(t, in, "workspace/p/lines.txt", strings.TrimSuffix(string(b), "20\n")+"twenty\n")
	puts(t, in, "workspace/p/mine.txt", "mine\nmore\n")
	writes(t, clone, map[string]string{"workspace/p/lines.txt": "one" + strings.TrimPrefix(string(b), "1")})
	commitsAll(t, clone, "one")
	mustGit(t, clone, "push", "-q", "origin", "main")
	if got := inComputer(t, in, "cd workspace/p && sed -n '1p;$p' lines.txt && cat mine.txt"); got != "one\ntwenty\nmine\nmore\n" {
		t.Errorf("the computer has %q", got)
	}
	upToDate(t, clone)
	writes(t, clone, map[string]string{"workspace/p/second.txt": "second\n"})
	commitsAll(t, clone, "second push")
	mustGit(t, clone, "push", "-q", "origin", "main")
	upToDate(t, clone)
}

func filesPushedInConflict(t *testing.T, in *choirtest.Instance, clone string) {
	puts(t, in, "workspace/p/mine.txt", "mine\n")
	writes(t, clone, map[string]string{"workspace/p/mine.txt": "theirs\n", "workspace/p/other.txt": "other\n"})
	commitsAll(t, clone, "theirs")
	refusedGit(t, clone, "nothing was changed", "push", "origin", "main")
	refusedGit(t, clone, "fetch first", "push", "origin", "main") // the checkpoint before the push contains what is there
	if got := inComputer(t, in, "cd workspace/p && cat mine.txt && ls other.txt 2>&1 || true"); !strings.HasPrefix(got, "mine\nls: ") {
		t.Errorf("the computer has %q", got)
	}
	if _, err := gitIn(t, clone, "pull", "-q", "--no-rebase"); err == nil {
		t.Fatal("what was refused merges in the clone")
	}
	writes(t, clone, map[string]string{"workspace/p/mine.txt": "both\n"})
	commitsAll(t, clone, "merged")
	mustGit(t, clone, "push", "-q", "origin", "main")
	if got := inComputer(t, in, "cd workspace/p && cat mine.txt other.txt"); got != "both\nother\n" {
		t.Errorf("the computer has %q", got)
	}
	upToDate(t, clone)
}

// filesPushedOtherwise shows that there is only one branch, and that it can be neither deleted nor
// moved back.
func filesPushedOtherwise(t *testing.T, in *choirtest.Instance, clone string) {
	before := mustGit(t, clone, "ls-remote", "origin")
	was := headOf(t, clone)
	mustGit(t, clone, "checkout", "-q", "--detach", "HEAD~1")
	writes(t, clone, map[string]string{"workspace/p/forced.txt": "forced\n"})
	commitsAll(t, clone, "forced")
	refusedGit(t, clone, "rejected", "push", "origin", "HEAD:main")
	refusedGit(t, clone, "non-fast-forward", "push", "--force", "origin", "HEAD:main")
	mustGit(t, clone, "checkout", "-q", "main")
	refusedGit(t, clone, "can't be deleted", "push", "origin", ":main")
	refusedGit(t, clone, "the one branch main", "push", "origin", "HEAD:refs/heads/other")
	refusedGit(t, clone, "the one branch main", "push", "origin", "HEAD:refs/choir/logged")
	refusedGit(t, clone, "the one branch main", "push", "origin", "HEAD:refs/tags/v1")
	mustGit(t, clone, "checkout", "-q", "--orphan", "alone")
	commitsAll(t, clone, "a history of its own")
	refusedGit(t, clone, "non-fast-forward", "push", "--force", "origin", "HEAD:main")
	mustGit(t, clone, "checkout", "-q", "main")
	if after := mustGit(t, clone, "ls-remote", "origin"); after != before || headOf(t, clone) != was {
		t.Errorf("what was refused changed the refs from\n%s\nto\n%s", before, after)
	}
}

// filesPushedMerged pushes parallel commits that were merged, and commits that change nothing
// together.
func filesPushedMerged(t *testing.T, in *choirtest.Instance, clone string) {
	mustGit(t, clone, "checkout", "-q", "-b", "side")
	writes(t, clone, map[string]string{"workspace/p/side.txt": "side\n"})
	commitsAll(t, clone, "side")
	mustGit(t, clone, "checkout", "-q", "main")
	writes(t, clone, map[string]string{"workspace/p/straight.txt": "straight\n"})
	commitsAll(t, clone, "straight")
	mustGit(t, clone, "merge", "-q", "-m", "both", "side")
	mustGit(t, clone, "push", "-q", "origin", "main")
	if got := inComputer(t, in, "cd workspace/p && cat side.txt straight.txt"); got != "side\nstraight\n" {
		t.Errorf("the computer has %q", got)
	}
	upToDate(t, clone)
	mustGit(t, clone, "commit", "-q", "--allow-empty", "-m", "nothing")
	mustGit(t, clone, "push", "-q", "origin", "main")
	upToDate(t, clone)
}

// filesPushedAreIgnored shows that a push of files that no checkpoint would contain is refused too.
func filesPushedAreIgnored(t *testing.T, in *choirtest.Instance, clone string) {
	inComputer(t, in, "cd workspace/p && echo '*.log' > .gitignore && echo mine > x.log && mkfifo pipe")
	in.Must(t, "checkpoint")
	upToDate(t, clone)
	for _, refused := range []struct{ name, words string }{{"x.log", "is ignored by"}, {"y.log", "is ignored by"}, {"pipe", "no checkpoint holds"}} {
		writes(t, clone, map[string]string{"workspace/p/" + refused.name: "theirs\n"})
		mustGit(t, clone, "add", "-f", "workspace/p/"+refused.name)
		commitsAll(t, clone, refused.name)
		refusedGit(t, clone, refused.words, "push", "origin", "main")
		mustGit(t, clone, "reset", "-q", "--hard", "origin/main")
	}
	if got := inComputer(t, in, "cd workspace/p && cat x.log && test -p pipe && ls y.log 2>&1 || true"); !strings.HasPrefix(got, "mine\nls: ") {
		t.Errorf("the computer has %q", got)
	}
	inComputer(t, in, "rm workspace/p/pipe")
}

// filesPushedByWhom shows that a token that only reads can't push, and that a token for one
// repository is refused for another.
func filesPushedByWhom(t *testing.T, in *choirtest.Instance, clone string) {
	makeRepository(t, in, "app")
	own, reads, app := access(t, in, "--write"), access(t, in), access(t, in, "workspace/app", "--write")
	writes(t, clone, map[string]string{"workspace/p/whom.txt": "whom\n"})
	commitsAll(t, clone, "whom")
	refusedGit(t, clone, "this token is for reading", "push", own.with(reads.Token.Secret), "main")
	refusedGit(t, clone, "not found", "push", own.with(app.Token.Secret), "main")
	refusedGit(t, clone, "not found", "push", app.with(own.Token.Secret), "HEAD:x")
	mustGit(t, clone, "pull", "-q", "--no-rebase")
	mustGit(t, clone, "push", "-q", own.with(in.Token), "main")
}
