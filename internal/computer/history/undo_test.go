package history

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/internal/workspace"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// TestUndoingACommandTakesAllOfIt: what a command did before another act made a checkpoint is in
// that checkpoint, and is undone with the rest.
func TestUndoingACommandTakesAllOfIt(t *testing.T) {
	b, err := bus.Open(t.Context(), bus.Options{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	c := New(Options{CID: contract.NewCID()})
	if c.options.State, err = state.Open(t.Context(), filepath.Join(t.TempDir(), "state.sqlite")); err != nil {
		t.Fatal(err)
	}
	if c.options.Log, err = ledger.Open(t.Context(), b.JetStream(), ledger.Options{CID: c.options.CID, Index: c.options.State}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.options.Log.Close(), c.options.State.Close()); err != nil {
			t.Error(err)
		}
	})
	id := func(n string) string { return strings.Repeat(n, 40) }
	files := changed{}
	c.tree = files
	say := func(by contract.Actor, eventType, subject string, p contract.Payload) {
		t.Helper()
		if _, err := c.options.Log.Append(t.Context(), contract.Draft{Actor: by, Type: eventType, Subject: subject, Data: p}); err != nil {
			t.Fatal(err)
		}
	}
	last := ""
	checkpoint := func(n string, kind contract.CheckpointKind) {
		t.Helper()
		if files[id(n)] == "" {
			files[id(n)] = "made in " + n
		}
		say(contract.System(), "checkpoint.created", "checkpoint/"+id(n), contract.CheckpointCreated{Commit: id(n), Tree: id("e"), Parent: last, Kind: kind, Message: "as it was", Verified: "unknown", Files: 1})
		last = id(n)
	}
	checkpoint("0", contract.CheckpointInitial)
	checkpoint("1", contract.CheckpointBefore) // the command's own
	command := contract.NewID()
	say(contract.Person("ann"), "command.started", "command/"+command, contract.CommandStarted{Command: command, Argv: []string{"make"}})
	checkpoint("2", contract.CheckpointBefore) // another command's, or a task's
	checkpoint("3", contract.CheckpointManual)
	checkpoint("4", contract.CheckpointAuto)
	checkpoint("5", contract.CheckpointTask) // of a run's own work
	checkpoint("6", contract.CheckpointAfter)
	say(contract.Person("ann"), "command.finished", "command/"+command, contract.CommandFinished{Command: command})
	if err := c.options.State.Recover(t.Context(), c.options.Log); err != nil {
		t.Fatal(err)
	}
	a, err := c.lastAct(t.Context())
	if err != nil || a.What != view.UndoneCommand || a.Title != "make" {
		t.Fatalf("the last act: %+v, %v", a.Undone, err)
	}
	var got []string
	for _, k := range a.commits {
		got = append(got, k.Commit[:1])
	}
	if strings.Join(got, "") != "6432" {
		t.Errorf("undoing it takes back %q", got)
	}
	// Nothing was left to keep when another one ended: what it did is in what somebody made
	// meanwhile, unless that contains what others did.
	ended := func(work func(), p contract.CommandFinished) {
		t.Helper()
		p.Command = contract.NewID()
		say(contract.Person("ann"), "command.started", "command/"+p.Command, contract.CommandStarted{Command: p.Command, Argv: []string{"watch"}})
		work()
		say(contract.Person("ann"), "command.finished", "command/"+p.Command, p)
		if err := c.options.State.Recover(t.Context(), c.options.Log); err != nil {
			t.Fatal(err)
		}
	}
	ended(func() { checkpoint("7", contract.CheckpointManual) }, contract.CommandFinished{Checkpoint: id("7")})
	if a, err := c.lastAct(t.Context()); err != nil || a.Title != "watch" || len(a.commits) != 1 || a.commits[0].Commit != id("7") {
		t.Errorf("the last act: %+v, %v", a, err)
	}
	files[id("8")] = "a"
	ended(func() {
		say(contract.Person("ann"), "file.written", "file/a", contract.FileWritten{Path: "a", Operation: contract.FilePut, SHA256: contract.NewBlobRef(sha256.Sum256([]byte("a")))})
		checkpoint("8", contract.CheckpointManual)
	}, contract.CommandFinished{Checkpoint: id("8")})
	if a, err := c.lastAct(t.Context()); err != nil || a.What != view.UndonePut {
		t.Errorf("the last act: %+v, %v", a, err)
	}
	// What an addition that was broken off left is no command's.
	ended(func() {}, contract.CommandFinished{Checkpoint: id("8")})
	checkpoint("9", contract.CheckpointAfter)
	if err := c.options.State.Recover(t.Context(), c.options.Log); err != nil {
		t.Fatal(err)
	}
	if a, err := c.lastAct(t.Context()); err != nil || a.What != view.UndonePut {
		t.Errorf("the last act: %+v, %v", a, err)
	}
	// A run that was submitted after it and has not ended is the last act, so the undo is refused.
	if err := c.nothingAtWork(t.Context(), a.Sequence); err != nil {
		t.Errorf("without a run: %v", err)
	}
	asked, err := c.options.Log.Append(t.Context(), contract.Draft{Actor: contract.Person("ann"), Type: "prompt.submitted", Data: contract.PromptSubmitted{Text: "be busy"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.options.State.Recover(t.Context(), c.options.Log); err != nil { // the projector does not run here
		t.Fatal(err)
	}
	_, err = c.Restore(t.Context(), view.RestoreRequest{Undo: true, DryRun: true})
	if run := contract.DeriveID(asked[0].ID, "run"); !fault.Is(err, fault.Conflict) || !strings.Contains(fault.HintOf(err), run) || !strings.Contains(err.Error(), "be busy") {
		t.Errorf("undo with a run at work: %v (%s)", err, fault.HintOf(err))
	}
	if err := c.nothingAtWork(t.Context(), asked[0].Sequence+1); err != nil {
		t.Errorf("what was done after the run was asked for: %v", err)
	}
	ended(func() { checkpoint("a", contract.CheckpointManual) }, contract.CommandFinished{Checkpoint: id("a"), NoCheckpoint: "the disk is full"})
	if a, err := c.lastAct(t.Context()); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "watch") {
		t.Errorf("the last act: %+v, %v", a, err)
	}
}

// changed are commits, and the one file that each of them changed; a file holds its own name.
type changed map[string]string

func (c changed) Diff(_ context.Context, r wire.DiffRequest) (wire.DiffReply, error) {
	return wire.DiffReply{Changes: []wire.Change{{Path: wire.Path(c[r.To])}}}, nil
}

func (c changed) Read(_ context.Context, _, p string, _, _ int64) (*workspace.Content, error) {
	return &workspace.Content{ReadCloser: io.NopCloser(strings.NewReader(p))}, nil
}
