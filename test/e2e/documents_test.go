package e2e_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// TestARunsDocumentIsAFile shows that a run's document is also a file that says what happened. An
// edit of the file is a revision by the user, and so is a restore of the file; a restore of
// everything leaves it alone.
func TestARunsDocumentIsAFile(t *testing.T) {
	t.Parallel()
	in := choirtest.Start(t, choirtest.Options{})
	var before []checkpoint
	in.JSON(t, &before, "checkpoints")
	p := prompt(t, in, "run `ls choiros`")
	if p.Document == "" {
		t.Fatalf("the run has no document: %+v", p)
	}
	c, err := client.Discover(func(string) string { return "" }, in.Data, "")
	if err != nil {
		t.Fatal(err)
	}
	document := func() (revision int, author, path, body string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		d, err := c.Document(ctx, p.Document, 0)
		if err != nil {
			t.Fatal(err)
		}
		return d.Revision, d.Author, d.Path, d.Body
	}
	was, author, path, body := document()
	if author != "director" || !strings.HasPrefix(path, "artifacts/runs/") {
		t.Errorf("revision %d by %s, mirrored to %s", was, author, path)
	}
	got := in.Must(t, "files", "cat", path)
	if got != body {
		t.Errorf("the file is not the document:\n%s\n---\n%s", got, body)
	}
	for _, want := range []string{"## Objective", "## Plan", "- [x] ", "## Evidence", "exit 0", "## Result", "**done**", "## Cost"} {
		if !strings.Contains(got, want) {
			t.Errorf("the document lacks %q:\n%s", want, got)
		}
	}
	var after []checkpoint
	in.JSON(t, &after, "checkpoints")
	t.Logf("checkpoints: %d before, %d after", len(before), len(after))
	var made struct {
		ID string `json:"id"`
	}
	in.JSON(t, &made, "checkpoint", "-m", "with the document")

	edited := strings.Replace(got, "## Notes\n", "## Notes\n\nMine, written by hand.\n", 1)
	put(t, in, path, edited)
	now, author, _, body := document()
	if now != was+1 || body != edited || author == "director" {
		t.Errorf("the edit is revision %d by %s, after %d:\n%s", now, author, was, body)
	}

	var back restored
	in.JSON(t, &back, "restore", made.ID)
	if n, _, _, body := document(); n != now || body != edited || in.Must(t, "files", "cat", path) != edited {
		t.Errorf("going back with everything made revision %d, after %d:\n%s", n, now, body)
	}
	in.JSON(t, &back, "restore", made.ID, "--path", path)
	again, author, _, body := document()
	if again != now+1 || body != got || author == "director" {
		t.Errorf("the restore is revision %d by %s, after %d:\n%s", again, author, now, body)
	}
	if file := in.Must(t, "files", "cat", path); file != got {
		t.Errorf("the restored file holds\n%s", file)
	}
	in.JSON(t, &back, "undo")
	if n, _, _, body := document(); n != again+1 || body != edited {
		t.Errorf("the undo is revision %d, after %d:\n%s", n, again, body)
	}

	// A mirrored text does not become an edit by time passing or by a restart. A change in a
	// terminal is an edit.
	in.Stop(t)
	in = choirtest.Start(t, choirtest.Options{Data: in.Data})
	if c, err = client.Discover(func(string) string { return "" }, in.Data, ""); err != nil {
		t.Fatal(err)
	}
	in.Must(t, "exec", "--", "sh", "-c", "echo from a terminal >> "+path)
	if n, author, _, body := document(); n != again+2 || body != edited+"from a terminal\n" || author == "director" {
		t.Errorf("after a restart and an edit in a terminal: revision %d by %s, want %d:\n%s", n, author, again+2, body)
	}
	revised := 0
	for _, e := range eventsOf(t, in, "document.revised") {
		d := data[contract.DocumentRevised](t, e)
		if _, role, err := contract.ParseSource(e.Source); err != nil || (d.Revision > was) != (role == contract.KindPerson) {
			t.Errorf("revision %d is by %s", d.Revision, e.Source)
		}
		revised++
	}
	if revised != again+2 {
		t.Errorf("%d revisions; want %d", revised, again+2)
	}
}

// TestARunsDocumentMakesNoCheckpoint shows that a run's document makes no checkpoint, and is in the
// next one. A restore of the run's own checkpoint, or of one before it, leaves its file alone. A
// restore that names the file removes the file but not the document, and undo brings it back
// without a revision.
func TestARunsDocumentMakesNoCheckpoint(t *testing.T) {
	t.Parallel()
	in := choirtest.Start(t, choirtest.Options{})
	var before, after, next []checkpoint
	in.JSON(t, &before, "checkpoints")
	p := prompt(t, in, `write "buy milk" to workspace/list.txt`)
	if p.Status != "done" {
		t.Fatalf("%+v", p)
	}
	in.JSON(t, &after, "checkpoints")
	if len(after) != len(before)+1 || after[0].Kind != "task" {
		t.Errorf("a run with one task made the checkpoints %+v", after[:len(after)-len(before)])
	}
	c, err := client.Discover(func(string) string { return "" }, in.Data, "")
	if err != nil {
		t.Fatal(err)
	}
	document := func() view.Document {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		d, err := c.Document(ctx, p.Document, 0)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	was := document()
	for _, want := range []string{"`workspace/list.txt` (added, +1 −0)", "Verification (smoke): **unknown**, no check was found", "Checkpoint `" + p.Checkpoint[:12] + "`"} {
		if !strings.Contains(was.Body, want) {
			t.Errorf("the document lacks %q:\n%s", want, was.Body)
		}
	}
	// It becomes a file by itself, and makes no checkpoint.
	file := filepath.Join(workspaceDir(t, in), filepath.FromSlash(was.Path))
	choirtest.Eventually(t, 20*time.Second, "the document is mirrored", func() bool {
		b, err := os.ReadFile(file)
		return err == nil && string(b) == was.Body
	})
	in.JSON(t, &next, "checkpoints")
	if len(next) != len(after) {
		t.Errorf("mirroring made a checkpoint: %+v", next[0])
	}

	var back restored
	for _, to := range []string{p.Checkpoint, before[0].ID} {
		if plan := in.Must(t, "restore", to, "--dry-run"); strings.Contains(plan, was.Path) {
			t.Errorf("going back to %s would take the document:\n%s", to, plan)
		}
		in.JSON(t, &back, "restore", to)
		if got := in.Must(t, "files", "cat", was.Path); got != was.Body {
			t.Errorf("after going back the document's file holds\n%s", got)
		}
	}
	in.JSON(t, &back, "restore", before[0].ID, "--path", was.Path)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if r, err := in.Run(ctx, "files", "cat", was.Path); err != nil || r.Code == 0 {
		t.Errorf("before the run its document was a file: %v %+v", err, r)
	}
	in.JSON(t, &back, "undo")
	if got := in.Must(t, "files", "cat", was.Path); got != was.Body {
		t.Errorf("undo brought back\n%s", got)
	}
	if now := document(); now.Revision != was.Revision {
		t.Errorf("going back and forth made revision %d of %d by %s", now.Revision, was.Revision, now.Author)
	}

	// If a task publishes a change of the file, that is a revision by the task's Associate.
	if p := prompt(t, in, `write "rewritten" to `+was.Path); p.Status != "done" {
		t.Fatalf("%+v", p)
	}
	if now := document(); now.Revision != was.Revision+1 || now.Author != "associate" || strings.TrimSpace(now.Body) != "rewritten" {
		t.Errorf("revision %d by %s:\n%s", now.Revision, now.Author, now.Body)
	}
}
