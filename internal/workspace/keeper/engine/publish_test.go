package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/engine"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// task is a task's overlay as overlayfs would have written it.
type task struct {
	c    *computer
	id   string
	base string
}

func (c *computer) begin(id string) *task {
	c.t.Helper()
	base := c.checkpoint("base of " + id)
	t := &task{c, id, base.Commit.Commit}
	if err := os.MkdirAll(t.path("."), 0o755); err != nil {
		c.t.Fatal(err)
	}
	return t
}

func (k *task) path(p string) string { return filepath.Join(k.c.opts.Uppers, k.id, "upper", p) }

func (k *task) write(p, content string) { k.c.t.Helper(); writeFile(k.c.t, k.path(p), content) }

func (k *task) whiteout(p string) {
	k.c.t.Helper()
	if err := os.MkdirAll(filepath.Dir(k.path(p)), 0o755); err != nil {
		k.c.t.Fatal(err)
	}
	if err := unix.Mknod(k.path(p), unix.S_IFCHR, 0); err != nil {
		k.c.t.Fatalf("a whiteout needs CAP_MKNOD or a user namespace: %v", err)
	}
}

func (k *task) tree() wire.TreeReply {
	k.c.t.Helper()
	r, err := k.c.Tree(k.c.t.Context(), wire.TreeRequest{ID: k.id, Base: k.base, Upper: k.id + "/upper"})
	if err != nil {
		k.c.t.Fatal(err)
	}
	return r
}

func (k *task) publish() wire.ApplyReply {
	k.c.t.Helper()
	r, err := k.c.publish(wire.PrepareRequest{ID: "p-" + k.id, Base: k.base, Tree: k.tree().Commit, Task: k.id, Note: wire.Note{Message: "task " + k.id, Verified: "pass"}})
	if err != nil {
		k.c.t.Fatal(err)
	}
	return r
}

func (c *computer) publish(req wire.PrepareRequest) (wire.ApplyReply, error) {
	ctx := c.ctx()
	if _, err := c.Prepare(ctx, req); err != nil {
		return wire.ApplyReply{}, err
	}
	if err := c.Begin(ctx, req.ID); err != nil {
		return wire.ApplyReply{}, err
	}
	return c.Apply(ctx, req.ID)
}

func TestPublishMergesWithWhatTheUserDid(t *testing.T) {
	c := open(t)
	c.write("workspace/both.txt", "1\n2\n3\n4\n5\n6\n7\n8\n")
	c.write("workspace/task.txt", "old\n")
	c.write("workspace/gone.txt", "x\n")
	c.write("workspace/dir/a", "a\n")
	c.write("workspace/dir/b", "b\n")
	c.write("workspace/clash.txt", "one\n")
	c.write("workspace/type", "a file\n")
	k := c.begin("t1")
	k.write("workspace/both.txt", "1\n2\n3\n4\n5\n6\n7\neight\n")
	k.write("workspace/task.txt", "new\n")
	k.write("workspace/made/deep/x.sh", "#!/bin/sh\n")
	if err := os.Chmod(k.path("workspace/made/deep/x.sh"), 0o6755); err != nil {
		t.Fatal(err)
	}
	k.write("workspace/clash.txt", "task\n")
	k.write("workspace/type/inside", "now a directory\n")
	k.whiteout("workspace/gone.txt")
	k.whiteout("workspace/dir")
	// Meanwhile the user changes files.
	c.write("workspace/both.txt", "one\n2\n3\n4\n5\n6\n7\n8\n")
	c.write("workspace/clash.txt", "user\n")
	c.write("workspace/other.txt", "mine\n")
	r := k.publish()
	want := map[string]string{
		"workspace/both.txt": "one\n2\n3\n4\n5\n6\n7\neight\n", "workspace/task.txt": "new\n", "workspace/made/deep/x.sh": "#!/bin/sh\n",
		"workspace/clash.txt": "user\n", "workspace/other.txt": "mine\n", "workspace/type/inside": "now a directory\n",
	}
	for p, content := range want {
		if got := c.read(p); got != content {
			t.Errorf("%s = %q, want %q", p, got, content)
		}
	}
	for _, p := range []string{"workspace/gone.txt", "workspace/dir"} {
		if _, err := os.Lstat(c.path(p)); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", p, err)
		}
	}
	if st, err := os.Lstat(c.path("workspace/made/deep/x.sh")); err != nil || st.Mode() != 0o755 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if len(r.Conflicts) != 1 || r.Conflicts[0].Path != "workspace/clash.txt" {
		t.Errorf("conflicts = %+v", r.Conflicts)
	}
	if r.After != nil {
		t.Errorf("nobody wrote during the publish, but there is a checkpoint after it: %+v", r.After)
	}
	if st, err := c.Status(t.Context()); err != nil || len(st.Changes) > 0 || st.Head != r.Commit.Commit {
		t.Errorf("status = %+v, %v", st, err)
	}
	// The task's version of the conflicting file is kept.
	if out := stockGit(t, c.opts.Root, "show", "refs/choir/task/p-t1:workspace/clash.txt"); out != "task\n" {
		t.Errorf("the task's version is %q", out)
	}
	// Applying again changes nothing.
	again, err := c.Apply(t.Context(), "p-t1")
	if err != nil || again.Commit.Commit != r.Commit.Commit {
		t.Errorf("again = %+v, %v", again, err)
	}
	if out := stockGit(t, c.opts.Root, "log", "-1", "--format=%(trailers:key=Choir-Verified,valueonly)"); strings.TrimSpace(out) != "pass" {
		t.Errorf("trailer = %q", out)
	}
}

