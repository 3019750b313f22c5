package engine_test

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/engine"
	"choir.dev/choiros/internal/workspace/keeper/scan"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// computer is an engine with a tree of its own.
type computer struct {
	*engine.Engine
	t     testing.TB
	opts  engine.Options
	still string // the stillness that its requests name, if any
	torn  bool   // objects were damaged on purpose, so that git's check can't pass
}

func open(t testing.TB, change ...func(*engine.Options)) *computer {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Fatal("these tests need git: install it with the system's package manager")
	}
	dir := t.TempDir()
	opts := engine.Options{Root: filepath.Join(dir, "live"), Snapshots: filepath.Join(dir, "snapshots"), Uppers: filepath.Join(dir, "uppers")}
	for _, d := range []string{opts.Root, opts.Snapshots, opts.Uppers} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range change {
		f(&opts)
	}
	c := &computer{t: t, opts: opts}
	c.reopen()
	t.Cleanup(func() {
		if c.Engine != nil {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		c.fsck()
	})
	return c
}

// fsck has git check everything that the test committed, as strictly as servers check what is
// pushed to them.
func (c *computer) fsck() {
	c.t.Helper()
	if c.torn {
		return
	}
	cmd := exec.CommandContext(context.Background(), "git", "fsck", "--strict", "--no-dangling", "--no-progress")
	cmd.Dir = c.opts.Root
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*")
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "error") || strings.Contains(string(out), "warning") {
		c.t.Errorf("git fsck: %v\n%s", err, out)
	}
}

func (c *computer) reopen() {
	c.t.Helper()
	if c.Engine != nil {
		if err := c.Close(); err != nil {
			c.t.Fatal(err)
		}
	}
	e, err := engine.Open(c.t.Context(), c.opts)
	if err != nil {
		c.t.Fatal(err)
	}
	c.Engine = e
}

func (c *computer) path(p string) string { return filepath.Join(c.opts.Root, p) }

func (c *computer) write(p, content string) {
	c.t.Helper()
	writeFile(c.t, c.path(p), content)
}

