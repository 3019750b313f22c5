package computer

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer/runspace"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/internal/workspace"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// shellDesk is a desk whose workspace holds a shell, with tasks that edit it.
type shellDesk struct {
	*desk
	runs *runspace.Workspace
}

const shellFile = "choiros/src/shell.ts"

func openShell(t *testing.T) *shellDesk {
	t.Helper()
	d := &shellDesk{desk: open(t)}
	d.runs = d.runWorkspace()
	return d
}

func (d *shellDesk) fatal(err error) {
	if err != nil {
		d.t.Helper()
		d.t.Fatal(err)
	}
}

func (d *shellDesk) write(dir, text string) {
	d.t.Helper()
	name := filepath.Join(dir, shellFile)
	d.fatal(errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)))
}

func (d *shellDesk) putFile(name, text string) {
	d.t.Helper()
	at := filepath.Join(d.dir, "workspace", name)
	d.fatal(errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o644)))
}

func (d *shellDesk) byUser(text string) {
	d.t.Helper()
	d.write(filepath.Join(d.dir, "workspace"), text)
}

func (d *shellDesk) source() string {
	d.t.Helper()
	b, err := os.ReadFile(filepath.Join(d.dir, "workspace", shellFile))
	d.fatal(err)
	return string(b)
}

func (d *shellDesk) checkpoint(kind contract.CheckpointKind) string {
	d.t.Helper()
	k, err := d.workspace.Checkpoint(d.t.Context(), workspace.CheckpointRequest{Kind: kind, Message: string(kind)})
	d.fatal(err)
	return k.Commit
}

func (d *shellDesk) begin() *runspace.Overlay {
	d.t.Helper()
	ref := ports.TaskRef{Run: contract.NewID(), Task: contract.NewID(), Attempt: 1}
	o, err := d.runs.Begin(d.t.Context(), ref, ports.Start{})
	d.fatal(err)
	return o.(*runspace.Overlay)
}

// edit makes a tool call of a task that edits the shell.
func (d *shellDesk) edit(o *runspace.Overlay, text string) (published int) {
	d.t.Helper()
	d.write(d.volumes.at(d.t, o.Upper), text)
	n, err := d.runs.PublishLive(d.t.Context(), o)
	d.fatal(err)
	return n
}

// verified publishes a task's work as verified.
func (d *shellDesk) verified(o *runspace.Overlay) string {
	d.t.Helper()
	m, err := d.runs.Merge(d.t.Context(), o, ports.Took{})
	d.fatal(err)
	p, err := d.runs.Publish(d.t.Context(), o, m, contract.VerificationPass, false)
	d.fatal(err)
	d.fatal(d.runs.Drop(d.t.Context(), o))
	return p.Checkpoint
}

func (d *shellDesk) beat(broken bool) {
	d.t.Helper()
	d.fatal(d.Heartbeat(d.t.Context(), view.Heartbeat{Mode: view.ModeLive, Broken: broken, Reason: "error", Detail: "boom\nat x"}))
}

func (d *shellDesk) wantStatus(broken bool, run, good string) {
	d.t.Helper()
	d.fatal(d.state.CaughtUp(d.t.Context(), d.log))
	s, err := d.Computer.shell.Status(d.t.Context())
	d.fatal(err)
	if s.Broken != broken || s.Run != run || s.LastGood != good {
		d.t.Errorf("the desktop is broken: %v, by run %q, good at %q; want %v, %q, %q", s.Broken, s.Run, s.LastGood, broken, run, good)
	}
}

func (d *shellDesk) back(r view.RestoreRequest) {
	d.t.Helper()
	if !r.Undo {
		r.Paths = []string{"choiros", "artifacts/system/theme.json"}
	}
	_, err := d.Restore(d.t.Context(), r)
	d.fatal(err)
}

func TestWhatBrokeIsNotGoodVerifiedOrNot(t *testing.T) {
	d := openShell(t)
	d.byUser("one\n")
	first := d.checkpoint(contract.CheckpointInitial)
	d.wantStatus(false, "", first)

	o := d.begin()
	d.edit(o, "two\n")
	fine := d.verified(o)
	d.beat(false)
	d.wantStatus(false, "", fine)

	o = d.begin()
	d.edit(o, "broken\n")
	broken := d.verified(o)
	d.wantStatus(false, "", broken)
	d.beat(true)
	d.wantStatus(true, o.Ref.Run, fine)
	d.back(view.RestoreRequest{To: fine})
	if d.source() != "two\n" {
		t.Fatalf("the shell is %q", d.source())
	}
	// Until a page has painted, the desktop counts as broken, and nobody is blamed.
	d.wantStatus(true, "", fine)
	d.beat(false)
	d.wantStatus(false, "", fine)
	// The undo is the user's own, and the state before it is good.
	d.back(view.RestoreRequest{Undo: true})
	d.wantStatus(false, "", broken)
	d.beat(true)
	d.wantStatus(true, "", fine)
}

