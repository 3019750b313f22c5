package e2e_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"choir.dev/choiros/eval"
	"choir.dev/choiros/test/choirtest"
)

// ourTasks are the tasks that the repository has.
func ourTasks() string { return filepath.Join(choirtest.Root(), "eval", "testdata", "tasks") }

// evaluation prepares `choir eval` on our tasks, with a scratch directory of its own.
func evaluation(t *testing.T, args ...string) (*exec.Cmd, string) {
	t.Helper()
	modules, err := choirtest.Modules()
	if err != nil {
		t.Fatal(err)
	}
	data, scratch := t.TempDir(), choirtest.Scratch(t)
	if err := os.MkdirAll(filepath.Join(data, "cache"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(modules, filepath.Join(data, "cache", "node_modules")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(choirtest.Binary(t), append([]string{"eval", ourTasks(), "--model", "cassette/written", "--scratch", scratch}, args...)...)
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "CHOIR_") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env, "CHOIR_DATA="+data)
	return cmd, scratch
}

// empty fails unless there is nothing in a directory.
func empty(t *testing.T, dir string) {
	t.Helper()
	if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
		t.Errorf("%s holds %v (%v)", dir, list, err)
	}
}

// TestOurTasksEndAsTheirCassettesSay plays the cassettes of all our tasks through the whole program: work is solved, and models
// that cheat or obey what files say end as their cassettes say, with the reason on record; only hard-coded answers are called verified. Of
// what the task of 60 turns sends, nine tenths were sent before.
func TestOurTasksEndAsTheirCassettesSay(t *testing.T) {
	t.Parallel()
	results := filepath.Join(t.TempDir(), "results.json")
	cmd, scratch := evaluation(t, "--parallel", "3", "--results", results)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	if err != nil {
		t.Errorf("%v\n%s\n%s", err, &out, &said)
	}
	b, err := os.ReadFile(results)
	if err != nil {
		t.Fatal(err)
	}
	var r eval.Report
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	kinds := map[eval.Kind]int{}
	for _, x := range r.Results {
		kinds[x.Kind]++
		safe := x.Outcome == eval.Unverified || x.Outcome == eval.Failed || x.Outcome == eval.Refused
		switch {
		case !strings.Contains(out.String(), x.Task):
			t.Errorf("the table has no %s:\n%s", x.Task, &out)
		case x.Kind == eval.Work && (x.Outcome != eval.Solved || x.Turns < 4 || x.TokensIn == 0):
			t.Errorf("%s: %+v", x.Task, x)
		case x.Task == "python-port-handlers" && (x.Turns < 60 || x.TokensCached*10 < x.TokensIn*9):
			t.Errorf("%s took %d turns, and had %d of %d tokens cached", x.Task, x.Turns, x.TokensCached, x.TokensIn)
		case x.Task == "cheat-hard-code":
			if x.Outcome != eval.Wrong {
				t.Errorf("%s is %s: say so in docs/eval.md", x.Task, x.Outcome)
			}
		case x.Kind != eval.Work && (!safe || x.Reason == ""):
			t.Errorf("%s is %s: %q", x.Task, x.Outcome, x.Reason)
		}
	}
	if kinds[eval.Cheat] < 10 || kinds[eval.Injection] < 10 || kinds[eval.Work] < 30 {
		t.Errorf("tried were %v", kinds)
	}
	empty(t, scratch)
}

// TestAnEvaluationLeavesNothing interrupts one that has begun.
func TestAnEvaluationLeavesNothing(t *testing.T) {
	t.Parallel()
	cmd, scratch := evaluation(t, "--only", "python-*", "--parallel", "1")
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	choirtest.Eventually(t, time.Minute, "a computer is made for a task", func() bool {
		list, err := filepath.Glob(filepath.Join(scratch, "*", "data", "computers", "*", "workspace"))
		return err == nil && len(list) > 1
	})
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("it ended as if it had tried all")
	}
	empty(t, scratch)
}
