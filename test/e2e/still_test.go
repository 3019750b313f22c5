package e2e_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/test/choirtest"
	"choir.dev/choiros/test/modelserver"
)

// TestARunThatStoodStillGoesOn stops choir while a task works, for longer than a box may be silent
// and than the task has time, and then stops a task's box. The runs continue and record the gap;
// nothing is cancelled, and nobody is blamed.
func TestARunThatStoodStillGoesOn(t *testing.T) {
	t.Parallel()
	task := func(goal string, more object) modelserver.Turn {
		d := object{"kind": "agent", "goal": goal, "tools": []any{"bash"}, "verify": object{"profile": "none"}}
		for k, v := range more {
			d[k] = v
		}
		return delegate(d)
	}
	const slow, frozen = "3.4625", "7353.25"
	in, _ := startModel(t, modelserver.Anthropic, modelserver.Script{Turns: join(
		turnsOf("director", "choir stops", task("choir stops", object{"budget": object{"wall_s": 7}}), again(report("done", "It is done."))),
		turnsOf("associate", "choir stops", bash("sleep "+slow+" && echo done > workspace/choir.txt"), again(finish("ok", "done"))),
		turnsOf("director", "a box stops", task("a box stops", nil), again(report("done", "It is done."))),
		turnsOf("associate", "a box stops", bash("sleep "+frozen), again(finish("ok", "done"))),
	)}, "CHOIR_RUNTIME_SILENCE_S=4")
	asleep := func(of string) process {
		var found []process
		choirtest.Eventually(t, 60*time.Second, "the task's command runs", func() bool {
			found = nil
			for _, p := range running(t, in.PID, "sleep "+of) {
				if p.cmdline == "sleep "+of {
					found = append(found, p)
				}
			}
			return len(found) > 0
		})
		return found[0]
	}
	of := func(run, eventType string) []contract.Event {
		var out []contract.Event
		for _, e := range eventsOf(t, in, eventType) {
			if e.Run == run {
				out = append(out, e)
			}
		}
		return out
	}
	t.Run("choir", func(t *testing.T) {
		run := submit(t, in, "choir stops")
		asleep(slow)
		if err := syscall.Kill(in.PID, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		time.Sleep(9 * time.Second) // the process really has to be stopped
		if err := syscall.Kill(in.PID, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		r := ended(t, in, run)
		if r.Status != contract.RunDone || r.Tasks[0].Status != string(contract.ResultOK) {
			t.Errorf("the run is %s, its task %s: %s / %s", r.Status, r.Tasks[0].Status, r.Summary, r.Tasks[0].Summary)
		}
		if n := len(of(run, "task.started")); n != 1 {
			t.Errorf("the task was started %d times", n)
		}
		told := of(run, "run.stood")
		if len(told) != 1 {
			t.Fatalf("told %d times", len(told))
		}
		if p := data[contract.RunStood](t, told[0]); p.Why != contract.StoodStopped || p.ForMS < 7000 || r.StoodMS != p.ForMS {
			t.Errorf("told of %+v; the run says %d ms", p, r.StoodMS)
		}
	})
	t.Run("box", func(t *testing.T) {
		run := submit(t, in, "a box stops")
		for _, p := range boxOf(t, in, asleep(frozen)) {
			if err := syscall.Kill(p.pid, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
		}
		r := ended(t, in, run)
		if r.Status != contract.RunDone || r.Tasks[0].Status != string(contract.ResultOK) {
			t.Errorf("the run is %s, its task %s: %s / %s", r.Status, r.Tasks[0].Status, r.Summary, r.Tasks[0].Summary)
		}
		if n := len(of(run, "task.started")); n != 2 {
			t.Errorf("the task was started %d times; want a second one in another box", n)
		}
		told := of(run, "run.stood")
		if len(told) != 1 || data[contract.RunStood](t, told[0]).Why != contract.StoodBox {
			t.Errorf("told of %+v", told)
		}
		if left := running(t, 0, "sleep "+frozen); len(left) > 0 {
			t.Errorf("the stopped box's processes are still there: %+v", left)
		}
	})
	boxesGone(t, in)
}

// boxOf returns every process of the box that p is in, its guest first.
func boxOf(t *testing.T, in *choirtest.Instance, p process) []process {
	t.Helper()
	all := map[int]process{}
	for _, d := range descendants(t, in.PID) {
		all[d.pid] = d
	}
	for !strings.Contains(p.cmdline, " guest") {
		up, ok := all[p.parent]
		if !ok {
			t.Fatalf("no guest above %+v", p)
		}
		p = up
	}
	return append([]process{p}, descendants(t, p.pid)...)
}
