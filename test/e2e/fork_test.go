package e2e_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// TestAForkHasWhatTheCheckpointHeld shows that a fork has the files and documents of its
// checkpoint, and a log of its own that begins with where it comes from, and that a fork that was
// unfinished when choir was killed is removed.
func TestAForkHasWhatTheCheckpointHeld(t *testing.T) {
	t.Parallel()
	in := choirtest.Start(t, choirtest.Options{})
	put := func(name, text string) {
		t.Helper()
		if res, err := in.RunInput(t.Context(), []byte(text), "files", "put", "-", name); err != nil || res.Code != 0 {
			t.Fatalf("put: %v, %+v", err, res)
		}
	}
	var source []view.Computer
	in.JSON(t, &source, "computers")
	in.Must(t, "prompt", "--wait", `write "buy milk" to workspace/list.txt`)
	var runs []view.Run
	in.JSON(t, &runs, "runs")
	put("workspace/mine", "one")
	in.Must(t, "exec", "--", "sh", "-c", "mkdir -p workspace/deep; printf x > workspace/deep/run; chmod +x workspace/deep/run; ln -s mine workspace/link")
	var k view.Checkpointed
	in.JSON(t, &k, "checkpoint", "-m", "to fork")
	put("workspace/mine", "two")

	var made view.Computer
	in.JSON(t, &made, "computers", "fork", "Attempt", "--from", string(source[0].ID), "--checkpoint", k.ID)
	if made.State != view.StateAwake && made.State != view.StateWorking || made.Name != "Attempt" || made.ID == source[0].ID {
		t.Fatalf("forked: %+v", made)
	}
	id := string(made.ID)
	begins := func(in *choirtest.Instance, id string) (created contract.ComputerCreated) {
		t.Helper()
		var event contract.Event
		if err := json.Unmarshal([]byte(in.Must(t, "events", "--limit", "1", "--json", "--computer", id)), &event); err != nil || event.Type != "computer.created" || json.Unmarshal(event.Data, &created) != nil {
			t.Fatalf("the first event of %s: %+v, %v", id, event, err)
		}
		return created
	}
	holds := func(in *choirtest.Instance) {
		t.Helper()
		if got := in.Must(t, "files", "cat", "workspace/mine", "--computer", id); got != "one" {
			t.Errorf("it holds %q", got)
		}
		if got := in.Must(t, "exec", "--computer", id, "--", "sh", "-c", "test -x workspace/deep/run && readlink workspace/link"); strings.TrimSpace(got) != "mine" {
			t.Errorf("its link leads to %q", got)
		}
	}
	holds(in)
	if created := begins(in, id); created.From != string(source[0].ID) || created.Checkpoint != k.ID || created.Name != "Attempt" {
		t.Errorf("its log begins with %+v", created)
	}
	// The run's document exists here too, with its text; the run does not.
	if got := in.Must(t, "events", "--type", "document.revised", "--computer", id); strings.Count(got, "document.revised") != 1 {
		t.Errorf("its documents: %q", got)
	}
	var none []view.Run
	if in.JSON(t, &none, "runs", "--computer", id); len(none) != 0 || len(runs) != 1 {
		t.Errorf("its runs: %+v, of %d", none, len(runs))
	}
	if got := in.Must(t, "files", "cat", "workspace/mine", "--computer", string(source[0].ID)); got != "two" {
		t.Errorf("the source holds %q", got)
	}
	if res, err := in.Run(t.Context(), "computers", "fork", "None", "--from", string(source[0].ID), "--checkpoint", "0123456789"); err != nil || res.Code == 0 {
		t.Errorf("of a checkpoint that there is not: %v, %+v", err, res)
	}
	forksOddFiles(t, in, source[0].ID, runs[0].Document)
	data := in.Data
	in.Kill()
	half := filepath.Join(data, "computers", ".fork-"+string(contract.NewCID()))
	if err := os.MkdirAll(filepath.Join(half, "workspace"), 0o700); err != nil {
		t.Fatal(err)
	}
	// A fork that has its name and no log yet is complete.
	late := contract.NewCID()
	if err := errors.Join(os.MkdirAll(filepath.Join(data, "computers", string(late), "workspace", "workspace"), 0o700),
		os.WriteFile(filepath.Join(data, "computers", string(late), "workspace", "workspace", "mine"), []byte("late"), 0o644),
		os.WriteFile(filepath.Join(data, "computers", string(late), "forked.json"), []byte(`{"from":"`+string(source[0].ID)+`","checkpoint":"`+k.ID+`","name":"Late"}`), 0o600)); err != nil {
		t.Fatal(err)
	}
	in, err := choirtest.TryStart(t, choirtest.Options{Data: data})
	if err != nil {
		t.Fatal(err)
	}
	var list []view.Computer
	if in.JSON(t, &list, "computers"); len(list) != 5 {
		t.Errorf("listed: %+v", list)
	}
	if got := in.Must(t, "files", "cat", "workspace/mine", "--computer", string(late)); got != "late" {
		t.Errorf("the late one holds %q", got)
	}
	if created := begins(in, string(late)); created.Name != "Late" || created.From != string(source[0].ID) || created.Checkpoint != k.ID {
		t.Errorf("the late one's log begins with %+v", created)
	}
	if _, err := os.Lstat(half); !os.IsNotExist(err) {
		t.Errorf("half a computer is left: %v", err)
	}
	holds(in)
}

