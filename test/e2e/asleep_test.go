package e2e_test

import (
	"path/filepath"
	"testing"
	"time"

	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
	"choir.dev/choiros/test/modelserver"
)

// TestIdleComputersSleepAndWakeWhenAsked shows that idle computers fall asleep and then have no
// process, that their logs are read without waking them, and that a request for a file wakes one. A
// run that goes on, or that waits, keeps its computer awake, and makes it wake by itself after
// choir was killed, while the others stay asleep.
func TestIdleComputersSleepAndWakeWhenAsked(t *testing.T) {
	s := modelserver.New(modelserver.Script{Turns: join(turnsOf("director", "", modelserver.Turn{Hold: "for ever"}))}).Start()
	t.Cleanup(s.Close)
	env := append(modelEnv(s, modelserver.Anthropic, newKey()), "CHOIR_RUNTIME_SLEEP_S=1")
	data := filepath.Join(choirtest.Scratch(t), "data")
	in := choirtest.Start(t, choirtest.Options{Data: data, Env: env})
	for _, name := range []string{"Second", "Third"} {
		in.Must(t, "computers", "create", name)
	}
	states := func() map[string]view.ComputerState {
		var list []view.Computer
		in.JSON(t, &list, "computers")
		out := map[string]view.ComputerState{}
		for _, c := range list {
			out[c.Name] = c.State
		}
		return out
	}
	of := map[string]string{}
	var list []view.Computer
	in.JSON(t, &list, "computers")
	for _, c := range list {
		of[c.Name] = string(c.ID)
	}
	in.Must(t, "exec", "--computer", of["Third"], "--", "sh", "-c", "echo kept > workspace/kept")
	choirtest.Eventually(t, time.Minute, "all sleep, and there is no process but the one that starts boxes", func() bool {
		for _, state := range states() {
			if state != view.StateAsleep {
				return false
			}
		}
		return len(descendants(t, in.PID)) <= 1
	})
	in.Must(t, "events", "--limit", "3", "--computer", of["Third"])
	in.Must(t, "checkpoints", "--computer", of["Third"])
	if r, err := in.Run(t.Context(), "__complete", "runs", "--computer", of["Third"], ""); err != nil || r.Stdout != ":36\n" {
		t.Errorf("names of what sleeps: %v, %+v", err, r)
	}
	if got := states()["Third"]; got != view.StateAsleep {
		t.Errorf("its log was read: it is %s", got)
	}
	start := time.Now()
	if got := in.Must(t, "files", "cat", "workspace/kept", "--computer", of["Third"]); got != "kept\n" {
		t.Errorf("it woke with %q", got)
	}
	t.Logf("a command that wakes a computer took %v", time.Since(start))
	if got := states(); got["Third"] != view.StateAwake || got["Second"] != view.StateAsleep {
		t.Errorf("they are %v", got)
	}

	var p prompted
	in.JSON(t, &p, "prompt", "Wait for ever", "--computer", of["Second"])
	choirtest.Eventually(t, time.Minute, "only the one with a run is awake", func() bool {
		got := states()
		return got["Second"] == view.StateWorking && got["Third"] == view.StateAsleep
	})
	in.Kill()
	in, err := choirtest.TryStart(t, choirtest.Options{Data: data, Env: env})
	if err != nil {
		t.Fatal(err)
	}
	choirtest.Eventually(t, time.Minute, "the one with a run is woken by itself", func() bool { return states()["Second"] == view.StateWorking })
	if got := states(); got["Third"] != view.StateAsleep {
		t.Errorf("they are %v", got)
	}
}
