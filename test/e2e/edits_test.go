package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/test/choirtest"
	"choir.dev/choiros/test/modelserver"
)

// lined is a file of forty lines, some of them changed.
func lined(changed map[int]string) string {
	var b strings.Builder
	for i := 1; i <= 40; i++ {
		if text, ok := changed[i]; ok {
			b.WriteString(text + "\n")
		} else {
			fmt.Fprintf(&b, "line %d\n", i)
		}
	}
	return b.String()
}

const byTask, byUser = "the task was here", "the user was here"

// scene is a folder in which a task and its user edit the same files at once.
type scene struct {
	in    *choirtest.Instance
	name  string
	many  int // further files that the task makes, so that publishing takes some time
	stop  chan struct{}
	ended sync.WaitGroup

	mu       sync.Mutex
	appended int // the newest line that the appending command reported
	putDone  int // the newest put that was acknowledged
	trouble  []string
}

func (s *scene) path(name string) string { return "workspace/" + s.name + "/" + name }

// notes is a file that is shown live while the task works.
func (s *scene) notes() string { return "choiros/notes-" + s.name + ".txt" }

func (s *scene) set(t *testing.T) {
	t.Helper()
	for _, name := range []string{"same.txt", "other.txt", "gone.txt", "clash.txt", "appended.txt", "put.txt"} {
		put(t, s.in, s.path(name), lined(nil))
	}
	put(t, s.in, s.notes(), lined(nil))
}

// turns are the task's part: it edits, and then waits until the test lets it continue.
func (s *scene) turns(verify []any, then modelserver.Turn) []modelserver.Turn {
	goal := "scene " + s.name + "."
	edit := fmt.Sprintf("cd workspace/%s && for f in same clash appended put; do sed -i '1s/.*/%s/' $f.txt || exit 1; done; "+
		"echo made > made.txt; for i in $(seq %d); do echo $i > many-$i.txt; done; sed -i '1s/.*/%s/' ../../%s; echo edited", s.name, byTask, s.many, byTask, s.notes())
	return join(
		turnsOf("director", goal,
			delegate(object{"kind": "agent", "goal": goal, "tools": []any{"bash"}, "verify": object{"profile": "none", "commands": verify}}),
			again(report("done", "It is done."))),
		turnsOf("associate", goal, bash(edit), then),
	)
}

// edit is the user's part while the task works: changes to the same file, another, a new one, a
// removed one, one that is shown live, and the very line that the task changed.
func (s *scene) edit(t *testing.T) {
	t.Helper()
	put(t, s.in, s.path("same.txt"), lined(map[int]string{40: byUser}))
	put(t, s.in, s.path("other.txt"), lined(map[int]string{20: byUser}))
	put(t, s.in, s.path("new.txt"), byUser)
	put(t, s.in, s.path("clash.txt"), lined(map[int]string{1: byUser}))
	s.in.Must(t, "files", "rm", s.path("gone.txt"))
	if got := s.in.Must(t, "files", "cat", s.notes()); got != lined(map[int]string{1: byTask}) {
		t.Errorf("the task's edit of the shell is not shown live: %q", got[:min(len(got), 60)])
	}
	put(t, s.in, s.notes(), lined(map[int]string{1: byTask, 40: byUser}))
}

// race starts two writers that work until halt: a command that appends lines, and puts that replace
// a file.
func (s *scene) race(t *testing.T) {
	t.Helper()
	s.stop = make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); s.ended.Wait() })
	s.ended.Add(2)
	go func() {
		defer s.ended.Done()
		r, _ := s.in.Run(ctx, "exec", "--cwd", "workspace/"+s.name, "--", "sh", "-c",
			`i=0; while [ ! -e stop ]; do i=$((i+1)); echo "user $i" >> appended.txt && echo $i; sleep 0.003; done`)
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, line := range strings.Fields(r.Stdout) {
			if n := 0; line != "" {
				if _, err := fmt.Sscan(line, &n); err == nil {
					s.appended = max(s.appended, n)
				}
			}
		}
	}()
	go func() {
		defer s.ended.Done()
		for n := 1; ; n++ {
			select {
			case <-s.stop:
				return
			default:
			}
			r, err := s.in.RunInput(ctx, []byte(lined(map[int]string{40: fmt.Sprintf("put %d", n)})), "files", "put", "-", s.path("put.txt"))
			if err != nil || r.Code != 0 {
				s.mu.Lock()
				s.trouble = append(s.trouble, fmt.Sprintf("put %d: %v, code %d: %s", n, err, r.Code, r.Stderr))
				s.mu.Unlock()
				return
			}
			s.mu.Lock()
			s.putDone = n
			s.mu.Unlock()
		}
	}()
	choirtest.Eventually(t, 30*time.Second, "both writers write", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		b, err := os.ReadFile(filepath.Join(workspaceDir(t, s.in), s.path("appended.txt")))
		return s.putDone > 0 && err == nil && strings.Contains(string(b), "user 3\n")
	})
}