// forksOddFiles forks what is difficult to copy: names and bytes that are not text, a large file, a
// repository, a file that was captured before it was ignored, and a document that can't be a file.
func forksOddFiles(t *testing.T, in *choirtest.Instance, source contract.CID, document string) {
	t.Helper()
	tree := func(id contract.CID) string {
		return filepath.Join(in.Data, "computers", string(id), "workspace")
	}
	exec := func(id contract.CID, script string) string {
		t.Helper()
		return in.Must(t, "exec", "--computer", string(id), "--", "sh", "-c", script)
	}
	exec(source, "echo kept > workspace/kept.log")
	in.Must(t, "checkpoint", "--computer", string(source))
	if err := os.Mkdir(filepath.Join(tree(source), "workspace", "odd"), 0o755); err != nil {
		t.Fatal(err)
	}
	oddFiles(t, filepath.Join(tree(source), "workspace", "odd"))
	nestedRepository(t, filepath.Join(tree(source), "workspace", "nested"))
	var of view.Document
	choirtest.Eventually(t, time.Minute, "the document has its file", func() bool {
		in.JSON(t, &of, "documents", "show", document, "--computer", string(source))
		_, err := os.Stat(filepath.Join(tree(source), of.Path))
		return err == nil
	})
	exec(source, `yes 0123456789 | head -c 105000001 > workspace/large; echo '*.log' > workspace/.gitignore; echo not > workspace/ignored.log; printf '\377\376' > `+of.Path)
	// This file is not in a checkpoint yet.
	if res, err := in.RunInput(t.Context(), []byte("late"), "files", "put", "-", "workspace/unkept", "--computer", string(source)); err != nil || res.Code != 0 {
		t.Fatalf("put: %v, %+v", err, res)
	}

	var made view.Computer
	in.JSON(t, &made, "computers", "fork", "Odd", "--from", string(source))
	if made.State != view.StateAwake && made.State != view.StateWorking {
		t.Fatalf("forked: %+v", made)
	}
	same(t, "in a fork", treeOf(t, tree(made.ID)), treeOf(t, tree(source)), func(p string) bool {
		return strings.HasPrefix(p, ".git/") || strings.HasPrefix(p, "choiros/node_modules") || p == "workspace/ignored.log"
	})
	if got, want := repositoryState(t, filepath.Join(tree(made.ID), "workspace", "nested")), repositoryState(t, filepath.Join(tree(source), "workspace", "nested")); got != want {
		t.Errorf("its repository says\n%s\nwant\n%s", got, want)
	}
	if got := git(t, tree(made.ID), "ls-tree", "-r", "--name-only", "HEAD", "workspace/kept.log", "workspace/ignored.log"); got != "workspace/kept.log\n" {
		t.Errorf("its first checkpoint has %q", got)
	}
	// A fork of an old checkpoint has no document that was made later.
	var all []checkpoint
	in.JSON(t, &all, "checkpoints", "--computer", string(source))
	var old view.Computer
	in.JSON(t, &old, "computers", "fork", "Old", "--from", string(source), "--checkpoint", all[len(all)-1].ID)
	if got := in.Must(t, "events", "--type", "document.revised", "--computer", string(old.ID)); got != "" {
		t.Errorf("of an old checkpoint it has the documents %q", got)
	}
	if _, err := os.Lstat(filepath.Join(tree(old.ID), "workspace", "list.txt")); !os.IsNotExist(err) {
		t.Errorf("of an old checkpoint it has a file that was made later: %v", err)
	}
	// What happened before the fork belongs to the source, and the error says so.
	if res, err := in.Run(t.Context(), "undo", "--computer", string(made.ID)); err != nil || res.Code == 0 || !strings.Contains(res.Stderr, "nothing was done yet") {
		t.Errorf("undone behind its beginning: %v, %+v", err, res)
	}
}
