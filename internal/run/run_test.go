package run_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/run"
	"choir.dev/choiros/internal/run/runtest"
)

var update = flag.Bool("update", false, "write what the reducer gives into the cases")

// goldenCase is a sequence of events and what every reducer must make of it.
type goldenCase struct {
	Name   string            `json:"name"`
	Run    string            `json:"run"`
	Events []json.RawMessage `json:"events"`
	Want   runtest.Outcome   `json:"want"`
}

func load(t *testing.T) map[string]*goldenCase {
	t.Helper()
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	out := map[string]*goldenCase{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var c goldenCase
		if err := json.Unmarshal(b, &c); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		out[f] = &c
	}
	return out
}

func decode(t *testing.T, raw json.RawMessage) (contract.Event, contract.Payload) {
	t.Helper()
	e, err := contract.UnmarshalEvent(raw)
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	p, err := contract.DecodeData(e.Type, e.Data)
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return e, p
}

// The state's tables and the desktop's reducer pass the same cases.
func TestGolden(t *testing.T) {
	for file, c := range load(t) {
		t.Run(c.Name, func(t *testing.T) {
			r, again := run.New(c.Run), run.New(c.Run)
			for _, raw := range c.Events {
				e, p := decode(t, raw)
				r.Apply(e, p)
				again.Apply(e, p)
				again.Apply(e, p) // an event that is applied twice changes nothing
			}
			if *update {
				c.Want = runtest.Of(r)
				b, err := json.MarshalIndent(c, "", " ")
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, append(b, '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got := runtest.Of(r); !reflect.DeepEqual(got, c.Want) {
				t.Errorf("got  %+v\nwant %+v", got, c.Want)
			}
			if !reflect.DeepEqual(r, again) {
				t.Errorf("events that came twice changed it:\n%+v\n%+v", r, again)
			}
		})
	}
}

// TestATasksTimeIsWhatItsLoopWorked folds the times of a task: what passes while its run waits, between two processes and
// while it is verified is not its loop's, and another attempt starts from nothing.
func TestATasksTimeIsWhatItsLoopWorked(t *testing.T) {
	r, at, n, epoch, id := run.New("r"), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), uint64(0), uint64(1), "t"
	after := func(passed time.Duration, p contract.Payload) {
		n++
		at = at.Add(passed)
		r.Apply(contract.Event{Sequence: n, Epoch: epoch, Time: at, Task: id}, p)
	}
	worked := func(want time.Duration) {
		t.Helper()
		if got := r.TaskWorked(r.Tasks[0]); got != want {
			t.Errorf("it worked %s; want %s", got, want)
		}
	}
	moved := func(attempt int, to contract.AttemptState) *contract.AttemptMoved {
		return &contract.AttemptMoved{Attempt: attempt, State: to, Result: &contract.AssociateResult{Attempt: attempt}}
	}
	after(0, &contract.PromptSubmitted{Text: "go"})
	after(time.Second, &contract.TaskRequested{Task: contract.DirectorTask{ID: id, Kind: contract.KindAgent}})
	after(time.Second, moved(1, contract.AttemptBegun))
	after(time.Second, &contract.TaskStarted{Attempt: 1})
	worked(0)
	after(5*time.Second, &contract.ToolCalled{Call: "c", Attempt: 1})
	worked(5 * time.Second)
	after(0, &contract.RunMoved{Status: contract.RunWaiting})
	after(time.Hour, &contract.RunMoved{Status: contract.RunWorking})
	worked(5 * time.Second)
	epoch = 2
	after(time.Hour, &contract.TaskStarted{Attempt: 1})
	after(4*time.Second, &contract.RunStood{Why: contract.StoodSuspended, ForMS: 1000})
	worked(8 * time.Second)
	after(time.Second, moved(1, contract.AttemptFinished))
	after(time.Minute, moved(1, contract.AttemptMerged))
	worked(9 * time.Second)
	after(0, moved(1, contract.AttemptTakingBack))
	after(0, &contract.TaskFinished{Result: contract.AssociateResult{Attempt: 1}})
	after(time.Second, moved(2, contract.AttemptBegun))
	worked(0)
	after(time.Second, &contract.TaskStarted{Attempt: 2})
	after(2*time.Second, &contract.ToolCalled{Call: "c", Attempt: 2})
	worked(2 * time.Second)
}

// TestStandingStillWhileItWaitsCountsOnce shows that the time in which the machine stood still while a run waited is not taken off
// twice: once as waiting, and once as standing still.
func TestStandingStillWhileItWaitsCountsOnce(t *testing.T) {
	r, at, n := run.New("r"), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), uint64(0)
	after := func(passed time.Duration, p contract.Payload) {
		n++
		at = at.Add(passed)
		r.Apply(contract.Event{Sequence: n, Epoch: 1, Time: at, Task: "t"}, p)
	}
	after(0, &contract.PromptSubmitted{Text: "go"})
	after(0, &contract.TaskRequested{Task: contract.DirectorTask{ID: "t", Kind: contract.KindAgent}})
	after(0, &contract.AttemptMoved{Attempt: 1, State: contract.AttemptBegun, Result: &contract.AssociateResult{Attempt: 1}})
	after(0, &contract.TaskStarted{Attempt: 1})
	after(30*time.Minute, &contract.RunMoved{Status: contract.RunWaiting})
	after(time.Hour, &contract.RunStood{Why: contract.StoodSuspended, ForMS: time.Hour.Milliseconds()})
	after(0, &contract.RunMoved{Status: contract.RunWorking})
	after(time.Minute, &contract.ToolCalled{Call: "c", Attempt: 1})
	if worked, task := r.Worked(), r.TaskWorked(r.Tasks[0]); worked != 31*time.Minute || task != worked {
		t.Errorf("it worked %s, its task %s; want 31 minutes", worked, task)
	}
	after(time.Hour, &contract.RunStood{Why: contract.StoodSuspended, ForMS: time.Hour.Milliseconds()})
	if worked, task := r.Worked(), r.TaskWorked(r.Tasks[0]); worked != 31*time.Minute || task != worked {
		t.Errorf("it worked %s, its task %s; want 31 minutes", worked, task)
	}
}
