package engine_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"choir.dev/choiros/internal/workspace/keeper/engine"
	"choir.dev/choiros/internal/workspace/keeper/wire"
	"pgregory.net/rapid"
)

// TestIgnoringIsGits compares what is captured with what git itself would add, over random patterns
// and names without a catch-all rule.
func TestIgnoringIsGits(t *testing.T) {
	t.Parallel()
	part := rapid.SampledFrom([]string{"a", "b", "ab", "a.txt", "x", "deps", "*.txt", "a*", "?", "[ab]", "[!a]x", "**", "x**", `\*`, `a\b`, "d"})
	line := rapid.Custom(func(rt *rapid.T) string {
		p := strings.Join(rapid.SliceOfN(part, 1, 3).Draw(rt, "parts"), "/")
		p = rapid.SampledFrom([]string{"", "", "/", "!"}).Draw(rt, "lead") + p + rapid.SampledFrom([]string{"", "", "/", " ", "\r"}).Draw(rt, "tail")
		return p
	})
	names := []string{"a", "b", "ab", "a.txt", "x", "d/a", "d/x/a.txt", "d/deps/b", "deps/a", "deps/x/y", "d/d/ab", "d/d/x", "xx/a"}
	rapid.Check(t, func(rt *rapid.T) {
		c := open(t)
		for _, n := range names {
			c.write("workspace/p/q/"+n, n)
		}
		for _, dir := range []string{"workspace/p/q", "workspace/p/q/d"} {
			c.write(dir+"/.gitignore", strings.Join(rapid.SliceOfN(line, 0, 4).Draw(rt, dir), "\n")+"\n")
		}
		raw := t.TempDir()
		if out, err := exec.CommandContext(t.Context(), "cp", "-a", c.path("workspace"), raw).CombinedOutput(); err != nil {
			rt.Fatalf("cp: %v %s", err, out)
		}
		stockGit(t, raw, "init", "-q")
		stockGit(t, raw, "add", "-A")
		want := strings.Split(stockGit(t, raw, "ls-files", "-z"), "\x00")
		r := c.checkpoint("x")
		got := strings.Split(stockGit(t, c.opts.Root, "ls-tree", "-r", "-z", "--name-only", r.Commit.Commit), "\x00")
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			rt.Errorf("captured %q, git would take %q", got, want)
		}
	})
}

func TestWhatWasCapturedStaysCaptured(t *testing.T) {
	c := open(t)
	c.write("workspace/p/q/secret.txt", "one\n")
	c.write("workspace/p/q/build/out.txt", "one\n")
	c.write("workspace/p/q/node_modules/dep/index.js", "never captured\n")
	c.write("workspace/p/q/.gitignore", "node_modules/\n")
	first := c.checkpoint("first")
	c.write("workspace/p/q/.gitignore", "*\nbuild/\nsecret.txt\n")
	c.write("workspace/p/q/secret.txt", "two\n")
	c.write("workspace/p/q/build/out.txt", "two\n")
	c.reopen()
	second := c.checkpoint("second")
	for _, p := range []string{"workspace/p/q/secret.txt", "workspace/p/q/build/out.txt"} {
		if got := stockGit(t, c.opts.Root, "show", second.Commit.Commit+":"+p); got != "two\n" {
			t.Errorf("%s in the second checkpoint: %q", p, got)
		}
	}
	c.restore(wire.RestoreRequest{ID: "r", To: first.Commit.Commit})
	if got := c.read("workspace/p/q/secret.txt") + c.read("workspace/p/q/node_modules/dep/index.js"); got != "one\nnever captured\n" {
		t.Errorf("after the restore: %q", got)
	}
}