// halt ends the writers.
func (s *scene) halt(t *testing.T) {
	t.Helper()
	close(s.stop)
	put(t, s.in, s.path("stop"), "")
	s.ended.Wait()
}

// check compares the live tree with what user and task did. published says whether the task's part
// has to be there.
func (s *scene) check(t *testing.T, published bool) {
	t.Helper()
	first := "line 1"
	if published {
		first = byTask
	}
	ws := workspaceDir(t, s.in)
	read := func(path string) string {
		b, err := os.ReadFile(filepath.Join(ws, path))
		if err != nil {
			return "(" + err.Error() + ")"
		}
		return string(b)
	}
	for path, want := range map[string]string{
		s.path("same.txt"):  lined(map[int]string{1: first, 40: byUser}),
		s.path("other.txt"): lined(map[int]string{20: byUser}),
		s.path("new.txt"):   byUser,
		s.path("clash.txt"): lined(map[int]string{1: byUser}),
		s.notes():           lined(map[int]string{1: first, 40: byUser}),
	} {
		if got := read(path); got != want {
			t.Errorf("%s is\n%s\nwant\n%s", path, got, want)
		}
	}
	if got := read(s.path("gone.txt")); !strings.HasPrefix(got, "(") {
		t.Errorf("what the user removed is back: %s", got)
	}
	for _, path := range []string{"made.txt", "many-1.txt", fmt.Sprintf("many-%d.txt", s.many)} {
		if got := read(s.path(path)); strings.HasPrefix(got, "(") == published {
			t.Errorf("%s: %s; published: %v", path, got, published)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, what := range s.trouble {
		t.Error(what)
	}
	got := read(s.path("appended.txt"))
	if !strings.HasPrefix(got, first+"\n") {
		t.Errorf("appended.txt begins with %q; want %q", got[:min(len(got), 40)], first)
	}
	lost := 0
	for i := 1; i <= s.appended; i++ {
		if n := strings.Count(got, fmt.Sprintf("\nuser %d\n", i)); n != 1 {
			lost++
			if lost < 5 {
				t.Errorf("the appended line %d is there %d times", i, n)
			}
		}
	}
	if lost > 0 || s.appended < 3 {
		t.Errorf("%d of %d appended lines are lost or doubled", lost, s.appended)
	}
	last := read(s.path("put.txt"))
	if !strings.HasSuffix(last, fmt.Sprintf("\nput %d\n", s.putDone)) && !strings.HasSuffix(last, fmt.Sprintf("\nput %d\n", s.putDone+1)) {
		t.Errorf("the newest put was %d; the file ends with %q", s.putDone, last[max(0, len(last)-40):])
	}
	t.Logf("%s: %d lines appended, %d puts", s.name, s.appended, s.putDone)
}

func TestEditsDuringATaskSurvive(t *testing.T) {
	t.Parallel()
	success, failure, cancel := &scene{name: "success", many: 50}, &scene{name: "failure", many: 50}, &scene{name: "cancelled", many: 50}
	held := func(s *scene) modelserver.Turn {
		f := finish("ok", "edited")
		f.Hold = s.name
		return f
	}
	const sleeps = "7351.25"
	in, server := startModel(t, modelserver.Anthropic, modelserver.Script{Turns: join(
		success.turns([]any{[]any{"true"}}, held(success)),
		failure.turns([]any{[]any{"false"}}, held(failure)),
		cancel.turns([]any{}, bash("sleep "+sleeps+" & setsid sh -c 'sleep "+sleeps+"' & (sleep "+sleeps+" &) ; wait")),
	)}, "CHOIR_LOOPS_REPAIRS=0")
	for _, s := range []*scene{success, failure} {
		t.Run(s.name, func(t *testing.T) {
			s.in = in
			s.set(t)
			run := submit(t, in, "scene "+s.name+".")
			choirtest.Eventually(t, 60*time.Second, "the task has edited", func() bool { return server.Held(s.name) })
			s.edit(t)
			s.race(t)
			server.Release(s.name)
			r := ended(t, in, run)
			s.halt(t)
			s.check(t, s == success)
			if want := map[*scene]contract.RunStatus{success: contract.RunDone, failure: contract.RunFailed}[s]; r.Status != want {
				t.Errorf("the run is %s: %s", r.Status, r.Summary)
			}
			if s == success && !strings.Contains(r.Tasks[0].Summary, s.path("clash.txt")) {
				t.Errorf("the conflict is not reported: %s", r.Tasks[0].Summary)
			}
			if s == failure && (r.Tasks[0].Result == nil || !strings.Contains(r.Tasks[0].Result.Diff, byTask) || r.Tasks[0].Verification != contract.VerificationFail) {
				t.Errorf("the failed task's evidence: %+v", r.Tasks[0])
			}
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		s := cancel
		s.in = in
		s.set(t)
		run := submit(t, in, "scene "+s.name+".")
		choirtest.Eventually(t, 60*time.Second, "all of the task's children sleep", func() bool {
			children := 0
			for _, p := range running(t, in.PID, "sleep "+sleeps) {
				if p.cmdline == "sleep "+sleeps {
					children++
				}
			}
			return children == 3
		})
		s.edit(t)
		s.race(t)
		in.Must(t, "run", "cancel", run)
		r := ended(t, in, run)
		s.halt(t)
		if r.Status != contract.RunCancelled || r.Tasks[0].Status != string(contract.ResultCancelled) {
			t.Errorf("the run is %s, its task %s", r.Status, r.Tasks[0].Status)
		}
		// No process is left on this machine: neither below the control plane, nor below init.
		if left := running(t, 0, "sleep "+sleeps); len(left) > 0 {
			t.Errorf("the task's processes outlive it: %+v", left)
		}
		s.check(t, false)
	})
	boxesGone(t, in)
	usable(t, in)
}

// TestEditsSurviveACrash kills the control plane while a task works, and at the moment of its
// publishing.
func TestEditsSurviveACrash(t *testing.T) {
	whole := t
	t.Parallel()
	working, publishing := &scene{name: "working", many: 50}, &scene{name: "publishing", many: 400}
	var turns []modelserver.Turn
	for _, s := range []*scene{working, publishing} {
		f := again(finish("ok", "edited")) // it is asked again after the crash
		f.Hold = s.name
		turns = append(turns, s.turns([]any{}, f)...)
	}
	server := modelserver.New(modelserver.Script{Turns: turns}).Start()
	t.Cleanup(server.Close)
	env := modelEnv(server, modelserver.OpenAI, newKey())
	in := choirtest.Start(t, choirtest.Options{Env: env})

	restart := func(t *testing.T) {
		t.Helper()
		left := descendants(t, in.PID)
		in.Kill()
		choirtest.Eventually(t, 10*time.Second, "the boxes end with the control plane", func() bool {
			for _, p := range left {
				if now, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid)); err == nil && strings.ReplaceAll(strings.TrimRight(string(now), "\x00"), "\x00", " ") == p.cmdline && p.cmdline != "" {
					return false
				}
			}
			return true
		})
	}
	for _, s := range []*scene{working, publishing} {
		t.Run(s.name, func(t *testing.T) {
			s.in = in
			s.set(t)
			run := submit(t, in, "scene "+s.name+".")
			choirtest.Eventually(t, 60*time.Second, "the task has edited", func() bool { return server.Held(s.name) })
			s.edit(t)
			s.race(t)
			if s == publishing {
				decided := func() bool {
					all, err := filepath.Glob(filepath.Join(workspaceDir(t, in), ".git", "choir", "publish", "*", "started"))
					return err == nil && len(all) > 0
				}
				server.Release(s.name)
				choirtest.Eventually(t, 60*time.Second, "the publishing begins", decided)
			}
			restart(t)
			s.ended.Wait() // their connections were broken
			s.mu.Lock()
			s.trouble = nil // a put that was refused was not acknowledged
			s.mu.Unlock()
			server.Release(s.name)
			in = choirtest.Start(whole, choirtest.Options{Data: in.Data, Env: env}) // it outlives the subtest
			s.in = in
			r := ended(t, in, run)
			if r.Status != contract.RunDone || len(r.Tasks) != 1 || r.Tasks[0].Status != string(contract.ResultOK) {
				t.Errorf("the run is %s: %s", r.Status, r.Summary)
			}
			s.check(t, true)
			usable(t, in)
		})
	}
}
