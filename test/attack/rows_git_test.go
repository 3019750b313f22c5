package attack_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/workspace/keeper/engine"
	"choir.dev/choiros/internal/workspace/keeper/publish"
	"choir.dev/choiros/internal/workspace/keeper/wire"
	"choir.dev/choiros/test/choirtest"
)

// gitRows are what the author of a history can make git do: a computer's .git may come from a
// restored disk or an export instead of the keeper. TestRow12TheKeepersGit shows that the keeper
// never runs the commands that other tricks need, nor any command in a nested repository.
var gitRows = []Row{
	{Number: 12, Attack: "a hook that came with the history runs when the keeper drops a ref that was packed", Defences: []defence.Name{defence.GitForced, defence.GitOwn},
		Run: spoiled(hook("reference-transaction"))},
	{Number: 12, Attack: "a hook in another folder, which the history's configuration names, runs", Defences: []defence.Name{defence.GitForced, defence.GitOwn},
		Run: spoiled(func(t *testing.T, git, canary string) {
			write(t, filepath.Join(git, "..", "evil", "reference-transaction"), "#!/bin/sh\n"+canary+"\n", 0o755)
			configure(t, git, "[core]\n\thooksPath = "+filepath.Join(git, "..", "evil"))
		})},
	{Number: 12, Attack: "the same, in a file that the configuration includes", Defences: []defence.Name{defence.GitForced, defence.GitOwn},
		Run: spoiled(func(t *testing.T, git, canary string) {
			write(t, filepath.Join(git, "..", "evil", "reference-transaction"), "#!/bin/sh\n"+canary+"\n", 0o755)
			write(t, filepath.Join(git, "evil.inc"), "[core]\n\thooksPath = "+filepath.Join(git, "..", "evil")+"\n", 0o644)
			configure(t, git, "[include]\n\tpath = evil.inc")
		})},
	{Number: 12, Attack: "an attribute names a program that shows what differs", Defences: []defence.Name{defence.GitPlainDiff, defence.GitOwn},
		Run: spoiled(func(t *testing.T, git, canary string) {
			write(t, filepath.Join(git, "info", "attributes"), "* diff=evil\n", 0o644)
			configure(t, git, "[diff \"evil\"]\n\tcommand = "+canary)
		})},
	{Number: 12, Attack: "an attribute names a program that makes text of what is compared", Defences: []defence.Name{defence.GitPlainDiff, defence.GitOwn},
		Run: spoiled(func(t *testing.T, git, canary string) {
			write(t, filepath.Join(git, "info", "attributes"), "* diff=evil\n", 0o644)
			configure(t, git, "[diff \"evil\"]\n\ttextconv = "+canary)
		})},
	{Number: 12, Attack: "the history borrows the objects of another repository of the machine (alternates)", Defences: []defence.Name{defence.GitOwn},
		Run: func(t *testing.T) Verdict {
			elsewhere := filepath.Join(t.TempDir(), "elsewhere")
			repository(t, elsewhere, "a secret of the host\n")
			dir := t.TempDir()
			e := reopened(t, dir, func(git string) {
				write(t, filepath.Join(git, "objects", "info", "alternates"), elsewhere+"/.git/objects\n", 0o644)
			})
			got, err := e.Object(t.Context(), wire.ObjectRequest{Commit: line(t, elsewhere, "rev-parse", "HEAD"), Path: "file.txt"})
			return Verdict{err == nil, fmt.Sprintf("%+v %v", got, err)}
		}},
	{Number: 12, Attack: "a tree's .gitmodules, whose address is an option, stands in commits as git's own", Defences: []defence.Name{defence.GitNames},
		Run: func(t *testing.T) Verdict {
			e, root := newKeeper(t)
			put(t, root, "workspace/r/file", "x\n")
			put(t, root, ".gitmodules", "[submodule \"s\"]\n\tpath = s\n\turl = --upload-pack=touch /tmp/never\n")
			if _, err := e.Checkpoint(t.Context(), wire.CheckpointRequest{}); err != nil {
				t.Fatal(err)
			}
			out, err := plainGit(root, "--git-dir", filepath.Join(root, ".git"), "fsck", "--strict")
			return Verdict{err != nil && strings.Contains(string(out), "gitmodules"), clip(string(out))}
		}},
}

// hook puts a hook into the history.
func hook(name string) func(*testing.T, string, string) {
	return func(t *testing.T, git, canary string) {
		write(t, filepath.Join(git, "hooks", name), "#!/bin/sh\n"+canary+"\n", 0o755)
	}
}

