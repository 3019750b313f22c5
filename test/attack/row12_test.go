package attack_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/test/choirtest"
)

// These are rows 11 and 12 through the real binary and its keeper: whatever a tree, a repository or
// an archive contains, nothing of it runs on the host or in the keeper, and nothing is written
// outside.

// command runs a choir verb and returns the result.
func command(t *testing.T, in *choirtest.Instance, args ...string) choirtest.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	r, err := in.Run(ctx, args...)
	if err != nil {
		t.Fatalf("choir %s: %v", strings.Join(args, " "), err)
	}
	return r
}

func liveTree(t *testing.T, in *choirtest.Instance) string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(in.Data, "computers", "*", "workspace"))
	if err != nil || len(all) != 1 {
		t.Fatalf("got %d workspaces (%v); want one", len(all), err)
	}
	return all[0]
}

// plainGit runs git on the host without protection.
func plainGit(dir string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", append([]string{"-c", "safe.directory=*", "-c", "user.name=T", "-c", "user.email=t@example.com", "-c", "protocol.ext.allow=always"}, args...)...)
	cmd.Dir, cmd.WaitDelay = dir, time.Second
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_TERMINAL_PROMPT=0")
	return cmd.CombinedOutput()
}

func mustGit(t *testing.T, dir string, args ...string) {
	t.Helper()
	if out, err := plainGit(dir, args...); err != nil {
		t.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

func write(t *testing.T, path, content string, mode fs.FileMode) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), mode)); err != nil {
		t.Fatal(err)
	}
}

// gitTrick is one way in which a repository makes git run a command of its own.
type gitTrick struct {
	name string
	set  func(t *testing.T, dir, canary string) // prepares a repository with one commit
	bait [][]string                             // the commands of an unprotected git that fall for it
}

// canaryScript returns a command that leaves a file. The file's path is in the script rather than
// in its environment, so that it works wherever the command runs: on the host, and in the keeper,
// where the tree has another path.
func canaryScript(t *testing.T, dir string) (script, left string) {
	t.Helper()
	script, left = filepath.Join(dir, "canary.sh"), filepath.Join(dir, "canary-ran")
	write(t, script, "#!/bin/sh\ntouch '"+left+"' /computer/workspace/canary-ran /computer/.git/canary-ran 2>/dev/null\nexit 0\n", 0o755)
	return script, left
}

func tricks() []gitTrick {
	config := func(keys ...string) func(t *testing.T, dir, canary string) {
		return func(t *testing.T, dir, canary string) {
			for i := 0; i < len(keys); i += 2 {
				mustGit(t, dir, "config", keys[i], strings.ReplaceAll(keys[i+1], "CANARY", canary))
			}
		}
	}
	return []gitTrick{
		{name: "fsmonitor", set: config("core.fsmonitor", "CANARY"), bait: [][]string{{"status"}}},
		{name: "sshCommand", set: config("core.sshCommand", "CANARY", "remote.origin.url", "ssh://nobody.invalid/x"), bait: [][]string{{"fetch"}}},
		{name: "filter", set: func(t *testing.T, dir, canary string) {
			config("filter.evil.clean", "CANARY", "filter.evil.smudge", "CANARY", "filter.evil.required", "true")(t, dir, canary)
			write(t, filepath.Join(dir, ".gitattributes"), "* filter=evil\n", 0o644)
		}, bait: [][]string{{"add", "."}}},
		{name: "hooks", set: func(t *testing.T, dir, canary string) {
			for _, h := range []string{"pre-commit", "post-commit", "post-checkout", "reference-transaction", "post-index-change", "pre-auto-gc"} {
				write(t, filepath.Join(dir, ".git", "hooks", h), "#!/bin/sh\n"+canary+"\n", 0o755)
			}
		}, bait: [][]string{{"commit", "--allow-empty", "-m", "x"}}},
		{name: "hooksPath", set: func(t *testing.T, dir, canary string) {
			config("core.hooksPath", "evil-hooks")(t, dir, canary)
			write(t, filepath.Join(dir, "evil-hooks", "post-checkout"), "#!/bin/sh\n"+canary+"\n", 0o755)
		}, bait: [][]string{{"checkout", "-b", "other"}}},
		{name: "diff drivers", set: func(t *testing.T, dir, canary string) {
			config("diff.external", "CANARY", "diff.evil.textconv", "CANARY", "diff.evil.command", "CANARY")(t, dir, canary)
			write(t, filepath.Join(dir, ".gitattributes"), "* diff=evil\n", 0o644)
			write(t, filepath.Join(dir, "file.txt"), "changed\n", 0o644)
		}, bait: [][]string{{"diff"}}},
		{name: "pager and alias", set: config("alias.st", "!CANARY", "core.pager", "CANARY"), bait: [][]string{{"st"}}},
		{name: "include", set: func(t *testing.T, dir, canary string) {
			write(t, filepath.Join(dir, "evil.inc"), "[core]\n\tfsmonitor = "+canary+"\n", 0o644)
			config("include.path", "../evil.inc")(t, dir, canary)
		}, bait: [][]string{{"status"}}},
		{name: "worktree config", set: func(t *testing.T, dir, canary string) {
			config("extensions.worktreeConfig", "true")(t, dir, canary)
			write(t, filepath.Join(dir, ".git", "config.worktree"), "[core]\n\tfsmonitor = "+canary+"\n", 0o644)
		}, bait: [][]string{{"status"}}},
		{name: "ext remote", set: config("remote.origin.url", "ext::CANARY"), bait: [][]string{{"fetch", "origin"}}},
	}
}

