package e2e_test

import (
	"path/filepath"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
	"choir.dev/choiros/test/modelserver"
)

// TestWorkIsLookedAtFirst shows through the binary that nothing of a run is live before its user has looked at it;
// that comments on a line go back to the loop that made it; that the wait outlives choir; that of what is made then
// one hunk is taken and another file is not; and that what was decided is told everywhere. What is discarded ends
// the run.
func TestWorkIsLookedAtFirst(t *testing.T) {
	t.Parallel()
	edit := func(old, now string) modelserver.Turn {
		return modelserver.Turn{Calls: call("edit", object{"path": "workspace/sum/sum.js", "old": old, "new": now})}
	}
	again := edit("a + b", "b + a")
	again.Match = "the user has looked at your work"
	s := modelserver.New(modelserver.Script{Turns: join(
		turnsOf("associate", "make the sum right", edit("a - b", "a + b"), modelserver.Turn{Calls: call("write", object{"path": "workspace/sum/NOTE.md", "content": "note\n"})}, finish("ok", "add adds now"), again, finish("ok", "turned around")),
		turnsOf("associate", "make it otherwise", edit("b + a", "a+b"), finish("ok", "closer")),
	)}).Start()
	t.Cleanup(s.Close)
	opts := choirtest.Options{Data: filepath.Join(t.TempDir(), "data"), Env: append(modelEnv(s, modelserver.Anthropic, newKey()), "CHOIR_LOOPS_DIRECT_WORDS=30")}
	in := choirtest.Start(t, opts)
	in.Must(t, "add", makeFixture(t))
	waits := func(args ...string) (string, view.Review) {
		t.Helper()
		r, err := in.Run(t.Context(), args...)
		if err != nil || !strings.Contains(r.Stderr, "wait until you have looked at them: choir review") {
			t.Fatalf("choir %v: %+v, %v\n%s", args, r, err, in.Logs())
		}
		var open []view.Review
		in.JSON(t, &open, "reviews")
		if len(open) != 1 {
			t.Fatalf("%d reviews wait", len(open))
		}
		var shown view.Review
		in.JSON(t, &shown, "review", open[0].Run)
		return open[0].Run, shown
	}
	live := func() string { return in.Must(t, "files", "cat", "workspace/sum/sum.js") }

	run, shown := waits("prompt", "--review", "--wait", "make the sum right")
	if len(shown.Files) != 2 || shown.Files[0].Path != "workspace/sum/NOTE.md" || len(shown.Files[1].Hunks) != 1 || shown.Verification.Status != contract.VerificationPass || !strings.Contains(live(), "a - b") {
		t.Fatalf("%+v\nlive %q", shown, live())
	}
	if got := in.Must(t, "review", run); !strings.Contains(got, "hunk "+shown.Files[1].Hunks[0].ID) || !strings.Contains(got, "+") {
		t.Errorf("choir review says\n%s", got)
	}
	line := 0
	for i, l := range strings.Split(live(), "\n") {
		if strings.Contains(l, "a - b") {
			line = i + 1
		}
	}
	for at, want := range map[string]string{"nosuch.txt:99": "which the work does not change", "workspace/sum/sum.js:999": "a comment is about line 999"} {
		if r, err := in.Run(t.Context(), "review", run, "--revise", "--comment", at+"=say it"); err != nil || r.Code == 0 || !strings.Contains(r.Stderr, want) {
			t.Errorf("a comment on %s: %+v, %v", at, r, err)
		}
	}
	in.Must(t, "review", run, "--revise", "--comment", "workspace/sum/sum.js:"+string(rune('0'+line))+"=b first")
	in.Stop(t)
	in = choirtest.Start(t, opts)
	if _, shown = waits("wait", run); shown.Review != 2 || !strings.Contains(shown.Files[1].Hunks[0].Text, "+") || !strings.Contains(shown.Files[1].Hunks[0].Text, "b + a") || !strings.Contains(live(), "a - b") {
		t.Fatalf("%+v\nlive %q", shown, live())
	}
	in.Must(t, "review", run, "--hunk", shown.Files[1].Hunks[0].ID)
	var p prompted
	in.JSON(t, &p, "wait", run)
	if p.Status != "done" || p.Verified != "pass" || !strings.Contains(live(), "b + a") || strings.Contains(in.Must(t, "files", "ls", "workspace/sum"), "NOTE.md") {
		t.Fatalf("%+v\nlive %q", p, live())
	}
	res := runOf(t, in, run).Tasks[0].Result
	if res.Reviewed == nil || len(res.Reviewed.Only) != 1 || res.Kept == nil || res.Kept.Paths != 2 {
		t.Errorf("%+v, kept %+v", res.Reviewed, res.Kept)
	}
	for what, got := range map[string]string{"its document": in.Must(t, "documents", "show", p.Document), "choir reviews": in.Must(t, "reviews", "--all"), "choir runs": in.Must(t, "runs", run)} {
		if !strings.Contains(got, "by person:") && !strings.Contains(got, "(person:") {
			t.Errorf("%s says\n%s", what, got)
		}
	}

	run, _ = waits("prompt", "--review", "--wait", "make it otherwise")
	in.Must(t, "review", run, "--discard", "--comment", "=leave it")
	if r, err := in.Run(t.Context(), "wait", run); err != nil || r.Code != 1 || !strings.Contains(r.Stdout, "wants none of it") || !strings.Contains(live(), "b + a") {
		t.Errorf("discarded: %+v, %v", r, err)
	}
	usable(t, in)
}
