package e2e_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
	"choir.dev/choiros/test/modelserver"
)

// TestUndoUndoesTheLastThing does one thing after another and undoes each: what the dry run says is
// what happens, undo names what it undoes, and undoing the undo brings it back. None of the files
// was in a checkpoint before.
func TestUndoUndoesTheLastThing(t *testing.T) {
	t.Parallel()
	in := choirtest.Start(t, choirtest.Options{})
	put := func(content string) func() {
		return func() {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if r, err := in.RunInput(ctx, []byte(content), "files", "put", "-", "workspace/a"); err != nil || r.Code != 0 {
				t.Fatalf("put: %v %+v", err, r)
			}
		}
	}
	choir := func(args ...string) func() { return func() { t.Helper(); in.Must(t, args...) } }
	steps := []struct {
		name string
		do   func()
		what view.UndoneKind
	}{
		{"a put", put("one"), view.UndonePut},
		{"an overwrite", put("two"), view.UndonePut},
		{"a removal", choir("files", "rm", "workspace/a"), view.UndoneRemoval},
		{"a move", choir("files", "mv", "workspace/a", "workspace/b"), view.UndoneMove},
		{"a command", choir("exec", "--", "sh", "-c", "mv workspace/a workspace/c; echo x > workspace/d"), view.UndoneCommand},
		{"a run", func() { ended(t, in, submit(t, in, "make the desktop green")) }, view.UndoneRun},
	}
	picture := func() string {
		var out []string
		for _, f := range []string{"a", "b", "c", "d"} {
			r, err := in.Run(t.Context(), "files", "cat", "workspace/"+f)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, f+": "+r.Stdout)
		}
		return strings.Join(append(out, in.Must(t, "files", "cat", "artifacts/system/theme.json")), "\n")
	}
	for _, s := range steps {
		before := picture()
		s.do()
		after := picture()
		if before == after {
			t.Fatalf("%s changed nothing", s.name)
		}
		for _, want := range []struct {
			what view.UndoneKind
			is   string
		}{{s.what, before}, {"", after}, {"", before}} {
			var dry, did view.Restored
			in.JSON(t, &dry, "undo", "--dry-run")
			in.JSON(t, &did, "undo")
			if dry.Undone == nil || did.Undone == nil || *dry.Undone != *did.Undone || want.what != "" && did.Undone.What != want.what {
				t.Fatalf("%s: the dry run says that it undoes %+v, the undo %+v", s.name, dry.Undone, did.Undone)
			}
			if paths(dry.Changes) != paths(did.Changes) || len(did.Changes) == 0 {
				t.Errorf("%s: the dry run says %q, the undo %q", s.name, paths(dry.Changes), paths(did.Changes))
			}
			if now := picture(); now != want.is {
				t.Errorf("%s: after undoing %+v there is\n%s\nwant\n%s", s.name, did.Undone, now, want.is)
			}
		}
		put("one")() // the next step begins with this file
	}
	in.Must(t, "files", "rm", "workspace/a")
	in.Must(t, "restore", "--path", "workspace/a")
	if got := in.Must(t, "files", "cat", "workspace/a"); got != "one" {
		t.Errorf("what was removed comes back as %q", got)
	}
}

func paths(changes []contract.Change) string {
	var out []string
	for _, ch := range changes {
		out = append(out, string(ch.Op)+" "+ch.Path)
	}
	return strings.Join(out, "\n")
}

// TestUndoUndoesACommandThatNobodySawEnd shows that the next undo takes back what a command had
// done when everything was killed, and nothing that was done before it.
func TestUndoUndoesACommandThatNobodySawEnd(t *testing.T) {
	t.Parallel()
	in := choirtest.Start(t, choirtest.Options{})
	put := func(content string) {
		t.Helper()
		if r, err := in.RunInput(t.Context(), []byte(content), "files", "put", "-", "workspace/a"); err != nil || r.Code != 0 {
			t.Fatalf("put: %v %+v", err, r)
		}
	}
	put("one")
	put("two")
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		_, _ = in.Run(ctx, "exec", "--", "sh", "-c", "echo made > workspace/b; echo there > workspace/c; sleep 600") // its end is never reported
	})
	choirtest.Eventually(t, time.Minute, "what the command made", func() bool {
		r, err := in.Run(t.Context(), "files", "cat", "workspace/c")
		return err == nil && r.Stdout == "there\n"
	})
	data := in.Data
	in.Kill()
	cancel()
	running.Wait()
	in = choirtest.Start(t, choirtest.Options{Data: data})
	var dry, did view.Restored
	in.JSON(t, &dry, "undo", "--dry-run")
	in.JSON(t, &did, "undo")
	if did.Undone == nil || did.Undone.What != view.UndoneCommand || dry.Undone == nil || *dry.Undone != *did.Undone || paths(dry.Changes) != paths(did.Changes) {
		t.Errorf("undone: %+v, foretold: %+v", did.Undone, dry.Undone)
	}
	if got := in.Must(t, "files", "cat", "workspace/a"); got != "two" {
		t.Errorf("what was put before holds %q", got)
	}
	if r, err := in.Run(t.Context(), "files", "cat", "workspace/b"); err != nil || r.Code == 0 {
		t.Errorf("what the command made is there: %v %+v", err, r)
	}
}