// TestRow12Repositories uses configuration, hooks and attributes, of the computer's own history and
// of a nested repository.
func TestRow12Repositories(t *testing.T) {
	in := choirtest.Start(t, choirtest.Options{})
	dir := t.TempDir()
	script, left := canaryScript(t, dir)
	source := filepath.Join(dir, "tricks")
	for _, trick := range tricks() {
		repo := filepath.Join(source, strings.ReplaceAll(trick.name, " ", "-"))
		write(t, filepath.Join(repo, "file.txt"), "content\n", 0o644)
		mustGit(t, repo, "init", "-q")
		mustGit(t, repo, "add", ".")
		mustGit(t, repo, "commit", "-q", "-m", "one")
		// The control uses a copy, so that it does not change what is tried.
		control := filepath.Join(dir, "control-"+filepath.Base(repo))
		trick.set(t, repo, script)
		if out, err := exec.Command("cp", "-a", repo, control).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		_ = os.Remove(left)
		for _, args := range trick.bait {
			_, _ = plainGit(control, args...) // it may fail; what counts is what ran
		}
		if !exists(left) {
			t.Errorf("%s: the control does not work: plain git ran nothing", trick.name)
		}
		_ = os.Remove(left)
	}
	// All tricks are added at once, copied by a command, captured, restored and compared.
	in.Must(t, "add", source)
	live := liveTree(t, in)
	// This is a canary with the path that the tree has in the keeper.
	in.Must(t, "exec", "--", "sh", "-c", "cp -a workspace/tricks workspace/copy")
	in.Must(t, "checkpoint", "-m", "hostile")
	var all []struct{ ID string }
	in.JSON(t, &all, "checkpoints")
	in.Must(t, "exec", "--", "sh", "-c", "rm -rf workspace/copy; echo x >> workspace/tricks/filter/file.txt")
	in.Must(t, "diff", all[0].ID)
	in.Must(t, "restore", all[0].ID)
	in.Must(t, "undo")

	// The computer's own .git is made as hostile as somebody who could write it would make it (a
	// restored disk image). It is used in that state, before and after a restart.
	own := filepath.Join(live, ".git")
	spoil := func() {
		t.Helper()
		f, err := os.OpenFile(filepath.Join(own, "config"), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(f, "[core]\n\tfsmonitor = %[1]s\n\tsshCommand = %[1]s\n\thooksPath = hooks\n\tpager = %[1]s\n[filter \"evil\"]\n\tclean = %[1]s\n\tsmudge = %[1]s\n\trequired = true\n[diff]\n\texternal = %[1]s\n[gc]\n\tauto = 1\n[include]\n\tpath = evil.inc\n", script); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(own, "evil.inc"), "[core]\n\tfsmonitor = "+script+"\n", 0o644)
		write(t, filepath.Join(own, "info", "attributes"), "* filter=evil diff=evil text eol=crlf\n", 0o644)
		write(t, filepath.Join(own, "objects", "info", "alternates"), filepath.Join(dir, "elsewhere")+"\n", 0o644)
		for _, h := range []string{"pre-commit", "post-commit", "post-checkout", "reference-transaction", "post-index-change", "update", "post-update", "pre-auto-gc"} {
			write(t, filepath.Join(own, "hooks", h), "#!/bin/sh\n"+script+"\n", 0o755)
		}
	}
	use := func() {
		t.Helper()
		in.Must(t, "exec", "--", "sh", "-c", "date +%N > workspace/now; printf 'a\\nb\\n' > workspace/lines")
		in.Must(t, "checkpoint", "-m", "on a hostile .git")
		in.JSON(t, &all, "checkpoints")
		in.Must(t, "diff", all[0].ID)
		in.Must(t, "exec", "--", "rm", "workspace/lines")
		in.Must(t, "restore", all[0].ID, "--path", "workspace/lines")
		if got := in.Must(t, "files", "cat", "workspace/lines"); got != "a\nb\n" {
			t.Errorf("a restored file is %q", got)
		}
	}
	spoil()
	use()
	in.Stop(t)
	spoil()
	in = choirtest.Start(t, choirtest.Options{Data: in.Data})
	use()
	for _, path := range []string{left, filepath.Join(live, "workspace", "canary-ran"), filepath.Join(own, "canary-ran")} {
		if exists(path) {
			t.Errorf("a canary ran: %s", path)
		}
	}
	// The control of the last part is git without the keeper's protection, which falls for it.
	spoil()
	_, _ = plainGit(live, "status")
	_, _ = plainGit(live, "commit", "--allow-empty", "-m", "x")
	if !exists(left) {
		t.Error("the control does not work: plain git ran nothing in the computer's .git")
	}
}