// TestAWholeBeginningLeavesNothingOut shows that a history that begins with what another computer's
// checkpoint held begins with all of it, also with files that were ignored there later, and that
// several checkpoints can be brought in. Files that are new afterwards are ignored as usual.
func TestAWholeBeginningLeavesNothingOut(t *testing.T) {
	c := open(t, func(o *engine.Options) { o.Limits = wire.Limits{LargestFile: 1000, Files: 20, NewBytes: 1000} })
	c.write("workspace/.gitignore", "*.log\nout/\n")
	c.write("workspace/kept.log", strings.Repeat("x", 900))
	c.write("workspace/out/kept", strings.Repeat("y", 900))
	whole := func() wire.CheckpointReply {
		t.Helper()
		r, err := c.Checkpoint(c.ctx(), wire.CheckpointRequest{Whole: true})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := whole(); r.Kind != "initial" || len(r.Left) != 0 {
		t.Errorf("it begins with %+v", r)
	}
	c.write("workspace/new.log", "ignored")
	c.write("workspace/kept.log", "changed")
	for range 2 {
		whole()
		if got := stockGit(t, c.opts.Root, "ls-tree", "-r", "--name-only", "HEAD"); got != "workspace/.gitignore\nworkspace/kept.log\nworkspace/out/kept\n" {
			t.Errorf("captured:\n%s", got)
		}
		c.reopen()
	}
	if got := stockGit(t, c.opts.Root, "show", "HEAD:workspace/kept.log"); got != "changed" {
		t.Errorf("kept.log is %.20q", got)
	}
}

func TestGuardsSkipAndList(t *testing.T) {
	c := open(t, func(o *engine.Options) { o.Limits = wire.Limits{LargestFile: 100, Files: 20, NewBytes: 1000} })
	c.write("workspace/big", strings.Repeat("x", 101))
	c.write("workspace/work.txt", "mine\n")
	for i := range 50 {
		c.write(fmt.Sprintf("choiros/node_modules/dep%d/index.js", i), "x\n")
	}
	r := c.checkpoint("first")
	left := fmt.Sprint(r.Left)
	if !strings.Contains(left, "{choiros/node_modules ") || !strings.Contains(left, "{workspace/big ") || len(r.Skipped) != 2 {
		t.Errorf("left = %s, trailer %q", left, r.Skipped)
	}
	if got := stockGit(t, c.opts.Root, "ls-tree", "-r", "--name-only", "HEAD"); got != "workspace/work.txt\n" {
		t.Errorf("captured:\n%s", got)
	}
	// A captured file that grows too large keeps its last captured content.
	c.write("workspace/work.txt", strings.Repeat("y", 200))
	c.checkpoint("second")
	if got := stockGit(t, c.opts.Root, "show", "HEAD:workspace/work.txt"); got != "mine\n" {
		t.Errorf("work.txt = %.20q", got)
	}
}

// TestTreeFromARealOverlay has the kernel write the upper layer.
func TestTreeFromARealOverlay(t *testing.T) {
	c := open(t)
	c.write("workspace/edit", "old\n")
	c.write("workspace/gone", "x\n")
	c.write("workspace/dir/a", "a\n")
	c.write("workspace/dir/b", "b\n")
	k := c.begin("t1")
	snap, err := c.Snapshot(t.Context(), k.base)
	if err != nil {
		t.Fatal(err)
	}
	work, mnt := filepath.Join(c.opts.Uppers, k.id, "work"), filepath.Join(t.TempDir(), "mnt")
	for _, d := range []string{work, mnt} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script := fmt.Sprintf(`set -e; mount -t overlay overlay -o lowerdir=%s,upperdir=%s,workdir=%s,userxattr %s; cd %[4]s
echo new > workspace/edit; rm workspace/gone; rm -r workspace/dir; mkdir workspace/dir; echo c > workspace/dir/c; mkdir workspace/empty; chmod +x workspace/edit; ln -s ../.. workspace/up`,
		strings.Join(c.layerDirs(snap.Layers), ":"), k.path("."), work, mnt)
	if out, err := exec.CommandContext(t.Context(), "unshare", "-Urm", "sh", "-c", script).CombinedOutput(); err != nil {
		t.Fatalf("an overlay in a user namespace needs unshare (util-linux) and Linux 5.11: %v\n%s", err, out)
	}
	k.publish()
	want := map[string]string{".": "dir", "edit": "exec new\n", "dir": "dir", "dir/c": "file c\n", "empty": "dir", "up": "link ../.."}
	samePicture(t, picture(t, c.path("workspace")), want)
}

// TestAHostileIgnoreFileIsNotFollowed shows that an ignore file that asks for too much is ignored
// as a whole, and that this is said. One .gitignore once made every command take minutes.
func TestAHostileIgnoreFileIsNotFollowed(t *testing.T) {
	stars := strings.Repeat("*a", 100) + "b\n"
	for name, content := range map[string]string{
		"many patterns":   "victim\n" + strings.Repeat("x\n", 2001),
		"a long pattern":  "victim\n" + strings.Repeat("x", 1025) + "\n",
		"a large file":    "victim\n" + strings.Repeat("#"+strings.Repeat("x", 99)+"\n", 3000),
		"slow patterns":   "victim\n" + strings.Repeat(stars, 1200),
		"deep patterns":   "victim\n" + strings.Repeat(strings.Repeat("**/*a*", 60)+"b\n", 600),
		"all of the kind": "victim\n" + strings.Repeat(strings.Repeat("**/*a?", 40)+"[!a-z]\n", 1000),
	} {
		t.Run(name, func(t *testing.T) {
			c := open(t)
			c.write("workspace/p/.gitignore", content)
			c.write("workspace/p/victim", "somebody's work\n")
			c.write(".gitignore", "ignored\n")
			c.write("workspace/ignored", "still ignored\n")
			for i := range 300 {
				c.write(fmt.Sprintf("workspace/p/%s/%s%d", strings.Repeat("a", 120), strings.Repeat("a", 120), i), "")
			}
			r := c.checkpoint("first")
			if len(r.Left) != 1 || r.Left[0].Path != "workspace/p/.gitignore" || !strings.HasPrefix(r.Left[0].Reason, "is not followed") {
				t.Errorf("left: %+v", r.Left)
			}
			if got := stockGit(t, c.opts.Root, "ls-tree", "-r", "--name-only", "HEAD", "--", "workspace/p/victim", "workspace/ignored"); got != "workspace/p/victim\n" {
				t.Errorf("captured: %q", got)
			}
		})
	}
}
