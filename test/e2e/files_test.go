package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// anyName puts and gets a file whose name contains line breaks, and a program: the name causes no
// trouble, and the program stays executable.
func anyName(t *testing.T, in *choirtest.Instance) {
	t.Helper()
	local := filepath.Join(t.TempDir(), "tool")
	if err := os.WriteFile(local, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	odd := "workspace/a\x01\nb"
	in.Must(t, "files", "put", local, odd)
	in.Must(t, "files", "get", odd, local+"2")
	if st, err := os.Stat(local + "2"); err != nil || st.Mode().Perm() != 0o755 {
		t.Errorf("what came back: %v, %v; want a program", st, err)
	}
	in.Must(t, "files", "rm", odd)
	told := eventsOf(t, in, "file.removed")
	if last := told[len(told)-1]; last.Subject != contract.FileSubject(odd) {
		t.Errorf("the removal has the subject %q", last.Subject)
	}
}

// nestedPreview commits in a repository inside the workspace: the diff, and the list of what a
// restore would change and has changed, name it.
func nestedPreview(t *testing.T, in *choirtest.Instance) {
	t.Helper()
	commit := " && git -c user.name=n -c user.email=n@n commit -q --allow-empty -m "
	in.Must(t, "exec", "--", "sh", "-c", "git init -q workspace/nest && cd workspace/nest"+commit+"one")
	var made checkpoint
	in.JSON(t, &made, "checkpoint", "-m", "one commit")
	in.Must(t, "exec", "--", "sh", "-c", "cd workspace/nest"+commit+"two")
	const repository = "workspace/nest/.git/"
	if said := in.Must(t, "diff", made.ID); !strings.Contains(said, repository) {
		t.Errorf("the difference does not name the repository:\n%s", said)
	}
	var dry, back restored
	in.JSON(t, &dry, "restore", made.ID, "--dry-run")
	in.JSON(t, &back, "restore", made.ID)
	if len(dry.Changes) != 1 || dry.Changes[0].Path != repository || !slices.Equal(dry.Changes, back.Changes) {
		t.Errorf("the dry run says %+v, the restore %+v", dry.Changes, back.Changes)
	}
	if log := in.Must(t, "exec", "--", "git", "-C", "workspace/nest", "log", "--format=%s"); strings.TrimSpace(log) != "one" {
		t.Errorf("after going back the repository's log is %q", log)
	}
}

type checkpoint struct {
	ID       string `json:"id"`
	Kind     string `json:"kind"`
	Verified string `json:"verified"`
	Message  string `json:"message"`
}

type restored struct {
	Checkpoint string `json:"checkpoint"`
	Safety     string `json:"safety"`
	DryRun     bool   `json:"dry_run"`
	Changes    []struct {
		Path string `json:"path"`
		Op   string `json:"op"`
	} `json:"changes"`
	Kept []struct {
		Path   string `json:"path"`
		Reason string `json:"reason"`
	} `json:"kept"`
}

// TestRestoreSaysWhatStays shows that a restore names the files that it leaves alone because no
// checkpoint contains them.
func TestRestoreSaysWhatStays(t *testing.T) {
	t.Parallel()
	in := choirtest.Start(t, choirtest.Options{})
	in.Must(t, "exec", "--", "sh", "-c", "ln -s notes.txt workspace/deps")
	var made checkpoint
	in.JSON(t, &made, "checkpoint", "-m", "a link")
	in.Must(t, "exec", "--", "sh", "-c", "rm workspace/deps; mkdir workspace/deps; echo fetched > workspace/deps/file; echo /workspace/deps/ > .gitignore")
	var dry, back restored
	in.JSON(t, &dry, "restore", made.ID, "--dry-run")
	if said := in.Must(t, "restore", made.ID, "--dry-run"); !strings.Contains(said, "stays as it is") {
		t.Errorf("the dry run says\n%s", said)
	}
	in.JSON(t, &back, "restore", made.ID)
	for name, r := range map[string]restored{"dry run": dry, "restore": back} {
		if len(r.Kept) != 1 || r.Kept[0].Path != "workspace/deps" || r.Kept[0].Reason == "" {
			t.Errorf("%s: kept %+v", name, r.Kept)
		}
	}
	if got := in.Must(t, "files", "cat", "workspace/deps/file"); got != "fetched\n" {
		t.Errorf("the folder's file holds %q", got)
	}
}

func TestFilesAndTimeTravel(t *testing.T) {
	t.Parallel()
	in := choirtest.Start(t, choirtest.Options{})
	put := func(path, content string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		r, err := in.RunInput(ctx, []byte(content), "files", "put", "-", path)
		if err != nil || r.Code != 0 {
			t.Fatalf("put %s: %v %+v", path, err, r)
		}
	}
	put("workspace/notes.txt", "one\r\n\x00\xff")
	var made struct {
		ID      string `json:"id"`
		Created bool   `json:"created"`
	}
	in.JSON(t, &made, "checkpoint", "-m", "first")
	if !made.Created || made.ID == "" {
		t.Fatalf("checkpoint: %+v", made)
	}
	put("workspace/notes.txt", "two")
	put("workspace/later.txt", "later")

	var dry restored
	in.JSON(t, &dry, "restore", made.ID, "--dry-run")
	if len(dry.Changes) != 2 || !dry.DryRun {
		t.Errorf("dry run: %+v; want two changes", dry)
	}
	if got := in.Must(t, "files", "cat", "workspace/notes.txt"); got != "two" {
		t.Errorf("a dry run changed the file to %q", got)
	}
	var back restored
	in.JSON(t, &back, "restore", made.ID)
	if got := in.Must(t, "files", "cat", "workspace/notes.txt"); got != "one\r\n\x00\xff" {
		t.Errorf("restored %q", got)
	}
	if back.Safety == "" || back.Checkpoint == "" {
		t.Errorf("restore: %+v", back)
	}
	in.JSON(t, &back, "undo")
	if got := in.Must(t, "files", "cat", "workspace/later.txt"); got != "later" {
		t.Errorf("undo brought %q", got)
	}
	in.JSON(t, &back, "undo")
	if got := in.Must(t, "files", "cat", "workspace/notes.txt"); got != "one\r\n\x00\xff" {
		t.Errorf("undo of the undo brought %q", got)
	}
	if listed := in.Must(t, "checkpoints"); !strings.Contains(listed, "person:Owner") {
		t.Errorf("the checkpoints are not told by whom they are:\n%s", listed)
	}
	var all []checkpoint
	in.JSON(t, &all, "checkpoints")
	if len(all) < 5 {
		t.Errorf("got %d checkpoints: %+v", len(all), all)
	}
	if diff := in.Must(t, "diff", all[len(all)-1].ID, made.ID); !strings.Contains(diff, "workspace/notes.txt") {
		t.Errorf("diff does not name the file:\n%s", diff)
	}
	onlyTheVersion(t, in)

	// The file that was just put differs from the newest checkpoint, unless one was made meanwhile.
	said := ""
	for try := 0; try < 5 && !strings.Contains(said, "workspace/newest.txt"); try++ {
		put("workspace/newest.txt", fmt.Sprint("newest ", try))
		said = in.Must(t, "diff")
	}
	if !strings.Contains(said, "+newest") || strings.Contains(said, "notes.txt") {
		t.Errorf("what changed since the newest checkpoint is said to be:\n%s", said)
	}

	moveAndTrash(t, in)
	anyName(t, in)
	nestedPreview(t, in)

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, path := range []string{"../escape", "/etc/passwd", ".git/config", "workspace/../../x"} {
		r, err := in.RunInput(ctx, []byte("x"), "files", "put", "-", path)
		if err != nil || r.Code == 0 {
			t.Errorf("put %s: %v, code %d; want a refusal", path, err, r.Code)
		}
	}
}

// onlyTheVersion puts and removes a file on conditions: if they do not hold, nothing is changed,
// and the error says what to do.
func onlyTheVersion(t *testing.T, in *choirtest.Instance) {
	t.Helper()
	local := filepath.Join(t.TempDir(), "local")
	if err := os.WriteFile(local, []byte("one"), 0o644); err != nil {
		t.Fatal(err)
	}
	const there = "workspace/versions.txt"
	refused := func(args ...string) {
		t.Helper()
		r, err := in.Run(t.Context(), args...)
		if err != nil || r.Code != 1 || !strings.Contains(r.Stderr, "changed meanwhile") {
			t.Errorf("choir %v: %v %+v; want a refusal that says what to do", args, err, r)
		}
	}
	var first, second struct {
		Version string `json:"version"`
	}
	refused("files", "put", local, there, "--if-match", "any")
	in.JSON(t, &first, "files", "put", local, there, "--if-match", "none")
	refused("files", "put", local, there, "--if-match", "none")
	if err := os.WriteFile(local, []byte("two"), 0o644); err != nil {
		t.Fatal(err)
	}
	in.JSON(t, &second, "files", "put", local, there, "--if-match", first.Version)
	refused("files", "put", local, there, "--if-match", first.Version)
	refused("files", "rm", there, "--if-match", first.Version)
	var got struct {
		Version string `json:"version"`
	}
	in.JSON(t, &got, "files", "get", there, local)
	if got.Version == "" || got.Version != second.Version || got.Version == first.Version {
		t.Errorf("put as %q and then %q, it is got as %q", first.Version, second.Version, got.Version)
	}
	for _, args := range [][]string{{"files", "put", local, there}, {"files", "rm", there}} { // as in a script with a variable that was never set
		if r, err := in.Run(t.Context(), append(args, "--if-match", "")...); err != nil || r.Code != 2 || !strings.Contains(r.Stderr, "names no version") {
			t.Errorf("choir %v on no version: %v %+v", args, err, r)
		}
	}
	in.Must(t, "files", "rm", there, "--if-match", got.Version)
	if r, err := in.Run(t.Context(), "files", "rm", there, "--if-match", "any"); err != nil || r.Code != 1 || !strings.Contains(r.Stderr, "there is no file") {
		t.Errorf("removed twice: %v %+v", err, r)
	}
}

// moveAndTrash moves files, removes them and brings them back.
func moveAndTrash(t *testing.T, in *choirtest.Instance) {
	t.Helper()
	refused := func(args ...string) string {
		t.Helper()
		r, err := in.Run(t.Context(), args...)
		if err != nil || r.Code == 0 {
			t.Errorf("choir %v: %v %+v; want a refusal", args, err, r)
		}
		return r.Stderr
	}
	in.Must(t, "exec", "--", "sh", "-c", "mkdir -p workspace/a/b && echo one > workspace/a/b/f && echo other > workspace/g")
	in.Must(t, "files", "mv", "workspace/a/b", "workspace/new/c")
	if got := in.Must(t, "files", "cat", "workspace/new/c/f"); got != "one\n" {
		t.Errorf("moved: %q", got)
	}
	refused("files", "mv", "workspace/g", "workspace/new/c/f")
	refused("files", "mv", "workspace/g", "../g")
	refused("files", "mv", "workspace/none", "workspace/some")

	source := t.TempDir()
	if out := in.Must(t, "add", source, "--name", "once", "--json"); strings.Contains(out, "null") {
		t.Errorf("a list that is empty is none: %s", out)
	}
	if said := refused("add", source, "--name", "once"); !strings.Contains(said, "workspace/once is there already") || strings.Contains(said, ".git") {
		t.Errorf("of a folder that is there: %q", said)
	}

	in.Must(t, "files", "rm", "-r", "workspace/new")
	in.Must(t, "files", "rm", "workspace/g")
	var list []view.Trashed
	in.JSON(t, &list, "files", "trash")
	if len(list) < 2 || list[0].Path != "workspace/g" || list[0].By != "remove" || list[0].Size != 6 || list[1].Path != "workspace/new" || list[1].Kind != view.FileDir {
		t.Fatalf("the trash has %+v", list)
	}
	in.Must(t, "files", "untrash", list[1].ID)
	if got := in.Must(t, "files", "cat", "workspace/new/c/f"); got != "one\n" {
		t.Errorf("put back: %q", got)
	}
	in.Must(t, "exec", "--", "sh", "-c", "echo newer > workspace/g")
	refused("files", "untrash", list[0].ID)
	refused("files", "untrash", list[0].ID, ".git/g")
	in.Must(t, "files", "untrash", list[0].ID, "workspace/older")
	if got := in.Must(t, "files", "cat", "workspace/older") + in.Must(t, "files", "cat", "workspace/g"); got != "other\nnewer\n" {
		t.Errorf("put back elsewhere: %q", got)
	}
	if said := refused("files", "untrash", list[0].ID); !strings.Contains(said, "choir files trash") || strings.Contains(said, ".git") {
		t.Errorf("of an entry that is not there: %q", said)
	}
	var left []view.Trashed
	if in.JSON(t, &left, "files", "trash"); len(left) != len(list)-2 {
		t.Errorf("the trash has %+v", left)
	}
	var events []contract.Event
	for line := range strings.Lines(in.Must(t, "events", "--type", "file.written")) {
		var ev contract.Event
		if err := json.Unmarshal([]byte(line), &ev); err != nil {
			t.Fatal(err)
		}
		events = append(events, ev)
	}
	if !slices.ContainsFunc(events, func(ev contract.Event) bool { return ev.Subject == "file/workspace/older" }) {
		t.Error("no event tells of what was put back")
	}
}

func TestExec(t *testing.T) {
	t.Parallel()
	in := choirtest.Start(t, choirtest.Options{})
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	r, err := in.Run(ctx, "exec", "--", "sh", "-c", "echo out; echo err >&2; echo hi > workspace/made.txt; exit 7")
	if err != nil || r.Code != 7 || r.Stdout != "out\n" || !strings.Contains(r.Stderr, "err\n") {
		t.Fatalf("exec: %v %+v", err, r)
	}
	if got := in.Must(t, "files", "cat", "workspace/made.txt"); got != "hi\n" {
		t.Errorf("the command left %q", got)
	}
	var all []checkpoint
	in.JSON(t, &all, "checkpoints")
	if len(all) == 0 || all[0].Kind != "after" {
		t.Errorf("the newest checkpoint is %+v; want one after the command", all)
	}
	if r, err = in.Run(ctx, "exec", "--cwd", "workspace", "--", "pwd"); err != nil || strings.TrimSpace(r.Stdout) != "/computer/workspace" {
		t.Errorf("pwd: %v %+v", err, r)
	}
	for what, script := range map[string]string{
		"history":           "touch .git/x",
		"a network card":    "test $(ls /sys/class/net 2>/dev/null | grep -vc '^lo$') -gt 0 || ip link | grep -q eth",
		"the host's home":   "test -e " + in.Data,
		"an inherited fd":   "ls -l /proc/self/fd | grep -q socket",
		"the host's secret": "env | grep -q CHOIR_TOKEN",
	} {
		if r, err = in.Run(ctx, "exec", "--", "sh", "-c", script); err != nil || r.Code == 0 {
			t.Errorf("the box can reach %s: %v %+v", what, err, r)
		}
	}
	for what, c := range map[string]struct {
		code int
		said string
		args []string
	}{
		"a missing command":          {127, "choir: no-such-command: command not found\n", []string{"--", "no-such-command"}},
		"what is no program":         {126, "choir: /etc/passwd: permission denied\n", []string{"--", "/etc/passwd"}},
		"ended by a signal":          {128 + 15, "", []string{"--", "sh", "-c", "kill -TERM $$"}},
		"a missing folder":           {125, "choir: no directory /computer/none in the box\n", []string{"--cwd", "none", "--", "true"}},
		"a folder outside":           {125, "choir: ", []string{"--cwd", "../x", "--", "true"}},
		"no command":                 {125, "choir: usage: ", nil},
		"an unknown flag":            {125, "choir: unknown flag", []string{"--nope", "--", "true"}},
		"a terminal, without one":    {125, "choir: -t wants a terminal", []string{"-t", "--", "true"}},
		"the same code, from inside": {125, "", []string{"--", "sh", "-c", "exit 125"}},
	} {
		r, err = in.Run(ctx, append([]string{"exec"}, c.args...)...)
		if err != nil || r.Code != c.code || !strings.HasPrefix(r.Stderr, c.said) || c.said == "" && r.Stderr != "" {
			t.Errorf("%s: %v %+v; want code %d and %q", what, err, r, c.code, c.said)
		}
	}
	many := slices.Repeat([]string{"x"}, 5000)
	if r, err = in.Run(ctx, append([]string{"exec", "--", "sh", "-c", "echo $#", "sh"}, many...)...); err != nil || r.Stdout != "5000\n" {
		t.Errorf("%d arguments: %v %+v", len(many), err, r)
	}
	if _, err := os.Stat(filepath.Join(in.Data, "runtime.json")); err != nil {
		t.Error(err)
	}
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	in := choirtest.Start(t, choirtest.Options{})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, tc := range []struct {
		want int
		args []string
	}{
		{0, []string{"version"}},
		{2, []string{"prompt"}},
		{2, []string{"restore", "--no-such-flag"}},
		{2, []string{"no-such-verb"}},
		{1, []string{"restore", "0123456789012345678901234567890123456789"}},
		{2, []string{"runs", "no-such-run"}},
		{1, []string{"runs", "01234567-89ab-7cde-8f01-23456789abcd"}},
		{2, []string{"runs", "--limit", "-1"}},
		{2, []string{"export", "-", "--json"}},
	} {
		r, err := in.Run(ctx, tc.args...)
		if err != nil || r.Code != tc.want {
			t.Errorf("choir %v: %v, code %d (%s); want %d", tc.args, err, r.Code, r.Stderr, tc.want)
		}
	}
	if r, err := in.Run(ctx, "checkpoints", "show", "none"); err != nil || r.Code != 2 || !strings.Contains(r.Stderr, "7 of its hex digits") {
		t.Errorf("what is no checkpoint: %v, %+v", err, r)
	}
	in.Stop(t)
	if r, err := in.Run(ctx, "runs"); err != nil || r.Code != 3 {
		t.Errorf("with nobody there: %v, code %d (%s); want 3", err, r.Code, r.Stderr)
	}
}