// TestRow12RemoteGrantsNothing adds a git remote, by which an agent would grant itself a host.
func TestRow12RemoteGrantsNothing(t *testing.T) {
	in := choirtest.Start(t, choirtest.Options{})
	in.Must(t, "exec", "--", "sh", "-c", `cd workspace && mkdir r && cd r && git init -q && git remote add origin https://evil.example/x.git && git config url.https://evil.example/.insteadOf https://allowed.example/
		printf '[submodule "s"]\n\tpath = s\n\turl = https://evil.example/s.git\n' > .gitmodules; printf 'registry=https://evil.example/\n' > .npmrc; printf 'registry=https://evil.example/\n' > ../../choiros/.npmrc.evil`)
	in.Must(t, "checkpoint", "-m", "a remote")
	r := command(t, in, "exec", "--", "sh", "-c", "cd workspace/r && git -c http.lowSpeedLimit=1 fetch origin; curl -sS -m 20 https://evil.example/")
	if r.Code == 0 {
		t.Errorf("the remote could be reached: %+v", r)
	}
	denied := 0
	lines := bufio.NewScanner(strings.NewReader(in.Must(t, "events", "--type", "egress.denied")))
	for lines.Scan() {
		var e struct{ Data contract.EgressDecided }
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		if e.Data.Host == "evil.example" {
			denied++
		}
	}
	if denied < 2 {
		t.Errorf("%d denials of evil.example were recorded; want one for git and one for curl", denied)
	}
	if out := in.Must(t, "events", "--type", "egress.allowed"); strings.Contains(out, "evil.example") {
		t.Errorf("it was allowed: %s", out)
	}
}

// hostileTar is an archive that tries to write outside the directory in which it is unpacked.
type hostileTar struct {
	name    string
	entries []tar.Header
	// outside is the path that an unprotected tar makes, relative to that directory.
	outside string
}