// TestUndoLeavesWhatIsIgnoredAndARunAtWork shows that undoing the removal of an ignore file leaves
// the files that it ignored alone, and says so. While a run has not ended, undo refuses with the
// run's id, and changes nothing.
func TestUndoLeavesWhatIsIgnoredAndARunAtWork(t *testing.T) {
	t.Parallel()
	in, _ := startModel(t, modelserver.Anthropic, modelserver.Script{Turns: turnsOf("director", "", modelserver.Turn{Hold: "for ever"})})
	put := func(path, content string) {
		t.Helper()
		if r, err := in.RunInput(t.Context(), []byte(content), "files", "put", "-", path); err != nil || r.Code != 0 {
			t.Fatalf("put: %v %+v", err, r)
		}
	}
	put("workspace/q/.gitignore", ".env\n")
	put("workspace/q/.env", "KEY=1\n")
	in.Must(t, "exec", "--", "rm", "workspace/q/.gitignore")
	for _, args := range [][]string{{"undo", "--dry-run"}, {"undo"}} {
		var r view.Restored
		in.JSON(t, &r, args...)
		if paths(r.Changes) != "added workspace/q/.gitignore" || len(r.Kept) != 1 || r.Kept[0].Path != "workspace/q/.env" {
			t.Errorf("%q: changes %q, as staying %+v", args, paths(r.Changes), r.Kept)
		}
	}
	if got := in.Must(t, "files", "cat", "workspace/q/.env"); got != "KEY=1\n" {
		t.Errorf("what is ignored holds %q", got)
	}
	put("workspace/a", "one")
	run := submit(t, in, "be busy")
	if r, err := in.Run(t.Context(), "undo"); err != nil || r.Code == 0 || !strings.Contains(r.Stderr, "choir run cancel "+run) {
		t.Errorf("undo while a run is at work: %v %+v", err, r)
	}
	if got := in.Must(t, "files", "cat", "workspace/a"); got != "one" {
		t.Errorf("what was put before the run holds %q", got)
	}
	in.Must(t, "run", "cancel", run)
	ended(t, in, run)
	in.Must(t, "undo")
	if r, err := in.Run(t.Context(), "files", "cat", "workspace/a"); err != nil || r.Code == 0 {
		t.Errorf("what was put is there after its undo: %v %+v", err, r)
	}
}

// TestUndoOfATerminalAndALink shows that a link that a put replaced becomes a link again, and that
// everything that a command does, such as a terminal in which somebody works, is one act: while it
// lasts, undo refuses, and afterwards it takes back all of it.
func TestUndoOfATerminalAndALink(t *testing.T) {
	t.Parallel()
	in := choirtest.Start(t, choirtest.Options{})
	in.Must(t, "exec", "--", "sh", "-c", "echo first > workspace/a; ln -s a workspace/l")
	if r, err := in.RunInput(t.Context(), []byte("put\n"), "files", "put", "-", "workspace/l"); err != nil || r.Code != 0 {
		t.Fatalf("put: %v %+v", err, r)
	}
	kind := func() view.FileKind {
		t.Helper()
		var files []view.File
		in.JSON(t, &files, "files", "ls", "workspace/l")
		return files[0].Kind
	}
	for i, want := range []view.FileKind{view.FileSymlink, view.FileRegular, view.FileSymlink} {
		var dry, did view.Restored
		in.JSON(t, &dry, "undo", "--dry-run")
		in.JSON(t, &did, "undo")
		if got := kind(); got != want || paths(dry.Changes) != "modified workspace/l" || paths(did.Changes) != paths(dry.Changes) || did.Undone == nil || did.Undone.What != view.UndonePut {
			t.Errorf("undo %d: there is a %s, want a %s; it says %+v", i, got, want, did)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() {
		_, _ = in.Run(ctx, "exec", "--", "sh", "-c", "echo bit >> workspace/t; echo by >> workspace/t; sleep 600") // it is ended by the test
	})
	choirtest.Eventually(t, time.Minute, "what the command did so far", func() bool {
		r, err := in.Run(t.Context(), "files", "cat", "workspace/t")
		return err == nil && r.Stdout == "bit\nby\n"
	})
	if r, err := in.Run(t.Context(), "undo"); err != nil || r.Code != 1 || !strings.Contains(r.Stderr, "still at work") || kind() != view.FileSymlink {
		t.Errorf("undo while a command is at work: %v, %+v", err, r)
	}
	cancel()
	running.Wait()
	choirtest.Eventually(t, time.Minute, "the command has ended, and is the last thing", func() bool {
		r, err := in.Run(t.Context(), "undo", "--dry-run", "--json")
		return err == nil && strings.Contains(r.Stdout, `"command"`)
	})
	in.Must(t, "undo")
	if r, err := in.Run(t.Context(), "files", "cat", "workspace/t"); err != nil || r.Code == 0 {
		t.Errorf("what the command did is there: %v, %+v", err, r)
	}
	if got := kind(); got != view.FileSymlink {
		t.Errorf("what was done before it became a %s", got)
	}
}

// TestAPromptNeedsNoWorkspaceFolder shows that when the command that first put something into
// workspace/ is undone, the folder stays, empty, and that a person who removes the folder can still
// prompt.
func TestAPromptNeedsNoWorkspaceFolder(t *testing.T) {
	t.Parallel()
	in := choirtest.Start(t, choirtest.Options{})
	in.Must(t, "exec", "--", "sh", "-c", "mkdir workspace/x && echo 1 > workspace/x/1")
	in.Must(t, "undo")
	in.Must(t, "exec", "--", "rmdir", "workspace")
	if r := ended(t, in, submit(t, in, "make the desktop green")); r.Status != contract.RunDone {
		t.Errorf("without workspace/ a run is %s: %s", r.Status, r.Summary)
	}
}
