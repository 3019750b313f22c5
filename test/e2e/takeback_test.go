package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
	"choir.dev/choiros/test/modelserver"
)

// TestWhatCantBeTakenBackCanBeGoneBackFrom: a disk loses what a task showed live, so that this
// can't be reverted. The run says so and what to do, other runs go on meanwhile, and after its user
// has cancelled it a restore works.
func TestWhatCantBeTakenBackCanBeGoneBackFrom(t *testing.T) {
	t.Parallel()
	const shown = "choiros/src/ruin.ts"
	script := modelserver.Script{Turns: join(
		turnsOf("director", "break it", delegate(object{"kind": "agent", "goal": "break it", "tools": []any{"bash"}, "verify": object{"profile": "smoke"}}),
			again(report("done", "It is done."))),
		turnsOf("associate", "break it", bash("echo 'export const n: number = \"none\"' > "+shown), again(finish("ok", "done"))),
		turnsOf("director", "the other", delegate(object{"kind": "agent", "goal": "the other", "tools": []any{"bash"}, "verify": object{"profile": "none"}}),
			again(report("done", "It is done."))),
		turnsOf("associate", "the other", bash("echo other > workspace/other.txt"), again(finish("ok", "done"))),
	)}
	in, _ := startModel(t, modelserver.Anthropic, script)
	run := submit(t, in, "break it")
	live := filepath.Join(workspaceDir(t, in), ".git", "refs", "choir", "live")
	var ref string
	choirtest.Eventually(t, 60*time.Second, "the edit is shown", func() bool {
		list, err := os.ReadDir(live)
		if err != nil || len(list) != 1 || len(eventsOf(t, in, "publish.finished")) == 0 {
			return false
		}
		ref = filepath.Join(live, list[0].Name())
		return true
	})
	if err := os.WriteFile(ref, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var r view.Run
	choirtest.Eventually(t, 90*time.Second, "the user is told", func() bool {
		r = runOf(t, in, run)
		return r.Status == contract.RunWaiting
	})
	for _, want := range []string{"What “break it” showed live can't be taken back", "restore the checkpoint “Before: break it” in Time Travel", "Cancel the run"} {
		if !strings.Contains(r.Reason, want) {
			t.Errorf("the user is not told %q: %s", want, r.Reason)
		}
	}
	if o := ended(t, in, submit(t, in, "the other")); o.Status != contract.RunDone {
		t.Errorf("another run meanwhile: %s %s", o.Status, o.Summary)
	}
	in.Must(t, "run", "cancel", run)
	r = ended(t, in, run)
	if !strings.Contains(r.Summary, "could not be taken back") || r.Verified == contract.VerificationPass {
		t.Errorf("the report says %s %s: %s", r.Status, r.Verified, r.Summary)
	}
	file := filepath.Join(workspaceDir(t, in), filepath.FromSlash(shown))
	if _, err := os.Stat(file); err != nil {
		t.Fatalf("what is left is not there: %v", err)
	}
	before := ""
	for _, e := range eventsOf(t, in, "checkpoint.created") {
		if k := data[contract.CheckpointCreated](t, e); k.Kind == contract.CheckpointBefore && strings.Contains(k.Message, "break it") {
			before = k.Commit
		}
	}
	for _, e := range eventsOf(t, in, "task.started") { // an unchanged tree has its checkpoint already
		if p := data[contract.TaskStarted](t, e); before == "" {
			before = p.Base
		}
	}
	in.Must(t, "restore", before)
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("after going back %s is there: %v", shown, err)
	}
	usable(t, in)
}
