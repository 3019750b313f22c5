package process_test

import (
	"errors"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/internal/process"
)

// TestAwaitTakesNoThread shows that waiting for a child occupies no thread in a system call, and
// that each waiter learns of the end of its own child.
func TestAwaitTakesNoThread(t *testing.T) {
	const children = 8
	var ins []io.Closer
	ended := make([]chan error, children)
	for i := range ended {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", "read x; exit 7")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ins, ended[i] = append(ins, in), make(chan error, 1)
		go func() {
			process.Await(cmd.Process)
			ended[i] <- cmd.Wait()
		}()
	}
	stacks, limit := make([]byte, 1<<20), time.Now().Add(20*time.Second)
	for waiting := 0; waiting < children; waiting = polled(string(stacks[:runtime.Stack(stacks, true)])) {
		if time.Now().After(limit) {
			t.Fatalf("%d of %d wait without a thread", waiting, children)
		}
		runtime.Gosched()
	}
	for i := range ended {
		select {
		case err := <-ended[i]:
			t.Fatalf("child %d has not ended, and its end was told: %v", i, err)
		default:
		}
		if err := ins[i].Close(); err != nil {
			t.Fatal(err)
		}
		var exit *exec.ExitError
		if err := <-ended[i]; !errors.As(err, &exit) || exit.ExitCode() != 7 {
			t.Errorf("child %d: %v", i, err)
		}
	}
	// A process that was already waited for can't be waited for again.
	cmd := exec.CommandContext(t.Context(), "true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	process.Await(cmd.Process)
}

// polled counts the goroutines that wait for a child through the runtime's poller.
func polled(stacks string) (n int) {
	for g := range strings.SplitSeq(stacks, "\n\n") {
		if head, rest, _ := strings.Cut(g, "\n"); strings.Contains(head, "[IO wait") && strings.Contains(rest, "process.Await") {
			n++
		}
	}
	return n
}