// configure adds to the history's configuration.
func configure(t *testing.T, git, text string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(git, "config"), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = fmt.Fprintln(f, text)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// spoiled opens a history that somebody changed, and does everything with it that runs git. The
// attack works if the canary ran.
func spoiled(spoil func(t *testing.T, git, canary string)) func(*testing.T) Verdict {
	return func(t *testing.T) Verdict {
		dir := t.TempDir()
		script, left := canaryScript(t, t.TempDir())
		task := contract.NewID()
		e := reopened(t, dir, func(git string) { spoil(t, git, script); packed(t, git, task) })
		err := worked(t, e, filepath.Join(dir, "live"), task)
		return Verdict{exists(left), fmt.Sprintf("the canary ran: %v; %v", exists(left), err)}
	}
}

// packed puts a task's ref into a file that only git reads, since the keeper moves its own refs
// without git.
func packed(t *testing.T, git, task string) {
	t.Helper()
	head, err := os.ReadFile(filepath.Join(git, "refs", "heads", "main"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(git, "packed-refs"), strings.TrimSpace(string(head))+" "+publish.TaskRef(task)+"\n", 0o644)
}

// reopened makes a history, lets it be changed while nobody has it open, and opens it again.
func reopened(t *testing.T, dir string, change func(git string)) *engine.Engine {
	t.Helper()
	o := engine.Options{Root: filepath.Join(dir, "live"), Snapshots: filepath.Join(dir, "snapshots"), Uppers: filepath.Join(dir, "uppers")}
	for _, d := range []string{o.Root, o.Snapshots, o.Uppers} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	e, err := engine.Open(t.Context(), o)
	if err == nil {
		put(t, o.Root, "workspace/file", "one\n")
		_, err = e.Checkpoint(t.Context(), wire.CheckpointRequest{})
		err = errors.Join(err, e.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	change(filepath.Join(o.Root, ".git"))
	if e, err = engine.Open(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// worked makes a keeper do what it does in a day, and returns its errors.
func worked(t *testing.T, e *engine.Engine, root, task string) error {
	t.Helper()
	was := e.Head()
	put(t, root, "workspace/file", "two\n")
	k, err := e.Checkpoint(t.Context(), wire.CheckpointRequest{Note: wire.Note{Kind: "manual", Message: "m"}})
	_, diff := e.Diff(t.Context(), wire.DiffRequest{From: was, To: k.Commit.Commit})
	_, status := e.Status(t.Context())
	drop := e.Drop(t.Context(), task) // while the files that were put into the tree are there
	_, restore := e.Restore(t.Context(), wire.RestoreRequest{ID: "back", To: was})
	return errors.Join(err, diff, status, drop, restore, e.MarkLogged(t.Context(), e.Head()), e.Maintain(t.Context()))
}

// TestRow12TheKeepersGit is why filters, fsmonitor, ssh commands, submodules and bombs have no row:
// git runs or unpacks these in commands on a work tree, with a remote, or in the nested repository,
// and the keeper runs no such command. The test fails as soon as it does.
func TestRow12TheKeepersGit(t *testing.T) {
	// These commands read and write objects, refs and the index, and nothing else.
	plumbing := []string{"cat-file", "diff-tree", "for-each-ref", "index-pack", "init", "log", "maintenance", "merge-base", "merge-file", "pack-objects", "rev-list", "rev-parse", "update-ref"}
	dir := t.TempDir()
	asked, tool := filepath.Join(dir, "asked"), filepath.Join(dir, "git")
	write(t, tool, "#!/bin/sh\nfor a; do case $a in -c) skip=1;; *) [ -n \"$skip\" ] && skip= || { echo \"$a $GIT_DIR\" >> '"+asked+"'; break; };; esac; done\nexec git \"$@\"\n", 0o755)
	root := filepath.Join(dir, "live")
	o := engine.Options{Root: root, Snapshots: filepath.Join(dir, "snapshots"), Uppers: filepath.Join(dir, "uppers"), Git: tool}
	for _, d := range []string{o.Root, o.Snapshots, o.Uppers} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	e, err := engine.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	put(t, root, "workspace/file", "one\n")
	if _, err := e.Checkpoint(t.Context(), wire.CheckpointRequest{}); err != nil {
		t.Fatal(err)
	}
	repository(t, filepath.Join(root, "workspace/nested"), "content\n")
	for _, trick := range tricks() {
		trick.set(t, filepath.Join(root, "workspace/nested"), "/nonexistent/canary")
	}
	if err := worked(t, e, root, contract.NewID()); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(asked)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for l := range strings.Lines(string(b)) {
		verb, of, _ := strings.Cut(strings.TrimSpace(l), " ")
		seen[verb] = true
		if !slices.Contains(plumbing, verb) || of != filepath.Join(root, ".git") && of != filepath.Join(root, ".git-new") {
			t.Errorf("the keeper runs git %s in %s", verb, of)
		}
	}
	for _, verb := range []string{"cat-file", "diff-tree", "maintenance"} {
		if !seen[verb] {
			t.Fatalf("only %v was seen: this shows nothing", seen)
		}
	}
	// The source may name further commands, which this test did not reach.
	for _, verb := range gitVerbs(t) {
		if seen[verb] = true; !slices.Contains(plumbing, verb) {
			t.Errorf("the keeper's source runs git %s", verb)
		}
	}
	for _, verb := range plumbing {
		if !seen[verb] {
			t.Errorf("the keeper no longer runs git %s", verb)
		}
	}
}

// gitVerbs returns the commands of git that the keeper's source names.
func gitVerbs(t *testing.T) []string {
	t.Helper()
	call := regexp.MustCompile(`(?:\b[gG]it\(ctx, [^,]+, |\b[cC]ommand\((?:ctx|context\.Background\(\)), |\b(?:[gG]itLine|Line)\(ctx, |\bRun\(ctx, [^,]+, |\bgitUpTo\(ctx, [^"]*|args :?= \[\]string\{|[gG]it\(ctx, [^,]+, append\((?:append\()?\[\]string\{)"([a-z][a-z-]+)"`)
	files, err := filepath.Glob(filepath.Join(choirtest.Root(), "internal/workspace/keeper/*/*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		src, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range call.FindAllSubmatch(src, -1) {
			if verb := string(m[1]); verb != "-c" && !slices.Contains(out, verb) {
				out = append(out, verb)
			}
		}
	}
	if len(out) < 10 {
		t.Fatalf("only %v was found in the source", out)
	}
	return out
}
