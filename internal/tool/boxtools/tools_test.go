package boxtools_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"choir.dev/choiros/internal/associate/verify"
	"choir.dev/choiros/internal/tool"
	"choir.dev/choiros/internal/tool/boxtools"
)

type box struct {
	t    *testing.T
	root string
	srv  *httptest.Server
}

func newBox(t *testing.T) *box {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	root := filepath.Join(t.TempDir(), "computer")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	h, err := boxtools.New(boxtools.Options{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	b := &box{t: t, root: root, srv: httptest.NewServer(h)}
	t.Cleanup(func() {
		b.srv.Close()
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *box) put(name, content string, mode os.FileMode) {
	b.t.Helper()
	p := filepath.Join(b.root, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(content), mode); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Chmod(p, mode); err != nil {
		b.t.Fatal(err)
	}
}

func (b *box) get(name string) string {
	b.t.Helper()
	data, err := os.ReadFile(filepath.Join(b.root, name))
	if err != nil {
		b.t.Fatal(err)
	}
	return string(data)
}

func (b *box) call(name string, args any) tool.Result {
	b.t.Helper()
	return b.callBase(name, args, "")
}

func (b *box) callBase(name string, args any, base string) tool.Result {
	b.t.Helper()
	body, err := json.Marshal(args)
	if err != nil {
		b.t.Fatal(err)
	}
	req, err := http.NewRequest(http.MethodPost, b.srv.URL+"/tools/"+name, bytes.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set(boxtools.HeaderBase, base)
	resp, err := b.srv.Client().Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	var res tool.Result
	if err := json.Unmarshal(data, &res); err != nil {
		b.t.Fatalf("%s: %s: %v", name, data, err)
	}
	if resp.StatusCode != http.StatusOK && res.OK {
		b.t.Fatalf("%s is ok with %s", name, resp.Status)
	}
	return res
}

type (
	m      map[string]any
	result = tool.Result
)

func TestReadWriteEdit(t *testing.T) {
	b := newBox(t)
	if r := b.call("write", m{"path": "a/b/c.txt", "content": "one\ntwo\ntwo\n"}); !r.OK {
		t.Fatal(r.Output)
	}
	if r := b.call("read", m{"path": b.root + "/a/b/c.txt", "offset": 2, "limit": 1}); !r.OK || !r.Truncated || !strings.HasPrefix(r.Output, "     2\ttwo\n") {
		t.Fatalf("%+v", r)
	}
	if r := b.call("edit", m{"path": "a/b/c.txt", "old": "two", "new": "2"}); r.OK || !strings.Contains(r.Output, "2 times") {
		t.Fatalf("%+v", r)
	}
	if r := b.call("edit", m{"path": "a/b/c.txt", "old": "none", "new": "2"}); r.OK {
		t.Fatalf("%+v", r)
	}
	if err := os.Chmod(filepath.Join(b.root, "a/b/c.txt"), 0o750); err != nil {
		t.Fatal(err)
	}
	if r := b.call("edit", m{"path": "a/b/c.txt", "old": "two", "new": "2", "all": true}); !r.OK {
		t.Fatal(r.Output)
	}
	if got := b.get("a/b/c.txt"); got != "one\n2\n2\n" {
		t.Fatalf("%q", got)
	}
	info, err := os.Stat(filepath.Join(b.root, "a/b/c.txt"))
	if err != nil || info.Mode().Perm() != 0o750 {
		t.Fatalf("mode %v %v", info.Mode(), err)
	}
	if r := b.call("write", m{"path": "x.sh", "content": "", "executable": true}); !r.OK {
		t.Fatal(r.Output)
	}
	if info, _ := os.Stat(filepath.Join(b.root, "x.sh")); info.Mode().Perm() != 0o755 {
		t.Fatalf("mode %v", info.Mode())
	}
	left, err := filepath.Glob(filepath.Join(b.root, "a/b/.choir-write-*"))
	if err != nil || len(left) != 0 {
		t.Fatalf("left behind: %v %v", left, err)
	}
	b.put("crlf", "a\r\nb\r\n", 0o644)
	if r := b.call("edit", m{"path": "crlf", "old": "a\nb", "new": "c\nd"}); !r.OK || b.get("crlf") != "c\r\nd\r\n" {
		t.Fatalf("%+v", r)
	}
}

// TestNoPathLeavesTheWorkspace (attack 11) shows that the tools read and write nothing outside the
// workspace.
func TestNoPathLeavesTheWorkspace(t *testing.T) {
	b := newBox(t)
	outside := filepath.Join(filepath.Dir(b.root), "secret")
	if err := os.WriteFile(outside, []byte("canary\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"abs": outside, "rel": "../secret", "dir": "..", "root": "/", "proc": "/proc/self/root"} {
		if err := os.Symlink(to, filepath.Join(b.root, name)); err != nil {
			t.Fatal(err)
		}
	}
	b.put(".git/config", "[core]\n", 0o644)
	paths := []string{"abs", "rel", "dir/secret", "root" + outside, "proc" + outside, "../secret", outside, "a/../../secret", "./../secret", "abs\x00", "/proc/self/environ"}
	for _, p := range paths {
		for _, c := range []struct {
			tool string
			args m
		}{
			{"read", m{"path": p}}, {"write", m{"path": p, "content": "owned"}}, {"edit", m{"path": p, "old": "canary", "new": "owned"}},
			{"ls", m{"path": p}}, {"grep", m{"pattern": "canary", "path": p}}, {"check_theme", m{"path": p}},
			{"bash", m{"command": "cat secret", "cwd": p}}, {"write", m{"path": p + "/x", "content": "owned"}},
		} {
			r := b.call(c.tool, c.args)
			if r.OK && !strings.HasPrefix(r.Output, "no match") || strings.Contains(r.Output, "canary") {
				t.Errorf("%s %q: %+v", c.tool, p, r)
			}
		}
	}
	if r := b.call("grep", m{"pattern": "canary"}); strings.Contains(r.Output, "canary") {
		t.Errorf("grep followed a link: %s", r.Output)
	}
	if r := b.call("glob", m{"pattern": "**/secret"}); strings.Contains(r.Output, "secret") {
		t.Errorf("glob followed a link: %s", r.Output)
	}
	for _, p := range []string{".git/config", ".git/hooks/x", ".git", "./.git/config", "a/../.git/config"} {
		if r := b.call("write", m{"path": p, "content": "x"}); r.OK {
			t.Errorf("wrote %s", p)
		}
	}
	data, err := os.ReadFile(outside)
	if err != nil || string(data) != "canary\n" {
		t.Fatalf("outside: %q %v", data, err)
	}
	if r := b.call("facts", m{"paths": []string{"../secret", "dir/x", "/etc/passwd", ".git/config"}}); !r.OK {
		t.Errorf("%+v", r)
	}
	if r := b.call("apply_patch", m{"patch": "--- /dev/null\n+++ b/dir/evil\n@@ -0,0 +1 @@\n+x\n"}); r.OK {
		t.Error("a patch went through a link")
	}
	if r := b.call("apply_patch", m{"patch": "--- /dev/null\n+++ b/../evil\n@@ -0,0 +1 @@\n+x\n"}); r.OK {
		t.Error("a patch left the workspace")
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(b.root), "evil")); err == nil {
		t.Error("evil exists")
	}
}

func TestOddFilesDontHangAndAreNotRead(t *testing.T) {
	b := newBox(t)
	if err := syscall.Mkfifo(filepath.Join(b.root, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	b.put("bin", "a\x00b", 0o644)
	for _, tool := range []string{"read", "check_theme"} {
		for _, p := range []string{"fifo", "bin", ".", "none"} {
			if r := b.call(tool, m{"path": p}); r.OK {
				t.Errorf("%s %s: %+v", tool, p, r)
			}
		}
	}
	if r := b.call("write", m{"path": "fifo", "content": "x"}); r.OK {
		t.Error("wrote a fifo")
	}
	if r := b.call("grep", m{"pattern": "a"}); !r.OK || !strings.HasPrefix(r.Output, "no match") {
		t.Errorf("%+v", r)
	}
	big := filepath.Join(b.root, "big")
	if err := os.Truncate(big, 0); err == nil {
		t.Fatal("unexpected")
	}
	f, err := os.Create(big)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(1 << 31); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if r := b.call("read", m{"path": "big"}); r.OK {
		t.Error("read 2 GiB")
	}
}

func TestOutputsAreBounded(t *testing.T) {
	b := newBox(t)
	b.put("long", strings.Repeat(strings.Repeat("x", 5000)+"\n", 300), 0o644)
	if r := b.call("read", m{"path": "long"}); !r.OK || !r.Truncated || len(r.Output) > boxtools.MaxOutput {
		t.Fatalf("%d %v", len(r.Output), r.Truncated)
	}
	if r := b.call("grep", m{"pattern": "x"}); !r.OK || len(r.Output) > boxtools.MaxOutput {
		t.Fatalf("%d", len(r.Output))
	}
	r := b.call("bash", m{"command": "yes | head -c 20000000; echo END; echo oops >&2; exit 3"})
	if !r.OK || !r.Truncated || len(r.Output) > boxtools.MaxOutput || r.Command.ExitCode != 3 || !strings.Contains(r.Output, "END") || !strings.Contains(r.Output, "oops") {
		t.Fatalf("%d %+v", len(r.Output), r.Command.ExitCode)
	}
	if len(r.Command.Stdout) > 300<<10 {
		t.Fatalf("stdout %d", len(r.Command.Stdout))
	}
	for i := range 1100 {
		b.put(fmt.Sprintf("many/%04d", i), "", 0o644)
	}
	if r := b.call("ls", m{"path": "many"}); !r.OK || !r.Truncated {
		t.Fatal("ls is not bounded")
	}
	if r := b.call("glob", m{"pattern": "many/*"}); !r.OK || !r.Truncated {
		t.Fatal("glob is not bounded")
	}
}

func TestBashIsKilledAsAGroup(t *testing.T) {
	b := newBox(t)
	began := time.Now()
	r := b.call("bash", m{"command": "sleep 1000 & echo $! > pid; wait", "timeout_s": 1})
	if !r.OK || r.Command.ExitCode != 137 || !strings.Contains(r.Output, "stopped after") {
		t.Fatalf("%+v", r)
	}
	if time.Since(began) > 20*time.Second {
		t.Fatal("it hung")
	}
	pid := strings.TrimSpace(b.get("pid"))
	for deadline := time.Now().Add(10 * time.Second); ; {
		state, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil || strings.Contains(string(state), ") Z ") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the child lives on")
		}
		time.Sleep(10 * time.Millisecond)
	}
	// A child that keeps the output open does not delay the end of the call.
	if r := b.call("bash", m{"command": "sleep 30 & echo hi"}); !r.OK || !strings.Contains(r.Output, "hi") {
		t.Fatalf("%+v", r)
	}
	if r := b.call("run", m{"argv": []string{"no-such-program"}}); r.Command == nil || r.Command.ExitCode != -1 || r.Command.Stderr == "" {
		t.Fatalf("%+v", r)
	}
}

func TestArgumentsAreChecked(t *testing.T) {
	b := newBox(t)
	for _, c := range []struct {
		tool string
		args any
		want string
	}{
		{"nope", m{}, "no tool"}, {"read", m{}, "path: is required"}, {"read", m{"path": "a", "x": 1}, "x: is not a known field"},
		{"read", []int{1}, "arguments: is an array"}, {"bash", m{"command": "x", "timeout_s": 9999}, "timeout_s"},
		{"grep", m{"pattern": "("}, "pattern"}, {"glob", m{"pattern": "[a"}, "not valid"},
	} {
		if r := b.call(c.tool, c.args); r.OK || !strings.Contains(r.Output, c.want) {
			t.Errorf("%s %v: %+v", c.tool, c.args, r)
		}
	}
}

func TestSearch(t *testing.T) {
	b := newBox(t)
	b.put("src/a.go", "package a\nfunc Hello() {}\n", 0o644)
	b.put("src/b.txt", "hello\n", 0o644)
	b.put("node_modules/x/a.go", "Hello\n", 0o644)
	if r := b.call("grep", m{"pattern": "hello", "ignore_case": true, "glob": "*.go"}); r.Output != "src/a.go:2:func Hello() {}\n" {
		t.Errorf("%q", r.Output)
	}
	if r := b.call("grep", m{"pattern": "hello", "path": "src/b.txt"}); r.Output != "src/b.txt:1:hello\n" {
		t.Errorf("%q", r.Output)
	}
	if r := b.call("glob", m{"pattern": "**/*.go"}); r.Output != "src/a.go\n" {
		t.Errorf("%q", r.Output)
	}
	if r := b.call("ls", m{"path": "src"}); !strings.Contains(r.Output, "a.go") {
		t.Errorf("%q", r.Output)
	}
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=t", "-c", "user.email=t@t"}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// TestGitRunsNothingOfTheTree (attack 12) shows that git runs no program that the tree configures.
func TestGitRunsNothingOfTheTree(t *testing.T) {
	b := newBox(t)
	mark := filepath.Join(t.TempDir(), "ran")
	evil := filepath.Join(t.TempDir(), "evil")
	if err := os.WriteFile(evil, []byte("#!/bin/sh\ntouch "+mark+"\ncat\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	b.put("a.txt", "one\n", 0o644)
	b.put("b.txt", "one\n", 0o644)
	git(t, b.root, "init", "-q")
	git(t, b.root, "add", ".")
	git(t, b.root, "commit", "-qm", "x")
	base := git(t, b.root, "rev-parse", "HEAD")
	b.put(".gitattributes", "*.txt filter=evil diff=evil\n", 0o644)
	for _, kv := range [][2]string{{"core.fsmonitor", evil}, {"diff.external", evil}, {"diff.evil.textconv", evil}, {"diff.evil.command", evil}} {
		git(t, b.root, "config", kv[0], kv[1])
	}
	b.put("sub/f", "x", 0o644)
	git(t, filepath.Join(b.root, "sub"), "init", "-q")
	git(t, filepath.Join(b.root, "sub"), "config", "core.fsmonitor", evil)
	b.put("a.txt", "two\n", 0o644)
	b.put("new.md", "n\n", 0o644)
	if err := os.Remove(filepath.Join(b.root, "b.txt")); err != nil {
		t.Fatal(err)
	}
	os.Remove(mark)
	st := b.callBase("git_status", m{}, base)
	if !st.OK || !strings.Contains(st.Output, "M  a.txt") || !strings.Contains(st.Output, "D  b.txt") || !strings.Contains(st.Output, "A  new.md") {
		t.Fatalf("%+v", st)
	}
	d := b.callBase("git_diff", m{"path": "a.txt"}, base)
	if !d.OK || !strings.Contains(d.Output, "-one\n+two") || strings.Contains(d.Output, "b.txt") {
		t.Fatalf("%+v", d)
	}
	if r := b.callBase("git_diff", m{}, "--output=/tmp/x"); r.OK {
		t.Fatal("an option as base")
	}
	if _, err := os.Stat(mark); err == nil {
		t.Fatal("git ran something of the tree")
	}
}

// TestGitLeavesLargeFilesAlone: a commit contains manifests in place of large files, so git's
// output says that these were not compared.
func TestGitLeavesLargeFilesAlone(t *testing.T) {
	b := newBox(t)
	b.put("a.txt", "one\n", 0o644)
	b.put("dir/big.chunks.choir", "its manifest", 0o644)
	b.put("dir/größer.chunks.choir", "its manifest", 0o644)
	git(t, b.root, "init", "-q")
	git(t, b.root, "add", ".")
	git(t, b.root, "commit", "-qm", "x")
	base := git(t, b.root, "rev-parse", "HEAD")
	for _, name := range []string{"big", "größer"} {
		if err := os.Remove(filepath.Join(b.root, "dir", name+".chunks.choir")); err != nil {
			t.Fatal(err)
		}
		b.put("dir/"+name, "its content", 0o644)
	}
	b.put("a.txt", "two\n", 0o644)
	st := b.callBase("git_status", m{}, base)
	if want := "M  a.txt\nnot compared, for they are large: dir/big, \"dir/gr\\303\\266\\303\\237er\"\n"; !st.OK || st.Output != want {
		t.Errorf("%+v; want %q", st, want)
	}
	if d := b.callBase("git_diff", m{}, base); !d.OK || !strings.Contains(d.Output, "+two") || strings.Contains(d.Output, "big") || strings.Contains(d.Output, "dir/gr") {
		t.Errorf("%+v", d)
	}
}

func TestPatch(t *testing.T) {
	b := newBox(t)
	b.put("a.txt", "one\ntwo\n", 0o644)
	if r := b.call("apply_patch", m{"patch": "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"}); !r.OK || b.get("a.txt") != "one\n2\n" {
		t.Fatalf("%+v", r)
	}
	if r := b.call("apply_patch", m{"patch": "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-zwei\n+2\n"}); r.OK {
		t.Fatal("applied what does not fit")
	}
}

func TestFacts(t *testing.T) {
	b := newBox(t)
	b.put("workspace/p/package.json", `{"scripts":{"test":"node --test","build":"x","evil":"y"}}`, 0o644)
	b.put("workspace/p/src/a.js", "", 0o644)
	b.put("artifacts/system/theme.json", "{}", 0o644)
	b.put("loose.sh", "", 0o644)
	r := b.call("facts", m{"paths": []string{"workspace/p/src/a.js", "workspace/p/src/gone.js", "artifacts/system/theme.json", "loose.sh"}})
	var f verify.Facts
	if err := json.Unmarshal(r.Data, &f); err != nil {
		t.Fatal(err)
	}
	if len(f.Projects) != 1 || f.Projects[0].Dir != "workspace/p" || len(f.Projects[0].Present) != 1 || f.Projects[0].Scripts["test"] == "" || f.Projects[0].Scripts["evil"] != "" || !f.Theme || len(f.Loose) != 1 {
		t.Fatalf("%+v", f)
	}
	if r := b.call("check_theme", m{"path": "artifacts/system/theme.json"}); r.OK {
		t.Fatal("an empty theme is valid")
	}
}

// TestProgramsAreFoundInTheCommandsOwnPath: a box's first process has no PATH, and commands get
// theirs by Env.
func TestProgramsAreFoundInTheCommandsOwnPath(t *testing.T) {
	path := os.Getenv("PATH")
	t.Setenv("PATH", "")
	b, err := boxtools.New(boxtools.Options{Root: t.TempDir(), Env: []string{"PATH=" + path}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for name, args := range map[string]string{"bash": `{"command":"ls -d ."}`, "run": `{"argv":["ls","-d","."]}`} {
		if res, err := b.Call(t.Context(), name, json.RawMessage(args), ""); err != nil || res.Command == nil || res.Command.Stdout != ".\n" {
			t.Errorf("%s: %+v %v", name, res, err)
		}
	}
}

func TestCancelEndsACommand(t *testing.T) {
	b, err := boxtools.New(boxtools.Options{Root: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	res, err := b.Call(ctx, "bash", json.RawMessage(`{"command":"sleep 1000"}`), "")
	if err != nil || !strings.Contains(res.Output, "cancelled") {
		t.Fatalf("%+v %v", res, err)
	}
}
