package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/test/choirtest"
)

// entry is what git stores of a file: its kind, bytes and executable bit.
type entry struct {
	kind    string // file, exec, link
	content string
}

// treeOf reads a folder, with names as bytes. Folders without files have no entries, since git does
// not store them.
func treeOf(t *testing.T, dir string) map[string]entry {
	t.Helper()
	out := map[string]entry{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			out[rel] = entry{"link", target}
			return err
		case !info.Mode().IsRegular():
			return fmt.Errorf("%q is neither file nor link", rel)
		}
		b, err := os.ReadFile(path)
		kind := "file"
		if info.Mode()&0o100 != 0 {
			kind = "exec"
		}
		out[rel] = entry{kind, string(b)}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// same compares two trees byte for byte; skip leaves paths out.
func same(t *testing.T, when string, got, want map[string]entry, skip func(string) bool) {
	t.Helper()
	for p, w := range want {
		if g, ok := got[p]; skip == nil || !skip(p) {
			switch {
			case !ok:
				t.Errorf("%s: %q is gone", when, p)
			case g != w:
				t.Errorf("%s: %q is %s %.60q; want %s %.60q", when, p, g.kind, g.content, w.kind, w.content)
			}
		}
	}
	for p := range got {
		if _, ok := want[p]; !ok && (skip == nil || !skip(p)) {
			t.Errorf("%s: %q was not there", when, p)
		}
	}
}

// hostile is a .gitattributes that changes bytes wherever git itself checks files in or out.
const hostile = "* text eol=crlf working-tree-encoding=UTF-16 ident filter=evil diff=evil merge=evil\n*.bin -text\n"

// oddFiles makes files of every sort that a tree can contain.
func oddFiles(t *testing.T, dir string) {
	t.Helper()
	files := map[string]string{
		"crlf.txt": "one\r\ntwo\r\n", "lf.txt": "one\ntwo\n", "mixed.txt": "a\r\nb\nc\rd", "nul": "a\x00b\x00", "no-newline": "x",
		"invalid-utf8": "\xff\xfe\xc3\x28\xf0\x28\x8c\xbc", "utf16": "\xff\xfea\x00\r\x00\n\x00", "ident.c": "$Id$ $Id: forged $\n", "empty": "",
		"name\nwith\nnewlines": "1", `quote"and'and\backslash`: "2", "-rf": "3", "--output=x": "4", "trailing space ": "5", " leading": "6",
		"\xff\xfe-invalid-name\x80": "7", "émoji-🎼\u200d": "8", strings.Repeat("n", 255): "9", "tab\there": "10", "*?[a]": "11", "$(touch pwned)": "12",
		"café": "composed", "cafe\u0301": "decomposed", "UPPER": "u", "upper": "l", "con": "c", "nul.txt": "n", "a:b|c": "d", "\x01\x1b[31m": "e",
		"deep/er/and/\xf0\x28/er": "13", ".hidden": "14", "..almost": "15", "...": "16", "big": strings.Repeat("0123456789abcdef\r\n", 100_000),
		".gitattributes": hostile, "sub/.gitattributes": hostile, "sub/x.txt": "x\r\n$Id$\n", ".gitmodules": "[submodule \"x\"]\n\tpath = x\n\turl = -u./evil\n\tupdate = !touch pwned\n",
		".gitkeep": "", "lfs": "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
	}
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatalf("%q: %v", name, err)
		}
	}
	for name, content := range map[string]string{"run.sh": "#!/bin/sh\r\necho hi\r\n", "empty-exec": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		"dangling": "nowhere/at/all", "absolute": "/etc/passwd", "outside": "../../../../../etc/passwd", "to-dir": "deep", "loop": "loop",
		"odd-target": "a\nb\xff ", "to-git": ".git/config",
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// nestedRepository makes a repository with refs, a detached state, an index
// that differs from both HEAD and the files, and untracked files.
func nestedRepository(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, content string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	git(t, dir, "init", "-q", "-b", "trunk")
	write("kept.txt", "one\r\n")
	git(t, dir, "-c", "core.autocrlf=false", "add", ".")
	git(t, dir, "commit", "-q", "-m", "one")
	write("kept.txt", "two\r\n")
	git(t, dir, "commit", "-q", "-am", "two")
	git(t, dir, "branch", "side", "HEAD~1")
	git(t, dir, "tag", "-a", "-m", "tagged", "v1", "HEAD~1")
	git(t, dir, "update-ref", "refs/odd/place", "HEAD")
	git(t, dir, "gc", "-q")
	write("staged.txt", "staged\r\n")
	git(t, dir, "add", "staged.txt")
	write("staged.txt", "changed after it was staged\n")
	write("kept.txt", "uncommitted\r\n\x00")
	write("untracked.txt", "untracked\xff")
	write(".gitattributes", hostile)
	if err := os.WriteFile(filepath.Join(dir, ".git", "hooks", "post-checkout"), []byte("#!/bin/sh\ntouch /tmp/pwned\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// repositoryState returns what git says of a nested repository, with hooks and filters off.
func repositoryState(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	for _, args := range [][]string{
		{"for-each-ref"}, {"symbolic-ref", "HEAD"}, {"ls-files", "--stage"}, {"fsck", "--full", "--strict"},
		{"log", "--all", "--format=%H %s"}, {"cat-file", "-p", ":staged.txt"},
	} {
		b.WriteString(strings.Join(args, " ") + ":\n" + git(t, dir, append([]string{"-c", "core.fsmonitor=", "-c", "core.hooksPath=/dev/null"}, args...)...) + "\n")
	}
	return b.String()
}

func TestBytes(t *testing.T) {
	t.Parallel()
	in := choirtest.Start(t, choirtest.Options{})
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	source := filepath.Join(t.TempDir(), "odd")
	oddFiles(t, source)
	nestedRepository(t, filepath.Join(source, "nested"))
	want := treeOf(t, source)
	state := repositoryState(t, filepath.Join(source, "nested"))

	// The control: git changes bytes when it stores and restores the same folder.
	control := filepath.Join(t.TempDir(), "control")
	if out, err := exec.Command("cp", "-a", source, control).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.RemoveAll(filepath.Join(control, "nested")); err != nil {
		t.Fatal(err)
	}
	git(t, control, "init", "-q")
	for _, name := range []string{"lf.txt", "ident.c"} {
		_, _ = exec.Command("git", "-C", control, "-c", "safe.directory=*", "add", "-f", "--", name).CombinedOutput()
	}
	_ = os.Remove(filepath.Join(control, "ident.c"))
	_, _ = exec.Command("git", "-C", control, "-c", "safe.directory=*", "checkout", "--", "ident.c").CombinedOutput()
	if b, err := os.ReadFile(filepath.Join(control, "ident.c")); err == nil && string(b) == want["ident.c"].content {
		t.Fatal("the control does not work: git left the bytes alone")
	}

	in.Must(t, "add", source)
	added := filepath.Join(workspaceDir(t, in), "workspace", "odd")
	same(t, "after add", treeOf(t, added), want, nil)

	// The same is done through a box, with a copy, and with rules that ignore what was captured
	// before.
	in.Must(t, "exec", "--", "sh", "-c", "cp -a workspace/odd workspace/copied")
	copied := filepath.Join(workspaceDir(t, in), "workspace", "copied")
	same(t, "after a copy", treeOf(t, copied), want, nil)
	var made checkpoint
	in.JSON(t, &made, "checkpoint", "-m", "odd")
	var all []checkpoint
	in.JSON(t, &all, "checkpoints")
	id := all[0].ID
	in.Must(t, "exec", "--", "sh", "-c", `printf '*\n!.gitignore\n*.txt\nnested/\n/odd\n' > workspace/.gitignore; printf '*\n' > workspace/odd/.gitignore`)
	// "removed" comes first, because it removes odd/.gitignore too. While that file ignores
	// everything, no checkpoint contains a folder that is in the place of a link, so a restore
	// keeps the folder rather than lose it.
	for _, w := range []struct{ name, wreck string }{
		{"removed", "rm -rf workspace/odd workspace/copied"},
		{"changed", `cd workspace/odd && find . -type f -not -path './nested/.git/*' -exec sh -c 'for f; do printf changed > "$f"; done' _ {} + && rm -f dangling absolute && ln -s /etc/shadow dangling && mkdir absolute && touch absolute/x && cd nested && rm -rf .git/refs .git/packed-refs && git init -q . && rm -f .git/index && echo x > new`},
		{"swapped", `cd workspace && rm -rf copied && ln -s /etc copied && rm -rf odd/deep && printf file > odd/deep && rm odd/to-dir && mkdir -p odd/to-dir/sub && touch odd/to-dir/sub/x && chmod -x odd/run.sh && chmod +x odd/lf.txt`},
	} {
		name, wreck := w.name, w.wreck
		r, err := in.Run(ctx, "exec", "--", "sh", "-c", wreck)
		if err != nil || r.Code != 0 {
			t.Fatalf("%s: %v %+v", name, err, r)
		}
		if _, err := os.Lstat(added); name == "removed" && !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("nothing was removed (%v)", err)
		}
		in.Must(t, "restore", id)
		for what, dir := range map[string]string{"added": added, "copied": copied} {
			when := name + " and restored, the " + what
			same(t, when, treeOf(t, dir), want, func(p string) bool { return gitInternal(p) || p == ".gitignore" })
			if got := repositoryState(t, filepath.Join(dir, "nested")); got != state {
				t.Errorf("%s: the nested repository says\n%s\nwant\n%s", when, got, state)
			}
		}
	}
	if _, err := os.Lstat(filepath.Join(workspaceDir(t, in), "workspace", ".gitignore")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file made after the checkpoint is there after its restore (%v)", err)
	}
	if _, err := os.Lstat("/tmp/pwned"); err == nil {
		t.Error("a hook ran")
	}
	// These files are put through the API, with names that are difficult for a shell.
	for _, name := range []string{"name\nwith\nnewlines", "trailing space ", "émoji-🎼\u200d", "-rf"} {
		var out bytes.Buffer
		cmd := exec.CommandContext(ctx, choirtest.Binary(t), "files", "cat", "--", "workspace/odd/"+name)
		cmd.Env = []string{"CHOIR_URL=" + in.URL, "CHOIR_TOKEN=" + in.Token, "HOME=" + t.TempDir()}
		cmd.Stdout = &out
		if err := cmd.Run(); err != nil || out.String() != want[name].content {
			t.Errorf("files cat %q: %v, %q", name, err, out.String())
		}
	}
	// Stock git finds no fault in the history that contains all this, except for the hostile
	// .gitmodules.
	git(t, workspaceDir(t, in), "-c", "fsck.gitmodulesUrl=ignore", "-c", "fsck.gitmodulesUpdate=ignore", "fsck", "--full")
	var r struct{ Equal bool }
	if in.JSON(t, &r, "rebuild", "--check"); !r.Equal {
		t.Error("rebuild --check found differences")
	}
}

// gitInternal reports whether a file of a nested repository is compared by what git says of it
// instead, because how objects are packed is not part of its state.
func gitInternal(p string) bool { return strings.HasPrefix(p, "nested/.git/") }
