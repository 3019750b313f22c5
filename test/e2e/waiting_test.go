package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/test/choirtest"
	"choir.dev/choiros/test/modelserver"
)

// waited is the output of a verb that waits for a run, however the wait ends.
type waited struct {
	Run, Status string
	Questions   []contract.Question
	code        int
	stderr      string
}

// TestWaitingForARun shows that whatever ends the wait, the output says which run it was for, and
// another wait can continue: after a question, at the end of the time, after Ctrl-C, and after the
// death of the control plane.
func TestWaitingForARun(t *testing.T) {
	t.Parallel()
	script := modelserver.Script{Turns: turnsOf("director", "",
		modelserver.Turn{Calls: call("ask_user", object{"text": "Which one?", "choices": []string{"a", "b"}, "deadline_s": 600})},
		modelserver.Turn{Hold: "later", Repeat: true, Calls: report("done", "It is b.").Calls})}
	s := modelserver.New(script).Start()
	t.Cleanup(s.Close)
	env := modelEnv(s, modelserver.Anthropic, newKey())
	in := choirtest.Start(t, choirtest.Options{Env: env})

	asked := waits(t, in, nil, "prompt", "--wait", "--json", "ask me")
	if asked.code != 4 || asked.Status != string(contract.RunWaiting) || len(asked.Questions) != 1 || asked.Questions[0].Text != "Which one?" || !strings.Contains(asked.stderr, "choir answer "+asked.Run) {
		t.Fatalf("%+v; want code 4, and the question", asked)
	}
	if again := waits(t, in, nil, "wait", "--json", asked.Run); again.code != 4 || len(again.Questions) != 1 {
		t.Errorf("%+v; want code 4, and the question", again)
	}
	if r := verb(t, []string{"CHOIR_URL=" + in.URL, "CHOIR_TOKEN=" + in.Token}, "", nil, "__complete", "answer", asked.Run, "--question", ""); !strings.HasPrefix(r.Stdout, asked.Questions[0].ID+"\tWhich one?\n") {
		t.Errorf("what completes the question: %+v", r)
	}
	if r, err := in.Run(t.Context(), "undo"); err != nil || r.Code != 1 || !strings.Contains(r.Stderr, "waits for an answer") || !strings.Contains(r.Stderr, "choir run cancel "+asked.Run) {
		t.Errorf("undo while a run waits: %v, %+v", err, r)
	}
	in.Must(t, "answer", asked.Run, "b")
	if r, err := in.Run(t.Context(), "answer", asked.Run, "b"); err != nil || r.Code != 1 || !strings.Contains(r.Stderr, "asks nothing") {
		t.Errorf("answered twice: %+v, %v", r, err)
	}
	for what, c := range map[string]struct {
		code int
		args []string
		then func(p *os.Process)
	}{
		"the time is over":  {5, []string{"--timeout", "300ms"}, nil},
		"Ctrl-C":            {128 + 2, nil, func(p *os.Process) { _ = p.Signal(os.Interrupt) }},
		"told to terminate": {128 + 15, nil, func(p *os.Process) { _ = p.Signal(syscall.SIGTERM) }},
	} {
		if w := waits(t, in, c.then, append([]string{"wait", "--json", asked.Run}, c.args...)...); w.code != c.code || w.Run != asked.Run || !strings.Contains(w.stderr, "choir wait "+asked.Run) {
			t.Errorf("%s: %+v; want code %d, and the run's name", what, w, c.code)
		}
	}
	if lost := waits(t, in, func(*os.Process) { in.Kill() }, "wait", "--json", asked.Run); lost.code != 3 || lost.Run != asked.Run || !strings.Contains(lost.stderr, "choir wait "+asked.Run) {
		t.Errorf("the control plane was killed: %+v; want code 3, and the run's name", lost)
	}
	in = choirtest.Start(t, choirtest.Options{Data: in.Data, Env: env})
	s.Release("later")
	if done := waits(t, in, nil, "wait", "--json", asked.Run); done.code != 0 || done.Status != string(contract.RunDone) {
		t.Errorf("%+v; want that it is done", done)
	}
}

// waits runs a verb that waits; then is called once it does.
func waits(t *testing.T, in *choirtest.Instance, then func(*os.Process), args ...string) waited {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, choirtest.Binary(t), args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "CHOIR_URL=" + in.URL, "CHOIR_TOKEN=" + in.Token}
	var out, errb bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errb
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if then != nil {
		choirtest.Eventually(t, 20*time.Second, "it has a connection", func() bool { return hasSocket(cmd.Process.Pid) })
		then(cmd.Process)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && (!errors.As(err, &exit) || ctx.Err() != nil) {
		t.Fatalf("choir %s: %v\n%s", strings.Join(args, " "), err, errb.String())
	}
	w := waited{code: cmd.ProcessState.ExitCode(), stderr: errb.String()}
	if err := json.Unmarshal(out.Bytes(), &w); err != nil {
		t.Errorf("choir %s ended with %d and printed no JSON: %v\n%s%s", strings.Join(args, " "), w.code, err, out.String(), errb.String())
	}
	return w
}

// hasSocket reports whether a process has a socket open.
func hasSocket(pid int) bool {
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return false
	}
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, "socket:") {
			return true
		}
	}
	return false
}
