package e2e_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/test/choirtest"
	"choir.dev/choiros/test/modelserver"
)

// TestATerminalIsClosed shows what its signal does: a command hears of it, a wait says which run it
// was for, and the control plane ends in an orderly way.
func TestATerminalIsClosed(t *testing.T) {
	t.Parallel()
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("this test was started to outlive its terminal, and what it starts would be, too")
	}
	s := modelserver.New(modelserver.Script{Turns: turnsOf("director", "", modelserver.Turn{Hold: "for ever", Repeat: true})}).Start()
	t.Cleanup(s.Close)
	in := choirtest.Start(t, choirtest.Options{Env: modelEnv(s, modelserver.Anthropic, newKey())})

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, choirtest.Binary(t), "exec", "--", "sh", "-c", `trap 'echo heard; exit 9' HUP; echo begun; while :; do sleep 0.05; done`)
	said := &heard{}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "CHOIR_URL=" + in.URL, "CHOIR_TOKEN=" + in.Token}
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said.await(t, "begun")
	_ = cmd.Process.Signal(syscall.SIGHUP)
	if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 9 || !strings.Contains(said.String(), "heard") {
		t.Errorf("the command: %v, %q; want its own end", cmd.ProcessState, said)
	}

	run := submit(t, in, "hold on")
	if w := waits(t, in, func(p *os.Process) { _ = p.Signal(syscall.SIGHUP) }, "wait", "--json", run); w.code != 128+1 || w.Run != run || !strings.Contains(w.stderr, "choir wait "+run) {
		t.Errorf("the wait: %+v; want code 129, and the run's name", w)
	}
	in.Must(t, "run", "cancel", run)
	if w := waits(t, in, nil, "wait", "--json", run); w.Status != string(contract.RunCancelled) {
		t.Errorf("%+v; want that it is cancelled", w)
	}

	if err := syscall.Kill(in.PID, syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	<-in.Done()
	if _, err := os.Stat(filepath.Join(in.Data, "runtime.json")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the control plane left word that it runs: %v", err)
	}
}