func writeFile(t testing.TB, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (c *computer) read(p string) string {
	c.t.Helper()
	b, err := os.ReadFile(c.path(p))
	if err != nil {
		c.t.Fatal(err)
	}
	return string(b)
}

func (c *computer) ctx() context.Context { return scan.WithStill(c.t.Context(), c.still) }

func (c *computer) checkpoint(message string) wire.CheckpointReply {
	c.t.Helper()
	r, err := c.Checkpoint(c.ctx(), wire.CheckpointRequest{Note: wire.Note{Kind: "manual", Message: message}})
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

func (c *computer) restore(req wire.RestoreRequest) wire.RestoreReply {
	c.t.Helper()
	r, err := c.Restore(c.ctx(), req)
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

// picture returns everything in a tree except the root's .git: kind, executable bit and bytes.
func picture(t testing.TB, root string) map[string]string {
	t.Helper()
	out, err := pictureOf(root)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func pictureOf(root string) (map[string]string, error) {
	out := map[string]string{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		if rel == ".git" {
			return fs.SkipDir
		}
		switch {
		case d.IsDir():
			out[rel] = "dir"
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(p)
			if err != nil {
				return err
			}
			out[rel] = "link " + target
		case d.Type().IsRegular():
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			st, err := d.Info()
			if err != nil {
				return err
			}
			out[rel] = map[bool]string{true: "exec ", false: "file "}[st.Mode()&0o100 != 0] + string(b)
		default:
			out[rel] = d.Type().String()
		}
		return nil
	})
	return out, err
}

func samePicture(t testing.TB, got, want map[string]string) {
	t.Helper()
	for p, w := range want {
		if g, ok := got[p]; !ok {
			t.Errorf("%q is missing", p)
		} else if g != w {
			t.Errorf("%q is %.200q, want %.200q", p, g, w)
		}
	}
	for p := range got {
		if _, ok := want[p]; !ok {
			t.Errorf("%q is there, and should not be", p)
		}
	}
}

// oddTree fills the live tree with every kind of name and content.
func oddTree(c *computer) {
	for p, content := range map[string]string{
		"workspace/crlf.txt":             "one\r\ntwo\r\n",
		"workspace/mixed.txt":            "one\r\ntwo\nthree\r",
		"workspace/nul.bin":              "a\x00b\r\n\x00",
		"workspace/ident.c":              "/* $Id$ $Id: abc $ $Format:%H$ */\n",
		"workspace/utf16.txt":            "\xff\xfea\x00\r\x00\n\x00",
		"workspace/bom.txt":              "\xef\xbb\xbfhello\r\n",
		"workspace/invalid.txt":          "\xff\xfe\xfd",
		"workspace/empty":                "",
		"workspace/a\xff\xfeb":           "invalid name\r\n",
		"workspace/new\nline":            "x",
		"workspace/quo\"te'`$(id)":       "x",
		"workspace/-rf":                  "x",
		"workspace/back\\slash":          "x",
		"workspace/ lead and trail ":     "x",
		"workspace/tab\there":            "x",
		"workspace/:(glob)**":            "x",
		"workspace/git~1":                "x",
		"workspace/.empty.choir":         "a real file",
		"workspace/.git.choir/x":         "a real directory",
		"workspace/.gitmodules":          "[submodule \"x\"]\n\tpath = x\n\turl = -u./payload\n",
		"workspace/.Git/config":          "not a repository",
		"choiros/src/deep/er/file.tsx":   "export {}\n",
		"artifacts/system/theme.json":    "{}\n",
		"workspace/sub/.gitattributes":   "* text eol=crlf\n",
		"workspace/sub/x.txt":            "one\ntwo\n",
		"workspace/ignored/.gitignore":   "*.txt\n",
		"workspace/sub/lib/é/ünïcode.md": "é\n",
	} {
		c.write(p, content)
	}
	for _, f := range []func() error{
		func() error { return os.Chmod(c.path("workspace/crlf.txt"), 0o755) },
		func() error { return os.Symlink("../../etc/passwd", c.path("workspace/link")) },
		func() error { return os.Symlink("sub", c.path("workspace/dirlink")) },
		func() error { return os.Symlink("nowhere\n\xff", c.path("workspace/odd\nlink")) },
		func() error { return os.Symlink("x", c.path("workspace/sub/.gitmodules")) },
		func() error { return os.MkdirAll(c.path("workspace/emptydir/inner"), 0o755) },
	} {
		if err := f(); err != nil {
			c.t.Fatal(err)
		}
	}
}

func hostile(c *computer) {
	for _, dir := range []string{"", "workspace/", "workspace/sub/", "choiros/"} {
		c.write(dir+".gitattributes", "[attr]raw -text\n* text=auto eol=crlf ident filter=evil working-tree-encoding=UTF-16 export-subst diff=evil merge=evil\n*.txt text eol=lf working-tree-encoding=UTF-16LE-BOM\n* !text\n*.bin text\n")
	}
	for _, dir := range []string{"", "workspace/"} {
		c.write(dir+".gitignore", "*\n/*\n**\n")
	}
}

func TestBytesComeBackExactly(t *testing.T) {
	for _, order := range []string{"hostile first", "hostile later"} {
		t.Run(order, func(t *testing.T) {
			c := open(t)
			if order == "hostile first" {
				hostile(c)
			}
			oddTree(c)
			want := picture(t, c.opts.Root)
			first := c.checkpoint("everything")
			if len(first.Left) > 0 {
				t.Errorf("left out: %v", first.Left)
			}
			if order == "hostile later" {
				hostile(c)
			}
			for _, p := range []string{"workspace/crlf.txt", "workspace/nul.bin"} {
				c.write(p, "changed\n")
			}
			for _, p := range []string{"workspace/link", "workspace/a\xff\xfeb", "workspace/sub", "workspace/emptydir", "choiros"} {
				if err := os.RemoveAll(c.path(p)); err != nil {
					t.Fatal(err)
				}
			}
			c.write("workspace/sub", "a file where a directory was")
			c.reopen()
			before := picture(t, c.opts.Root)
			c.restore(wire.RestoreRequest{ID: "r1", To: first.Commit.Commit})
			samePicture(t, picture(t, c.opts.Root), want)
			c.restore(wire.RestoreRequest{ID: "r2", Undo: true})
			samePicture(t, picture(t, c.opts.Root), before)
			c.restore(wire.RestoreRequest{ID: "r3", Undo: true})
			samePicture(t, picture(t, c.opts.Root), want)
		})
	}
}

// TestRestoreKeepsFiles shows that files that a restore is asked to keep stay, whatever the old tree
// has in their way, and that naming a path at which nothing is keeps nothing.
func TestRestoreKeepsFiles(t *testing.T) {
	c := open(t)
	old := map[string]string{"a/file": "old\n", "b": "a file where a folder will be\n", "c/d/e": "below a file to be\n", "gone": "old\n", "other": "old\n"}
	for p, text := range old {
		c.write(p, text)
	}
	if err := os.MkdirAll(c.path("empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	first := c.checkpoint("old")
	for _, p := range []string{"b", "c", "gone", "empty"} {
		if err := os.RemoveAll(c.path(p)); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []string{"a/file", "b/file", "c/d", "empty/file", "other", "dir/file"} {
		c.write(p, "new\n")
	}
	if err := os.Symlink("other", c.path("link")); err != nil {
		t.Fatal(err)
	}
	keep := []wire.Path{"a/file", "b/file", "c/d", "empty/file", "gone", "dir", "link"}
	req := wire.RestoreRequest{ID: "r1", To: first.Commit.Commit, Keep: keep}
	c.restore(req)
	want := map[string]string{"a/file": "new\n", "b/file": "new\n", "c/d": "new\n", "empty/file": "new\n", "gone": "old\n", "other": "old\n"}
	for p, text := range want {
		if got := c.read(p); got != text {
			t.Errorf("%s holds %q; want %q", p, got, text)
		}
	}
	for _, p := range []string{"dir", "link"} { // a folder and a link are not files
		if _, err := os.Lstat(c.path(p)); err == nil {
			t.Errorf("%s was kept", p)
		}
	}
	c.restore(wire.RestoreRequest{ID: "r2", To: first.Commit.Commit, Paths: []wire.Path{"a"}, Keep: keep})
	if got := c.read("a/file"); got != "old\n" {
		t.Errorf("a path that is named is kept: %q", got)
	}
	req.ID, req.Keep = "r3", []wire.Path{"../x"}
	if _, err := c.Restore(t.Context(), req); !fault.Is(err, fault.Invalid) {
		t.Errorf("a path that leads outside: %v", err)
	}
}

func stockGit(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@example.invalid", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@example.invalid")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func TestCheckpointIsTheSameWhenNothingChanged(t *testing.T) {
	c := open(t)
	c.write("workspace/a", "a\n")
	first := c.checkpoint("first")
	if !first.Created || first.Kind != "initial" || first.Files != 1 {
		t.Errorf("first = %+v", first)
	}
	if again := c.checkpoint("again"); again.Created || again.Commit.Commit != first.Commit.Commit {
		t.Errorf("unchanged tree gave %+v", again)
	}
	c.write("workspace/a", "b\n")
	second := c.checkpoint("second")
	if !second.Created || second.Parent != first.Commit.Commit || second.Kind != "manual" {
		t.Errorf("second = %+v", second)
	}
	list, err := c.List(t.Context(), wire.ListRequest{})
	if err != nil || len(list) != 2 || list[0].Commit != second.Commit.Commit || list[0].Message != "second" {
		t.Errorf("list = %+v, %v", list, err)
	}
	d, err := c.Diff(t.Context(), wire.DiffRequest{From: first.Commit.Commit, To: second.Commit.Commit})
	if err != nil || len(d.Changes) != 1 || d.Changes[0] != (wire.Change{Path: "workspace/a", Op: "modified", Added: 1, Removed: 1}) || !strings.Contains(d.Diff, "-a\n+b\n") {
		t.Errorf("diff = %+v, %v", d, err)
	}
}

func TestSpecialFilesAreSkippedAndListed(t *testing.T) {
	c := open(t)
	c.write("workspace/a", "a")
	if err := unix.Mkfifo(c.path("workspace/pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := c.checkpoint("x")
	if len(r.Left) != 1 || r.Left[0].Path != "workspace/pipe" {
		t.Errorf("left = %v", r.Left)
	}
}

// stockUnsafe is git as anybody would run it, without any forced configuration.
func stockUnsafe(dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.Background(), "git", args...)
	cmd.Dir = dir
	return cmd
}
