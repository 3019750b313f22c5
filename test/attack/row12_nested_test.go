package attack_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/test/choirtest"
)

// These are the parts of row 12 about repositories inside the workspace. The keeper stores a nested
// .git as plain files: it unpacks nothing of it, obeys nothing in it, and restores the same bytes.

// inventory returns the contents of a tree: every file and link. Links are not followed, and empty
// directories are not part of a checkpoint.
func inventory(t *testing.T, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.Type()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(path)
			out[rel] = "link " + target
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		h := sha256.New()
		if _, err := io.Copy(h, f); err != nil {
			return err
		}
		out[rel] = fmt.Sprintf("file %v %x", info.Mode()&0o100 != 0, h.Sum(nil))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func sameInventory(t *testing.T, when string, got, want map[string]string) {
	t.Helper()
	for path, w := range want {
		if g := got[path]; g != w {
			t.Errorf("%s: %q is %q; want %q", when, path, g, w)
		}
	}
	for path := range got {
		if _, ok := want[path]; !ok {
			t.Errorf("%s: %q is there and should not be", when, path)
		}
	}
}

func diskUse(t *testing.T, root string) (total int64) {
	t.Helper()
	err := filepath.WalkDir(root, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			total += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return total
}

// throughTime makes a checkpoint with workspace/name, removes it, restores it, undoes that, and
// undoes the undo. Each time the result must be what was there before.
func throughTime(t *testing.T, in *choirtest.Instance, name string) {
	t.Helper()
	place := filepath.Join(liveTree(t, in), "workspace", name)
	want := inventory(t, place)
	if len(want) == 0 {
		t.Fatalf("%s holds nothing", name)
	}
	in.Must(t, "checkpoint", "-m", name)
	var all []struct{ ID string }
	in.JSON(t, &all, "checkpoints")
	in.Must(t, "exec", "--", "rm", "-rf", "workspace/"+name)
	in.Must(t, "diff", all[0].ID)
	in.Must(t, "restore", all[0].ID)
	sameInventory(t, name+" restored", inventory(t, place), want)
	in.Must(t, "undo")
	if exists(place) && len(inventory(t, place)) != 0 {
		t.Errorf("%s is there after undo", name)
	}
	in.Must(t, "undo")
	sameInventory(t, name+" after the undo was undone", inventory(t, place), want)
}

// holds reports whether the computer's own history can read an object.
func holds(t *testing.T, in *choirtest.Instance, object string) bool {
	t.Helper()
	_, err := plainGit(t.TempDir(), "--git-dir", filepath.Join(liveTree(t, in), ".git"), "cat-file", "-e", object)
	return err == nil
}

// line runs git, which must succeed, and returns the line that it prints.
func line(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := plainGit(dir, args...)
	if err != nil {
		t.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// repository makes a repository with a commit of file.txt.
func repository(t *testing.T, dir, content string) {
	t.Helper()
	write(t, filepath.Join(dir, "file.txt"), content, 0o644)
	mustGit(t, dir, "init", "-q", "-b", "main")
	mustGit(t, dir, "add", ".")
	mustGit(t, dir, "commit", "-q", "-m", "one")
}

func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// shell runs a command on the host, bounded in time, as a control.
func shell(t *testing.T, dir, script string) (string, bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", script)
	cmd.Dir, cmd.WaitDelay = dir, time.Second
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

// TestRow12SubmoduleTricks uses a submodule whose path ends in a carriage return, beside a link
// with the path without it that leads to the module's hooks (CVE-2025-48384).
func TestRow12SubmoduleTricks(t *testing.T) {
	dir := t.TempDir()
	script, left := canaryScript(t, dir)
	hook := "#!/bin/sh\n'" + script + "'\n"
	inner := filepath.Join(dir, "inner")
	write(t, filepath.Join(inner, "post-checkout"), hook, 0o755)
	repository(t, inner, "inner\n")
	outer := filepath.Join(dir, "tricks")
	repository(t, outer, "outer\n")
	write(t, filepath.Join(outer, ".gitmodules"), "[submodule \"x\"]\n\tpath = \"sub\r\"\n\turl = "+inner+"\n", 0o644)
	if err := os.Symlink(".git/modules/x/hooks", filepath.Join(outer, "sub")); err != nil {
		t.Fatal(err)
	}
	mustGit(t, outer, "add", ".gitmodules", "sub")
	mustGit(t, outer, "update-index", "--add", "--cacheinfo", "160000,"+line(t, inner, "rev-parse", "HEAD")+",sub\r")
	mustGit(t, outer, "commit", "-q", "-m", "trick")

	// The control works if this git loses a carriage return that it wrote into a configuration
	// itself. A git with the fix writes it in quotes, so that the module is put where its path
	// says, and then the control can't work.
	mustGit(t, dir, "config", "-f", "roundtrip", "a.b", "x\r")
	out, err := plainGit(dir, "config", "-f", "roundtrip", "a.b")
	if err != nil {
		t.Fatal(err)
	}
	mended := string(out) == "x\r\n"
	out, cloned := plainGit(dir, "-c", "protocol.file.allow=always", "clone", "-q", "--recurse-submodules", outer, "victim")
	if ran := exists(left); ran == mended {
		t.Errorf("git drops the carriage return: %v; the hook ran: %v (%v: %s)", !mended, ran, cloned, out)
	}
	if mended {
		t.Log("this git keeps a carriage return in a configuration, so a plain clone does not fall for the submodule; the weaker control stands for it")
	}
	_ = os.Remove(left)
	// This is what the trick leads to, and the weaker control: a module whose hooks are a link into
	// the work tree. Every git runs what is there.
	end := filepath.Join(outer, "reached")
	repository(t, end, "end\n")
	write(t, filepath.Join(end, "sub", "post-checkout"), hook, 0o755)
	if err := os.RemoveAll(filepath.Join(end, ".git", "hooks")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../sub", filepath.Join(end, ".git", "hooks")); err != nil {
		t.Fatal(err)
	}
	control := filepath.Join(dir, "control")
	copyTree(t, end, control)
	mustGit(t, control, "checkout", "-q", "-b", "other")
	if !exists(left) {
		t.Error("the weaker control does not work: plain git ran no hook through a link")
	}
	_ = os.Remove(left)

	in := choirtest.Start(t, choirtest.Options{})
	live := liveTree(t, in)
	own := filepath.Join(live, ".git")
	in.Must(t, "add", outer)
	// A command makes the module as a vulnerable clone leaves it: a gitlink's directory with a
	// carriage return, links to the computer's own hooks, and names of modules with dots that lead
	// upwards.
	in.Must(t, "exec", "--", "sh", "-c", `cd workspace/tricks && cr=$(printf 'sub\r.'); cr=${cr%.}
		mkdir -p "$cr" .git/modules/x/hooks deep && printf 'gitdir: ../.git/modules/x\n' > "$cr/.git" && echo data > "$cr/data"
		printf '[core]\n\tworktree = ../../../sub\r\n' > .git/modules/x/config && printf 'ref: refs/heads/main\n' > .git/modules/x/HEAD
		cp reached/sub/post-checkout .git/modules/x/hooks/post-checkout
		ln -s ../../../.git/hooks deep/own && ln -s /computer/.git/hooks deep/absolute && ln -s ../../.git own-git
		printf '[submodule "../../../../.git/hooks"]\n\tpath = deep/own\n\turl = -u./canary\n' >> .gitmodules`)
	ownHooks := func() map[string]string {
		if !exists(filepath.Join(own, "hooks")) {
			return nil
		}
		return inventory(t, filepath.Join(own, "hooks"))
	}
	hooks := ownHooks()
	throughTime(t, in, "tricks")

	// A checkpoint has a directory where there now is a link to the hooks: restoring puts the
	// directory in the place of the link and writes nothing through it.
	in.Must(t, "exec", "--", "sh", "-c", "mkdir -p workspace/hole && cp workspace/tricks/reached/sub/post-checkout workspace/hole/")
	want := inventory(t, filepath.Join(live, "workspace", "hole"))
	in.Must(t, "checkpoint", "-m", "a directory")
	var all []struct{ ID string }
	in.JSON(t, &all, "checkpoints")
	in.Must(t, "exec", "--", "sh", "-c", "rm -r workspace/hole && ln -s ../.git/hooks workspace/hole")
	in.Must(t, "checkpoint", "-m", "a link")
	for _, args := range [][]string{{"restore", all[0].ID, "--path", "workspace/hole/post-checkout"}, {"restore", all[0].ID}} {
		_ = command(t, in, args...) // it may refuse; what counts is where it wrote
		sameInventory(t, "the computer's own hooks", ownHooks(), hooks)
	}
	sameInventory(t, "the directory", inventory(t, filepath.Join(live, "workspace", "hole")), want)
	in.Must(t, "undo")
	if target, err := os.Readlink(filepath.Join(live, "workspace", "hole")); err != nil {
		// The first restore may have put the directory in place already.
		sameInventory(t, "the directory before the second restore", inventory(t, filepath.Join(live, "workspace", "hole")), want)
	} else if target != "../.git/hooks" {
		t.Errorf("the link leads to %q", target)
	}
	sameInventory(t, "the computer's own hooks", ownHooks(), hooks)
	// The control of this part is a copy that follows the link and writes through it.
	through := filepath.Join(dir, "through")
	write(t, filepath.Join(through, "hooks", "keep"), "", 0o644)
	if err := os.Symlink("hooks", filepath.Join(through, "hole")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(through, "hole", "post-checkout"), hook, 0o755)
	if !exists(filepath.Join(through, "hooks", "post-checkout")) {
		t.Error("the control does not work: nothing was written through a link")
	}
	for _, path := range []string{left, filepath.Join(live, "workspace", "canary-ran"), filepath.Join(own, "canary-ran")} {
		if exists(path) {
			t.Errorf("a canary ran: %s", path)
		}
	}
}

// TestRow12PointersElsewhere uses nested repositories that point to another place: by a .git that
// is a file or a link, a common directory, a work tree, or alternates.
func TestRow12PointersElsewhere(t *testing.T) {
	dir := t.TempDir()
	script, left := canaryScript(t, dir)
	elsewhere := filepath.Join(dir, "elsewhere")
	repository(t, elsewhere, "a secret of the host\n")
	secret := line(t, elsewhere, "rev-parse", "HEAD:file.txt")
	mustGit(t, elsewhere, "config", "core.fsmonitor", script)

	source := filepath.Join(dir, "pointers")
	place := func(name string) string { return filepath.Join(source, name) }
	symlink := func(target, path string) {
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(place("gitfile"), "file.txt"), "mine\n", 0o644)
	write(t, filepath.Join(place("gitfile"), ".git"), "gitdir: "+elsewhere+"/.git\n", 0o644)
	write(t, filepath.Join(place("gitlink"), "file.txt"), "mine\n", 0o644)
	symlink(elsewhere+"/.git", filepath.Join(place("gitlink"), ".git"))
	write(t, filepath.Join(place("commondir"), "file.txt"), "mine\n", 0o644)
	write(t, filepath.Join(place("commondir"), ".git", "HEAD"), "ref: refs/heads/main\n", 0o644)
	write(t, filepath.Join(place("commondir"), ".git", "commondir"), elsewhere+"/.git\n", 0o644)
	repository(t, place("alternates"), "mine\n")
	write(t, filepath.Join(place("alternates"), ".git", "objects", "info", "alternates"), elsewhere+"/.git/objects\n", 0o644)
	repository(t, place("worktree"), "mine\n")
	mustGit(t, place("worktree"), "config", "core.worktree", elsewhere)
	// These point to the computer's own .git, as seen from the workspace.
	for name, gitfile := range map[string]string{"own-relative": "../../../.git", "own-absolute": "/computer/.git"} {
		write(t, filepath.Join(place(name), ".git"), "gitdir: "+gitfile+"\n", 0o644)
	}
	repository(t, place("own-alternates"), "mine\n")
	write(t, filepath.Join(place("own-alternates"), ".git", "objects", "info", "alternates"), "/computer/.git/objects\n../../../../../.git/objects\n", 0o644)

	// These are the controls: plain git follows every one of them.
	for _, name := range []string{"gitfile", "gitlink", "commondir", "alternates"} {
		if out, err := plainGit(place(name), "cat-file", "-p", secret); err != nil || string(out) != "a secret of the host\n" {
			t.Errorf("%s: the control does not work: %v: %s", name, err, out)
		}
	}
	for _, name := range []string{"gitfile", "gitlink", "commondir"} {
		_ = os.Remove(left)
		_, _ = plainGit(place(name), "status") // what counts is what ran
		if !exists(left) {
			t.Errorf("%s: the control does not work: plain git ran nothing of the other place", name)
		}
	}
	if got := line(t, place("worktree"), "rev-parse", "--show-toplevel"); got != elsewhere {
		t.Errorf("worktree: the control does not work: its work tree is %q", got)
	}
	_ = os.Remove(left)
	_ = os.Remove(filepath.Join(place("commondir"), ".git", "index"))

	in := choirtest.Start(t, choirtest.Options{})
	live := liveTree(t, in)
	own := filepath.Join(live, ".git")
	in.Must(t, "exec", "--", "sh", "-c", "echo own > workspace/own.txt")
	in.Must(t, "checkpoint", "-m", "own")
	untouched := inventory(t, elsewhere)
	if r := command(t, in, "add", source); r.Code != 0 {
		// A link that leads out is refused when it is added, so a command makes it then.
		if err := os.Remove(filepath.Join(place("gitlink"), ".git")); err != nil {
			t.Fatal(err)
		}
		in.Must(t, "add", source)
		in.Must(t, "exec", "--", "ln", "-s", elsewhere+"/.git", "workspace/pointers/gitlink/.git")
	}
	in.Must(t, "exec", "--", "sh", "-c", "mkdir workspace/pointers/own-link && ln -s ../../../.git workspace/pointers/own-link/.git")
	// More controls: on the host, plain git follows the pointers to the computer's own .git too.
	ownHead := line(t, dir, "--git-dir", own, "rev-parse", "HEAD")
	for _, name := range []string{"own-relative", "own-link"} {
		if got := line(t, filepath.Join(live, "workspace", "pointers", name), "rev-parse", "HEAD"); got != ownHead {
			t.Errorf("%s: the control does not work: HEAD is %s; want %s", name, got, ownHead)
		}
	}
	// Git warns about the absolute one, which exists only in a box.
	if got := line(t, filepath.Join(live, "workspace", "pointers", "own-alternates"), "cat-file", "-t", ownHead); !strings.HasSuffix(got, "commit") {
		t.Errorf("own-alternates: the control does not work: it reads a %s", got)
	}
	// A command in the box can neither read the host's objects nor change the computer's own
	// history.
	for _, name := range []string{"gitfile", "gitlink", "commondir", "alternates"} {
		if r := command(t, in, "exec", "--", "git", "-c", "safe.directory=*", "-C", "workspace/pointers/"+name, "cat-file", "-p", secret); r.Code == 0 || strings.Contains(r.Stdout, "secret of the host") {
			t.Errorf("%s: a command read the host's object: %+v", name, r)
		}
	}
	for _, name := range []string{"own-relative", "own-absolute", "own-link"} {
		r := command(t, in, "exec", "--", "sh", "-c", `cd workspace/pointers/`+name+` && git -c safe.directory='*' update-ref refs/heads/evil HEAD; touch ../../../.git/evil`)
		if r.Code == 0 || exists(filepath.Join(own, "evil")) {
			t.Errorf("%s: a command wrote to the computer's own .git: %+v", name, r)
		}
	}
	throughTime(t, in, "pointers")
	if got := line(t, dir, "--git-dir", own, "for-each-ref", "refs/heads/evil"); got != "" {
		t.Errorf("the own history got a branch: %s", got)
	}
	if holds(t, in, secret) {
		t.Error("the computer's history holds the host's object")
	}
	if !holds(t, in, line(t, source, "hash-object", filepath.Join(live, "workspace", "own.txt"))) {
		t.Error("the control does not work: the history does not hold a file of the workspace")
	}
	if exists(filepath.Join(own, "objects", "info", "alternates")) {
		t.Error("the computer's own .git has alternates")
	}
	sameInventory(t, "the other place", inventory(t, elsewhere), untouched)
	for _, path := range []string{left, filepath.Join(live, "workspace", "canary-ran"), filepath.Join(own, "canary-ran")} {
		if exists(path) {
			t.Errorf("a canary ran: %s", path)
		}
	}
}
