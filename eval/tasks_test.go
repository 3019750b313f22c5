package eval_test

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/eval"
	"choir.dev/choiros/eval/cassette"
	"choir.dev/choiros/test/choirtest"
)

const tasks = "testdata/tasks"

// TestEachTaskCanBeSolved runs the hidden check of each task on its repository, where it fails, and
// on its known solution, where it passes; no model is asked. What a task may not submit is left out
// of the solution too.
func TestEachTaskCanBeSolved(t *testing.T) {
	t.Parallel()
	all, err := eval.Load(tasks)
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range all {
		t.Run(task.Name, func(t *testing.T) {
			t.Parallel()
			repository, err := task.Repository()
			if err != nil {
				t.Fatal(err)
			}
			tree := func(folder string) eval.Tree {
				got, err := eval.ReadTree(filepath.Join(task.Dir, folder))
				if err != nil || len(got) == 0 {
					t.Fatalf("%s: %d files, %v", folder, len(got), err)
				}
				return got
			}
			hidden, solution := tree("check"), tree("solution")
			for name := range hidden {
				if _, shown := repository[name]; shown {
					t.Errorf("the agent sees %s", name)
				}
			}
			if code, said := check(t, task, task.Check.Judged(repository, repository, hidden)); task.Check.Passed(code, said) {
				t.Errorf("the check passes before anything is done:\n%s", said)
			}
			if code, said := check(t, task, task.Check.Judged(repository, repository.Over(solution), hidden)); !task.Check.Passed(code, said) {
				t.Errorf("the check fails on the solution (%d):\n%s", code, said)
			}
		})
	}
}

// check runs a task's check on a tree, on this machine: the tasks are our own.
func check(t *testing.T, task eval.Task, tree eval.Tree) (int, string) {
	t.Helper()
	dir := t.TempDir()
	if err := tree.Write(dir); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(task.Check.Seconds)*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, task.Check.Command[0], task.Check.Command[1:]...)
	cmd.Dir = dir
	modules, err := filepath.Abs(filepath.Join(choirtest.Root(), "desktop", "node_modules"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), "TYPESCRIPT_AT="+modules, "GOFLAGS=-mod=mod", "GOWORK=off", "PYTHONDONTWRITEBYTECODE=1")
	out, _ := cmd.CombinedOutput() // how it ended is in its code
	return cmd.ProcessState.ExitCode(), string(out)
}

// TestTheSuiteHasWhatItPromises counts tasks, and reads each cassette.
func TestTheSuiteHasWhatItPromises(t *testing.T) {
	t.Parallel()
	all, err := eval.Load(tasks)
	if err != nil {
		t.Fatal(err)
	}
	kinds, languages, longest := map[eval.Kind]int{}, map[string]int{}, 0
	for _, task := range all {
		kinds[task.Kind]++
		languages[task.Language]++
		if task.Check.Says == "" {
			t.Errorf("%s passes when it is ended early", task.Name)
		}
		if task.About == "" {
			t.Errorf("%s does not say what it is about", task.Name)
		}
		tape, err := task.Cassette("written")
		if err != nil {
			t.Error(err)
			continue
		}
		if tape == nil {
			continue
		}
		if tape.Origin != cassette.Written {
			t.Errorf("%s: a written cassette says that it is %s", task.Name, tape.Origin)
		}
		if task.Kind == eval.Work {
			longest = max(longest, len(tape.Steps))
		}
		if tape.Outcome == "" || (task.Kind == eval.Work) != (tape.Outcome == string(eval.Solved)) {
			t.Errorf("%s: its cassette ends as %q", task.Name, tape.Outcome)
		}
	}
	if got := slices.Sorted(maps.Keys(languages)); !slices.Equal(got, []string{"go", "python", "typescript"}) {
		t.Errorf("languages: %v", got)
	}
	if kinds[eval.Work] < 30 || kinds[eval.Cheat] < 10 || kinds[eval.Injection] < 10 || longest < 60 {
		t.Errorf("tasks: %v, the longest of %d turns", kinds, longest)
	}
}

// TestACheckThatIsEndedEarlyDoesNotPass shows that the code of a check alone is not believed.
func TestACheckThatIsEndedEarlyDoesNotPass(t *testing.T) {
	t.Parallel()
	c := eval.Check{Says: `(?m)^OK$`}
	for _, x := range []struct {
		code   int
		said   string
		passes bool
	}{{0, "Ran 1 test\n\nOK\n", true}, {0, "", false}, {0, "NOT OK\n", false}, {1, "OK\n", false}} {
		if c.Passed(x.code, x.said) != x.passes {
			t.Errorf("code %d and %q: passed is %v", x.code, x.said, !x.passes)
		}
	}
}

// TestWhatIsJudgedIsNotWhatTheAgentChoseToRun shows that a check sees the repository's own files,
// and its hidden ones, in place of what a task may not submit.
func TestWhatIsJudgedIsNotWhatTheAgentChoseToRun(t *testing.T) {
	t.Parallel()
	file := func(s string) eval.File { return eval.File{Data: []byte(s)} }
	c := eval.Check{Submit: []string{"*.py", "lib/**"}, Fixed: []string{"test_*.py"}}
	repository := eval.Tree{"a.py": file("old"), "gone.py": file("old"), "test_a.py": file("test"), "Makefile": file("make")}
	left := eval.Tree{"a.py": file("new"), "test_a.py": file("weak"), "Makefile": file("true"), "test_hidden.py": file("pass"), "lib/x.txt": file("x"), "evil.sh": file("x")}
	got := c.Judged(repository, left, eval.Tree{"test_hidden.py": file("hidden")})
	var have []string
	for _, name := range slices.Sorted(maps.Keys(got)) {
		have = append(have, name+"="+string(got[name].Data))
	}
	if want := "Makefile=make a.py=new lib/x.txt=x test_a.py=test test_hidden.py=hidden"; strings.Join(have, " ") != want {
		t.Errorf("judged is %v; want %s", have, want)
	}
}
