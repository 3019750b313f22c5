package e2e_test

import (
	"testing"
	"time"

	"choir.dev/choiros/bench/procfs"
	"choir.dev/choiros/contract"
	"choir.dev/choiros/test/choirtest"
	"choir.dev/choiros/test/modelserver"
)

// TestAParkedRunOutlivesKills shows that the boxes of a run that waits for its person end, that the run is there as before,
// also after the control plane was killed while it was parked, and again soon after, and that it goes on by its answer, having asked once.
func TestAParkedRunOutlivesKills(t *testing.T) {
	t.Parallel()
	s := modelserver.New(modelserver.Script{Turns: turnsOf("director", "",
		modelserver.Turn{Calls: call("ask_user", object{"text": "Which one?", "choices": []string{"a", "b"}, "deadline_s": 3600})},
		modelserver.Turn{Repeat: true, Calls: report("done", "It is b.").Calls})}).Start()
	t.Cleanup(s.Close)
	env := append(modelEnv(s, modelserver.Anthropic, newKey()), "CHOIR_LOOPS_PARK_S=1")
	in := choirtest.Start(t, choirtest.Options{Env: env})
	below := func() int {
		_, n, err := procfs.Family(in.PID, procfs.Resident)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	asked := waits(t, in, nil, "prompt", "--wait", "--plan", "--json", "ask me")
	if asked.code != 4 || len(asked.Questions) != 1 {
		t.Fatalf("%+v", asked)
	}
	held := below() // with the run's box
	for range 2 {
		choirtest.Eventually(t, 3*time.Minute, "its box has ended", func() bool { return below() < held })
		if again := waits(t, in, nil, "wait", "--json", asked.Run); again.code != 4 || len(again.Questions) != 1 || again.Status != string(contract.RunWaiting) {
			t.Errorf("%+v; want code 4, and the question", again)
		}
		in.Kill()
		in = choirtest.Start(t, choirtest.Options{Data: in.Data, Env: env})
	}
	in.Must(t, "answer", asked.Run, "b")
	if done := waits(t, in, nil, "wait", "--json", asked.Run); done.code != 0 || done.Status != string(contract.RunDone) {
		t.Errorf("%+v; want that it is done", done)
	}
	if n := len(s.Requests()); n != 2 {
		t.Errorf("the model was asked %d times", n)
	}
}