func TestAnEditByHandIsNobodysButTheUsers(t *testing.T) {
	d := openShell(t)
	d.byUser("one\n")
	first := d.checkpoint(contract.CheckpointInitial)
	d.byUser("broken\n")
	d.beat(true)
	d.wantStatus(true, "", first)
	d.beat(false)

	o := d.begin()
	d.edit(o, "two\n")
	fine := d.verified(o)
	d.byUser("two\nand broken by hand\n")
	d.beat(true)
	d.wantStatus(true, "", fine)
	// The page reported it once, so nothing is examined or reported again.
	last := d.log.Last()
	d.beat(true)
	if d.log.Last() != last {
		t.Error("the same breakage is told twice")
	}
}

func TestATaskWhoseEditWasTakenBackPublishesNoMoreLive(t *testing.T) {
	d := openShell(t)
	d.byUser("one\n")
	first := d.checkpoint(contract.CheckpointInitial)
	o, other := d.begin(), d.begin()
	if n := d.edit(o, "broken\n"); n != 1 || d.source() != "broken\n" {
		t.Fatalf("%d paths were published, the shell is %q", n, d.source())
	}
	d.beat(true)
	d.wantStatus(true, o.Ref.Run, first)

	// Its verification gets the browser's report without opening a box.
	m, err := d.runs.Merge(t.Context(), o, ports.Took{})
	d.fatal(err)
	cmd, err := d.Computer.shell.Render(t.Context(), o, m.Commit)
	if err != nil || cmd.ExitCode != 1 || cmd.Stderr == "" {
		t.Errorf("rendering what broke: %+v %v", cmd, err)
	}

	d.back(view.RestoreRequest{To: first})
	d.fatal(os.WriteFile(filepath.Join(d.volumes.at(d.t, o.Upper), "choiros/src/more.ts"), []byte("more\n"), 0o644))
	if n := d.edit(o, "broken still\n"); n != 0 || d.source() != "one\n" {
		t.Errorf("%d paths were published again, the shell is %q", n, d.source())
	}
	if n := d.edit(other, "another's\n"); n != 1 || d.source() != "another's\n" {
		t.Errorf("another task's edit: %d paths, the shell is %q", n, d.source())
	}
}

// shows makes a live page report that it is well, as often as it takes to be believed.
func (d *shellDesk) shows(page string) {
	d.t.Helper()
	for range 2 {
		d.fatal(d.Heartbeat(d.t.Context(), view.Heartbeat{Page: page, Mode: view.ModeLive}))
	}
}

func (d *shellDesk) wantAuto(want bool) {
	d.t.Helper()
	s, err := d.Computer.shell.Status(d.t.Context())
	d.fatal(err)
	if s.Auto != want {
		d.t.Errorf("it goes back by itself: %v, want %v", s.Auto, want)
	}
}

// unasked is a rewind by the console; it reports whether it was done.
func (d *shellDesk) unasked(to string) bool {
	d.t.Helper()
	_, err := d.Restore(d.t.Context(), view.RestoreRequest{To: to, Paths: []string{"choiros", "artifacts/system/theme.json"}, Unasked: true})
	if err != nil && !fault.Is(err, fault.Conflict) {
		d.t.Fatal(err)
	}
	return err == nil
}

// TestAttack47_VerifiedWorkDoesNotGoBackByItself shows that work that a check has passed is not
// taken back because of one person's browser.
func TestAttack47_VerifiedWorkDoesNotGoBackByItself(t *testing.T) {
	d := openShell(t)
	d.byUser("one\n")
	first := d.checkpoint(contract.CheckpointInitial)
	o := d.begin()
	d.edit(o, "broken\n")
	d.beat(true)
	d.wantStatus(true, o.Ref.Run, first)
	d.wantAuto(true)
	d.beat(false)
	d.verified(o)
	d.beat(true)
	d.wantStatus(true, o.Ref.Run, first)
	d.wantAuto(false)
	if d.unasked(first) || d.source() != "broken\n" {
		t.Errorf("verified work went back unasked: %q", d.source())
	}
}

// TestAttack47_UsersEditsAreNeverTakenBack shows that without a person's request only the edits of
// the one task go back, and that a state that people edited counts as good once a page showed it
// healthy.
func TestAttack47_UsersEditsAreNeverTakenBack(t *testing.T) {
	d := openShell(t)
	d.byUser("one\n")
	first := d.checkpoint(contract.CheckpointInitial)
	d.byUser("one, by hand\n")
	o := d.begin()
	d.edit(o, "broken\n")
	d.beat(true)
	d.wantStatus(true, o.Ref.Run, first)
	d.wantAuto(false)
	if d.unasked(first) || d.source() != "broken\n" {
		t.Errorf("a user's edit went back unasked: %q", d.source())
	}
	d.back(view.RestoreRequest{To: first})
	d.beat(false)

	// Once a page showed it working, it is a state to go back to.
	d.byUser("two, by hand\n")
	d.shows("a page")
	o = d.begin()
	d.edit(o, "broken again\n")
	d.beat(true)
	d.wantAuto(true)
	s, err := d.Computer.shell.Status(t.Context())
	d.fatal(err)
	// An edit before the time is up counts.
	d.byUser("broken again, being mended\n")
	if d.unasked(s.LastGood) || d.source() != "broken again, being mended\n" {
		t.Errorf("an edit made meanwhile went back unasked: %q", d.source())
	}
	d.byUser("broken again\n")
	if !d.unasked(s.LastGood) || d.source() != "two, by hand\n" {
		t.Errorf("the shell is %q", d.source())
	}
}