func TestTreeOfAHostileUpper(t *testing.T) {
	c := open(t)
	c.write("workspace/keep/a", "a\n")
	c.write("workspace/keep/b", "b\n")
	c.write("workspace/.gitignore", "ignored/\n*.log\n")
	k := c.begin("t1")
	k.write(".git/config", "[core]\n\tfsmonitor = touch /tmp/pwned\n")
	k.write("workspace/keep/new", "n\n")
	k.write("workspace/ignored/x", "never\n")
	k.write("workspace/debug.log", "never\n")
	if err := os.Symlink("/etc", k.path("workspace/out")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(k.path("workspace/pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mknod(k.path("workspace/null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setxattr(k.path("workspace/keep"), "user.overlay.opaque", []byte("y"), 0); err != nil {
		t.Fatal(err)
	}
	r := k.tree()
	var got []string
	for _, ch := range r.Changes {
		got = append(got, ch.Op+" "+string(ch.Path))
	}
	if want := "[deleted workspace/keep/a deleted workspace/keep/b added workspace/keep/new added workspace/out]"; fmt.Sprint(got) != want {
		t.Errorf("changes = %v, want %v", got, want)
	}
	left := fmt.Sprint(r.Left)
	for _, p := range []string{".git", "workspace/pipe", "workspace/null"} {
		if !strings.Contains(left, "{"+p+" ") {
			t.Errorf("%s is not listed: %s", p, left)
		}
	}
	k.publish()
	if target, err := os.Readlink(c.path("workspace/out")); err != nil || target != "/etc" {
		t.Errorf("link = %q, %v", target, err)
	}
}

func TestUpperMustBeInUppers(t *testing.T) {
	c := open(t)
	c.write("workspace/a", "a")
	base := c.checkpoint("base")
	if err := os.Symlink("/etc", filepath.Join(c.opts.Uppers, "link")); err != nil {
		t.Fatal(err)
	}
	for _, upper := range []string{"../live", "/etc", "link", "link/ssl", ""} {
		if r, err := c.Tree(t.Context(), wire.TreeRequest{ID: "x", Base: base.Commit.Commit, Upper: upper}); err == nil {
			t.Errorf("upper %q gave %+v", upper, r)
		}
	}
}

// nestedRepo makes a repository with a commit, a staged, an uncommitted, an untracked and an
// ignored file, a branch, a tag and a hostile configuration.
func nestedRepo(c *computer, dir, canary string) {
	c.t.Helper()
	root := c.path(dir)
	c.write(dir+"/a.txt", "one\r\n")
	c.write(dir+"/.gitignore", "deps/\n*.secret\n")
	c.write(dir+"/tracked.secret", "force-added\n")
	stockGit(c.t, root, "init", "-q", "-b", "trunk")
	stockGit(c.t, root, "add", "-A")
	stockGit(c.t, root, "add", "-f", "tracked.secret")
	stockGit(c.t, root, "commit", "-qm", "one")
	stockGit(c.t, root, "tag", "v1")
	stockGit(c.t, root, "branch", "side")
	c.write(dir+"/staged.txt", "staged\n")
	stockGit(c.t, root, "add", "staged.txt")
	c.write(dir+"/a.txt", "uncommitted\r\n")
	c.write(dir+"/tracked.secret", "changed, and ignored\n")
	c.write(dir+"/untracked.txt", "untracked\n")
	c.write(dir+"/deps/x", "dependency\n")
	hook := "#!/bin/sh\ntouch " + canary + "\n"
	for _, h := range []string{"post-checkout", "pre-commit", "post-index-change", "reference-transaction", "fsmonitor"} {
		c.write(dir+"/.git/hooks/"+h, hook)
		if err := os.Chmod(c.path(dir+"/.git/hooks/"+h), 0o755); err != nil {
			c.t.Fatal(err)
		}
	}
	c.write(dir+"/.git/config", fmt.Sprintf("[core]\n\trepositoryformatversion = 0\n\tfsmonitor = %[1]s\n\tsshCommand = %[1]s\n\teditor = %[1]s\n\tpager = %[1]s\n[filter \"evil\"]\n\tclean = %[1]s\n\tsmudge = %[1]s\n\tprocess = %[1]s\n[diff]\n\texternal = %[1]s\n[diff \"evil\"]\n\ttextconv = %[1]s\n\tcommand = %[1]s\n[merge \"evil\"]\n\tdriver = %[1]s\n[alias]\n\tstatus = !%[1]s\n", root+"/.git/hooks/fsmonitor"))
	c.write(dir+"/.git/objects/info/alternates", "/etc\n")
	c.write(dir+"/.gitattributes", "* filter=evil diff=evil merge=evil text eol=crlf\n")
}

func TestNestedRepositoriesComeBackWhole(t *testing.T) {
	c := open(t)
	canary := filepath.Join(t.TempDir(), "canary")
	nestedRepo(c, "workspace/repo", canary)
	c.write(".gitignore", "workspace/repo\n")
	want := picture(t, c.path("workspace/repo"))
	delete(want, "deps")
	delete(want, "deps/x")
	first := c.checkpoint("with a repository")
	if out := stockGit(t, c.opts.Root, "ls-tree", "-r", first.Commit.Commit); strings.Contains(out, "160000") {
		t.Errorf("a gitlink swallowed the repository:\n%s", out)
	}
	if err := os.RemoveAll(c.path("workspace/repo")); err != nil {
		t.Fatal(err)
	}
	c.checkpoint("without")
	c.restore(wire.RestoreRequest{ID: "r1", To: first.Commit.Commit})
	samePicture(t, picture(t, c.path("workspace/repo")), want)
	if err := os.Remove(c.path("workspace/repo/.git/objects/info/alternates")); err != nil {
		t.Fatal(err)
	}
	safe := []string{"-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.attributesFile=/dev/null"}
	c.write("workspace/repo/.git/info/attributes", "* -filter -text -eol\n")
	c.write("workspace/repo/.git/config", "[core]\n\trepositoryformatversion = 0\n")
	status := stockGit(t, c.path("workspace/repo"), append(safe, "status", "--porcelain")...)
	for _, line := range []string{"A  staged.txt", " M a.txt", "?? untracked.txt", " M tracked.secret"} {
		if !strings.Contains(status, line) {
			t.Errorf("status lacks %q:\n%s", line, status)
		}
	}
	if refs := stockGit(t, c.path("workspace/repo"), append(safe, "for-each-ref", "--format=%(refname)")...); refs != "refs/heads/side\nrefs/heads/trunk\nrefs/tags/v1\n" {
		t.Errorf("refs:\n%s", refs)
	}
	if _, err := os.Lstat(canary); err == nil {
		t.Error("a command that the repository names ran")
	}
}

// TestADiffSaysWhatGitObeys shows that a change of a nested repository's own data, which git obeys,
// is shown as one change, and as none when only the index changed.
func TestADiffSaysWhatGitObeys(t *testing.T) {
	c := open(t)
	nestedRepo(c, "workspace/repo", filepath.Join(t.TempDir(), "canary"))
	nestedRepo(c, "workspace/quiet", filepath.Join(t.TempDir(), "canary"))
	a := c.checkpoint("a")
	c.write("workspace/quiet/.git/index", "looked at\n")
	for _, p := range []string{".git/hooks/pre-push", ".git/hooks/pre-push.sample", ".git/config", ".git/modules/m/config", ".git/refs/heads/config", ".git/info/attributes", "sub/.git", "a.txt"} {
		c.write("workspace/repo/"+p, "changed\n")
	}
	if err := os.Remove(c.path("workspace/repo/.git/hooks/pre-commit")); err != nil {
		t.Fatal(err)
	}
	d, err := c.Diff(t.Context(), wire.DiffRequest{From: a.Commit.Commit})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range d.Obeyed {
		got = append(got, o.Op+" "+strings.TrimPrefix(string(o.Path), "workspace/repo/"))
	}
	slices.Sort(got)
	if want := "added .git/hooks/pre-push|added .git/info/attributes|added .git/modules/m/config|added sub/.git|deleted .git/hooks/pre-commit|modified .git/config"; strings.Join(got, "|") != want {
		t.Errorf("obeyed: %q", got)
	}
	if !slices.Equal(d.Repositories, []wire.Change{{Path: "workspace/repo", Op: "modified", Added: -1, Removed: -1}, {Path: "workspace/repo/sub", Op: "added", Added: -1, Removed: -1}}) || len(d.Changes) != 1 {
		t.Errorf("repositories %v, changes %v", d.Repositories, d.Changes)
	}
}

func TestHostileRepositoriesRunNothing(t *testing.T) {
	c := open(t)
	canary := filepath.Join(t.TempDir(), "canary")
	nestedRepo(c, "workspace/repo", canary)
	// Somebody else chose the configuration of the computer's own .git, as after an import.
	script := c.path("workspace/repo/.git/hooks/fsmonitor")
	hostileConfig := fmt.Sprintf("[core]\n\tfsmonitor = %[1]s\n\thooksPath = %[2]s\n\tsshCommand = %[1]s\n\talternateRefsCommand = %[1]s\n[filter \"evil\"]\n\tclean = %[1]s\n\tprocess = %[1]s\n[diff]\n\texternal = %[1]s\n[diff \"evil\"]\n\ttextconv = %[1]s\n[merge \"evil\"]\n\tdriver = %[1]s\n[include]\n\tpath = %[2]s/x\n[gc]\n\tauto = 1\n", script, filepath.Dir(script))
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	writeFile(t, c.path(".git/config"), hostileConfig)
	writeFile(t, c.path(".git/info/attributes"), "* filter=evil diff=evil merge=evil\n")
	writeFile(t, c.path(".git/objects/info/alternates"), "/tmp/elsewhere\n")
	for _, h := range []string{"reference-transaction", "post-index-change", "pre-auto-gc"} {
		writeFile(t, c.path(".git/hooks/"+h), "#!/bin/sh\ntouch "+canary+"\n")
		if err := os.Chmod(c.path(".git/hooks/"+h), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c.Engine = nil
	c.reopen()
	a := c.checkpoint("a")
	k := c.begin("t1")
	k.write("workspace/repo/a.txt", "task\n")
	k.write("workspace/repo/.git/hooks/post-checkout", "#!/bin/sh\ntouch "+canary+"\n")
	k.publish()
	if _, err := c.Diff(t.Context(), wire.DiffRequest{From: a.Commit.Commit}); err != nil {
		t.Error(err)
	}
	if _, err := c.Snapshot(t.Context(), a.Commit.Commit); err != nil {
		t.Error(err)
	}
	c.restore(wire.RestoreRequest{ID: "r1", To: a.Commit.Commit})
	if err := c.Maintain(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(canary); err == nil {
		t.Error("a command that a repository names ran")
	}
	if _, err := os.Lstat(c.path(".git/objects/info/alternates")); err == nil {
		t.Error("the alternates stayed")
	}
	// Unprotected git does run it, which shows that the test can fail.
	cmd := stockUnsafe(c.path("workspace/repo"), "status")
	_ = cmd.Run() // whatever it answers
	if _, err := os.Lstat(canary); err != nil {
		t.Errorf("the canary proves nothing: unprotected git did not run it either (%v)", err)
	}
}

func TestPrepareIsOnlyGoodForTheTreeItWasMadeOn(t *testing.T) {
	c := open(t)
	c.write("workspace/a", "a\n")
	k := c.begin("t1")
	k.write("workspace/b", "b\n")
	req := wire.PrepareRequest{ID: "p", Base: k.base, Tree: k.tree().Commit}
	if _, err := c.Prepare(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	c.write("workspace/c", "c\n")
	c.checkpoint("meanwhile")
	if err := c.Begin(t.Context(), "p"); !fault.Is(err, fault.Conflict) {
		t.Errorf("begin = %v", err)
	}
	if _, err := c.publish(req); err != nil {
		t.Error(err)
	}
	if c.read("workspace/b")+c.read("workspace/c") != "b\nc\n" {
		t.Error("something is missing")
	}
}

func TestLivePublishingAndInversion(t *testing.T) {
	c := open(t)
	c.write("choiros/app.tsx", "1\n2\n3\n4\n5\n6\n")
	c.write("artifacts/system/theme.json", "{}\n")
	c.write("workspace/x", "x\n")
	k := c.begin("t1")
	live := []wire.Path{"choiros", "artifacts/system/theme.json"}
	for i, content := range []string{"one\n2\n3\n4\n5\n6\n", "ONE\n2\n3\n4\n5\n6\n"} {
		k.write("choiros/app.tsx", content)
		k.write("choiros/new.tsx", "new\n")
		k.write("workspace/x", "not yet\n")
		if _, err := c.publish(wire.PrepareRequest{ID: fmt.Sprintf("live%d", i), Base: k.base, Tree: k.tree().Commit, Paths: live, Live: true, Task: k.id}); err != nil {
			t.Fatal(err)
		}
		if got := c.read("choiros/app.tsx"); got != content {
			t.Errorf("live edit %d is not there: %q", i, got)
		}
		if c.read("workspace/x") != "x\n" {
			t.Error("something else was published live")
		}
		if i == 0 {
			continue
		}
		r, err := c.Checkpoint(t.Context(), wire.CheckpointRequest{Force: true, Note: wire.Note{Kind: "manual", Verified: "pass"}})
		if err != nil || r.Verified != "unknown" {
			t.Errorf("while live edits are open a checkpoint is %q, %v", r.Verified, err)
		}
	}
	c.write("choiros/app.tsx", "ONE\n2\n3\n4\n5\nuser\n")
	// What was published can't be read, which must not be taken for nothing.
	ref := c.path(".git/refs/choir/live/" + k.id)
	was, err := os.ReadFile(ref)
	if err != nil {
		t.Fatal(err)
	}
	for _, damaged := range []string{"", "garbage\n", strings.Repeat("1", 40) + "\n"} {
		if err := os.WriteFile(ref, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		if p, err := c.Invert(t.Context(), wire.InvertRequest{ID: "inv", Task: k.id, Base: k.base}); err == nil {
			t.Errorf("with its ref %q: %+v", damaged, p)
		}
	}
	if err := os.WriteFile(ref, was, 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := c.Invert(t.Context(), wire.InvertRequest{ID: "inv", Task: k.id, Base: k.base})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Apply(t.Context(), p.ID); err != nil {
		t.Fatal(err)
	}
	if got := c.read("choiros/app.tsx"); got != "1\n2\n3\n4\n5\nuser\n" {
		t.Errorf("after the inversion: %q", got)
	}
	if _, err := os.Lstat(c.path("choiros/new.tsx")); !os.IsNotExist(err) {
		t.Error("what the task made live is still there")
	}
}

func TestWhatNeverBeganIsForgotten(t *testing.T) {
	now := time.Now()
	c := open(t, func(o *engine.Options) { o.Now = func() time.Time { return now } })
	c.write("workspace/a", "a\n")
	k := c.begin("t1")
	k.write("workspace/b", "b\n")
	if _, err := c.Prepare(t.Context(), wire.PrepareRequest{ID: "never", Base: k.base, Tree: k.tree().Commit}); err != nil {
		t.Fatal(err)
	}
	k.publish()
	if err := c.Logged(t.Context(), "p-t1"); err != nil {
		t.Fatal(err)
	}
	plans := func() int {
		found, err := filepath.Glob(c.path(".git/choir/publish/*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	c.checkpoint("soon")
	if n := plans(); n != 2 {
		t.Errorf("%d plans are kept, want 2", n)
	}
	now = now.Add(25 * time.Hour)
	c.checkpoint("a day later")
	if n := plans(); n != 0 {
		t.Errorf("%d plans are kept after a day", n)
	}
}
