package process_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"choir.dev/choiros/internal/process"
)

const coarselyEnv = "PROCESS_COARSELY"

// TestReexecWithCoarseTimersIsTheSameProcess shows that a program that starts again with another timer slack is
// the same process with the same arguments, and that each of its threads has that slack.
func TestReexecWithCoarseTimersIsTheSameProcess(t *testing.T) {
	if os.Getenv(coarselyEnv) != "" {
		coarselyChild(t)
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestReexecWithCoarseTimersIsTheSameProcess$", "-test.v=true")
	cmd.Env = append(os.Environ(), coarselyEnv+"=begun")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := fmt.Sprintf("process %d: %s, %s", cmd.Process.Pid, process.Coarse, strings.Join(cmd.Args[1:], " "))
	if !strings.Contains(string(out), want) {
		t.Errorf("it said:\n%s\nwant %s", out, want)
	}
}

func coarselyChild(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := process.ReexecWithCoarseTimers(); err != nil {
		t.Fatal(err)
	}
	// This goroutine runs on a thread that the runtime made.
	said := make(chan string)
	go func() {
		has, err := process.Slack()
		said <- fmt.Sprintf("process %d: %s, %s", os.Getpid(), has, strings.Join(os.Args[1:], " "))
		if err != nil {
			t.Error(err)
		}
	}()
	t.Log(<-said)
}