// TestRow11Archives (rows 11 and 27) uses archives that leave their directory.
func TestRow11Archives(t *testing.T) {
	in := choirtest.Start(t, choirtest.Options{})
	live := liveTree(t, in)
	reg := func(name string, size int64) tar.Header {
		return tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644}
	}
	link := func(kind byte, name, target string) tar.Header {
		return tar.Header{Typeflag: kind, Name: name, Linkname: target, Mode: 0o777}
	}
	var many []tar.Header
	for i := range 210_000 {
		many = append(many, tar.Header{Typeflag: tar.TypeChar, Name: fmt.Sprintf("f%d", i), Mode: 0o666}) // devices are quick to make
	}
	for _, c := range []hostileTar{
		{"traversal", []tar.Header{reg("a", 1), reg("../escaped", 1)}, "../escaped"},
		{"deep traversal", []tar.Header{reg("a/../../escaped", 1)}, "../escaped"},
		{"absolute", []tar.Header{reg("/tmp/choir-escaped", 1)}, ""},
		{"symlink and write through it", []tar.Header{link(tar.TypeSymlink, "l", ".."), reg("l/escaped", 1)}, "../escaped"},
		{"symlink to the history", []tar.Header{link(tar.TypeSymlink, "l", "../../.git"), reg("l/escaped", 1)}, ""},
		{"hard link outside", []tar.Header{link(tar.TypeLink, "h", "../outside-file"), reg("x", 1)}, ""},
		{"hard link through a symlink", []tar.Header{link(tar.TypeSymlink, "l", ".."), link(tar.TypeLink, "h", "l/outside-file")}, ""},
		{"a file over a symlink", []tar.Header{link(tar.TypeSymlink, "l", "../escaped"), reg("l", 1)}, ""},
		{"a directory over a symlink", []tar.Header{link(tar.TypeSymlink, "d", ".."), {Typeflag: tar.TypeDir, Name: "d/", Mode: 0o755}, reg("d/escaped", 1)}, "../escaped"},
		{"the same file twice", []tar.Header{reg("a", 1), reg("a", 1)}, ""},
		{"a size beyond reason", []tar.Header{reg("big", 1<<50)}, ""},
		{"too many entries", many, ""},
	} {
		archive := tarOf(c.entries)
		if c.outside != "" {
			dir := filepath.Join(t.TempDir(), "in")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("tar", "-xPf", "-", "--no-same-owner", "--keep-directory-symlink")
			cmd.Dir, cmd.Stdin = dir, bytes.NewReader(archive)
			out, _ := cmd.CombinedOutput() // it may complain; what counts is what it made
			if !exists(filepath.Join(dir, c.outside)) {
				t.Errorf("%s: the control does not work: %s", c.name, out)
			}
		}
		status, body := sendTar(t, in, "hostile", archive)
		if status < 400 || status >= 500 {
			t.Errorf("%s: %d %s; want a refusal", c.name, status, body)
		}
		for _, place := range []string{"workspace/hostile", "workspace/escaped", "escaped", ".git/escaped", "../escaped"} {
			if _, err := os.Lstat(filepath.Join(live, place)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %s is there (%v)", c.name, place, err)
			}
		}
		if exists("/tmp/choir-escaped") {
			t.Fatalf("%s: an absolute path was written", c.name)
		}
		if left, _ := filepath.Glob(filepath.Join(live, ".git", "choir", "tmp-import-*")); len(left) != 0 {
			t.Errorf("%s: left behind: %v", c.name, left)
		}
	}
	// Devices, pipes and sockets are left out, and so are set-user-id bits.
	status, body := sendTar(t, in, "devices", tarOf([]tar.Header{
		reg("plain", 1), {Typeflag: tar.TypeChar, Name: "mem", Devmajor: 1, Devminor: 1, Mode: 0o666},
		{Typeflag: tar.TypeBlock, Name: "disk", Devmajor: 8, Mode: 0o666}, {Typeflag: tar.TypeFifo, Name: "pipe", Mode: 0o666},
		{Typeflag: tar.TypeReg, Name: "suid", Mode: 0o6755, Size: 1}, {Typeflag: tar.TypeDir, Name: "sticky/", Mode: 0o7777},
	}))
	if status != 200 || !strings.Contains(body, `"skipped":3`) {
		t.Errorf("devices: %d %s; want three left out", status, body)
	}
	entries, err := os.ReadDir(filepath.Join(live, "workspace", "devices"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if m := info.Mode(); m&(fs.ModeDevice|fs.ModeNamedPipe|fs.ModeSocket|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) != 0 {
			t.Errorf("%s has mode %v", e.Name(), m)
		}
	}
	if len(entries) != 3 {
		t.Errorf("got %d entries; want plain, suid and sticky", len(entries))
	}
	in.Must(t, "checkpoint", "-m", "after archives")
}

// tarOf writes an archive; the files' contents are zeros, and cut short if their size is absurd.
func tarOf(entries []tar.Header) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		if err := w.WriteHeader(&h); err != nil {
			panic(err)
		}
		if h.Size > 1<<20 {
			b.Write(make([]byte, 1<<20))
			return b.Bytes()
		}
		_, _ = w.Write(make([]byte, h.Size))
	}
	_ = w.Close()
	return b.Bytes()
}