// TestAStalePageIsNoProof shows that a page that could not load newer source says nothing about
// that source.
func TestAStalePageIsNoProof(t *testing.T) {
	d := openShell(t)
	d.byUser("one\n")
	first := d.checkpoint(contract.CheckpointInitial)
	d.byUser("does not parse\n")
	d.beat(true)
	for range 3 {
		d.fatal(d.Heartbeat(t.Context(), view.Heartbeat{Page: "old", Mode: view.ModeLive, Stale: true}))
	}
	d.wantStatus(true, "", first)
}

// TestATaskThatFailedKeepsItsTree shows that a tree that is to be kept for inspection has a ref
// after its overlay is gone, and that another tree has none.
func TestATaskThatFailedKeepsItsTree(t *testing.T) {
	d := openShell(t)
	for _, keep := range []bool{true, false} {
		o := d.begin()
		d.write(d.volumes.at(t, o.Upper), "what the task wrote")
		if _, err := d.runs.Merge(t.Context(), o, ports.Took{}); err != nil {
			t.Fatal(err)
		}
		if keep {
			kept, err := d.runs.Keep(t.Context(), o)
			d.fatal(err)
			if kept == nil || kept.Base != o.Base() || kept.Paths != 1 {
				t.Errorf("kept: %+v", kept)
			}
		}
		d.fatal(d.runs.Drop(t.Context(), o))
		cmd := exec.CommandContext(t.Context(), "git", "-c", "safe.directory=*", "grep", "-q", "what the task wrote", "refs/choir/task/"+o.ID+"-kept")
		cmd.Dir = filepath.Join(d.dir, "workspace")
		if err := cmd.Run(); (err == nil) != keep {
			t.Errorf("to be kept: %t; looked for: %v", keep, err)
		}
	}
}

// TestOnlyARecordedTreeIsABase shows that a task may start from a checkpoint and from a kept tree that a result
// names, and from nothing else that git could find: neither from a tree that no result names, nor from one
// that was let go.
func TestOnlyARecordedTreeIsABase(t *testing.T) {
	d := openShell(t)
	prompt := contract.NewID()
	run, ctx := contract.DeriveID(prompt, "run"), t.Context()
	task := contract.DirectorTask{ID: contract.DeriveID(run, "task:0"), Run: run, Kind: contract.KindExec, Goal: "work", Steps: []contract.Step{{Run: &contract.RunStep{Argv: []string{"true"}}}}}.WithDefaults()
	begun, err := d.runs.Begin(ctx, ports.TaskRef{Run: run, Task: task.ID, Attempt: 1}, ports.Start{})
	d.fatal(err)
	o := begun.(*runspace.Overlay)
	d.write(d.volumes.at(t, o.Upper), "what the task wrote")
	kept, err := d.runs.Keep(ctx, o)
	d.fatal(err)
	merged, err := d.runs.Merge(ctx, o, ports.Took{})
	d.fatal(err)
	refused := func(what, commit string) {
		t.Helper()
		if got, err := d.runs.Start(ctx, commit); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s is taken as a base: %+v, %v", what, got, err)
		}
	}
	refused("a tree that no result names", kept.Commit)
	refused("a task's own tree", merged.Work)
	refused("a merge", merged.Commit)
	refused("a part of a checkpoint's name", o.Base()[:12])
	if got, err := d.runs.Start(ctx, o.Base()); err != nil || got != (ports.Start{Base: o.Base()}) {
		t.Errorf("a checkpoint: %+v, %v", got, err)
	}
	result := contract.AssociateResult{Version: contract.Version, Task: task.ID, Attempt: 1, Status: contract.ResultFailed, Summary: "no", Base: o.Base(), Kept: kept,
		Verification: contract.Verification{Profile: contract.VerifySmoke, Status: contract.VerificationUnknown}}
	_, err = d.log.Append(ctx,
		contract.Draft{ID: prompt, Actor: contract.Person("u"), Type: "prompt.submitted", Subject: run, Run: run, Data: &contract.PromptSubmitted{Text: "work"}},
		contract.Draft{Actor: contract.DirectorOf(run), Type: "task.requested", Subject: task.ID, Run: run, Task: task.ID, Data: &contract.TaskRequested{Task: task}},
		contract.Draft{Actor: contract.System(), Type: "task.finished", Subject: task.ID, Run: run, Task: task.ID, Data: &contract.TaskFinished{Result: result}})
	d.fatal(err)
	if got, err := d.runs.Start(ctx, kept.Commit); err != nil || got != (ports.Start{Base: o.Base(), Kept: kept.Commit}) {
		t.Errorf("a kept tree: %+v, %v", got, err)
	}
	d.fatal(d.workspace.Drop(ctx, workspace.Overlay{ID: o.ID + wire.KeptSuffix})) // as the host does when there are too many
	refused("a kept tree that was let go", kept.Commit)
}
