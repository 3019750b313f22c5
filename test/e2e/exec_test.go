package e2e_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"choir.dev/choiros/test/choirtest"
)

// heard is the output of a program so far.
type heard struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.b.Write(p)
}

func (h *heard) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.b.String()
}

func (h *heard) await(t *testing.T, text string) {
	t.Helper()
	choirtest.Eventually(t, 30*time.Second, "it says "+text+"; so far: "+h.String(), func() bool { return strings.Contains(h.String(), text) })
}

// TestExecPassesSignalsOn shows that Ctrl-C goes to the command, which decides what to do, and that
// the third one ends it. Input is passed on as it is typed.
func TestExecPassesSignalsOn(t *testing.T) {
	t.Parallel()
	in := choirtest.Start(t, choirtest.Options{})
	env := []string{"PATH=" + os.Getenv("PATH"), "CHOIR_URL=" + in.URL, "CHOIR_TOKEN=" + in.Token}
	start := func(args ...string) (*exec.Cmd, *heard, *os.File) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		t.Cleanup(cancel)
		cmd := exec.CommandContext(ctx, choirtest.Binary(t), args...)
		said := &heard{}
		cmd.Env, cmd.Stdout, cmd.Stderr = env, said, said
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdin = r
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_ = r.Close()
		t.Cleanup(func() { _ = w.Close() })
		return cmd, said, w
	}
	code := func(cmd *exec.Cmd) int {
		_ = cmd.Wait()
		return cmd.ProcessState.ExitCode()
	}

	cmd, said, _ := start("exec", "--", "sh", "-c", `trap 'echo caught; exit 9' INT; echo begun; while :; do sleep 0.05; done`)
	said.await(t, "begun")
	_ = cmd.Process.Signal(syscall.SIGINT)
	if got := code(cmd); got != 9 || !strings.Contains(said.String(), "caught") {
		t.Errorf("Ctrl-C: code %d, %q; want the command's own end", got, said)
	}
	cmd, said, _ = start("exec", "--", "sleep", "300")
	choirtest.Eventually(t, 30*time.Second, "the command runs", func() bool { return strings.Contains(in.Must(t, "events", "--type", "command.started"), `"300"`) })
	_ = cmd.Process.Signal(syscall.SIGINT)
	if got := code(cmd); got != 130 {
		t.Errorf("Ctrl-C to a command that does nothing about it: code %d, %q", got, said)
	}
	cmd, said, _ = start("exec", "--", "sh", "-c", `trap 'echo no' INT TERM; echo begun; while :; do sleep 0.05; done`)
	said.await(t, "begun")
	_ = cmd.Process.Signal(syscall.SIGTERM)
	said.await(t, "no\n")
	_ = cmd.Process.Signal(syscall.SIGINT)
	choirtest.Eventually(t, 30*time.Second, "both came", func() bool { return strings.Count(said.String(), "no\n") == 2 })
	_ = cmd.Process.Signal(syscall.SIGINT)
	if got := code(cmd); got != 130 || !strings.Contains(said.String(), "ended by a signal") {
		t.Errorf("the third Ctrl-C: code %d, %q", got, said)
	}
	cmd, said, stdin := start("exec", "--", "sh", "-c", `while read -r line; do echo "got $line"; done; echo over`)
	for _, line := range []string{"one", "two"} {
		if _, err := stdin.WriteString(line + "\n"); err != nil {
			t.Fatal(err)
		}
		said.await(t, "got "+line)
	}
	_ = stdin.Close()
	if got := code(cmd); got != 0 || !strings.HasSuffix(said.String(), "over\n") {
		t.Errorf("input a line at a time: code %d, %q", got, said)
	}

	// This uses a terminal of the command's own, with its size, keys and signals.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd = exec.CommandContext(ctx, choirtest.Binary(t), "exec", "-t", "--", "sh", "-c",
		`tty >/dev/null && stty -echo && echo "a terminal $TERM"; stty size; trap 'stty size' WINCH; trap 'echo keys' INT; printf '\033]52;c;b3duZWQ=\007\033[1mbold\033[0m\n'; echo begun; until read -r line && [ "$line" = end ]; do :; done; exit 6`)
	cmd.Env = append(env, "TERM=vt220")
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 33, Cols: 99})
	if err != nil {
		t.Fatal(err)
	}
	said = &heard{}
	var shown sync.WaitGroup
	shown.Go(func() { _, _ = io.Copy(said, tty) }) // until the terminal is closed
	defer shown.Wait()
	defer tty.Close()
	said.await(t, "begun")
	if got := said.String(); !strings.Contains(got, "a terminal vt220") || !strings.Contains(got, "33 99") || !strings.Contains(got, "\x1b[1mbold") || strings.Contains(got, "b3duZWQ") {
		t.Errorf("it shows %q; want its type, its size, what it draws, and no words to the terminal itself", got)
	}
	if err := pty.Setsize(tty, &pty.Winsize{Rows: 44, Cols: 111}); err != nil {
		t.Fatal(err)
	}
	said.await(t, "44 111")
	_, _ = tty.WriteString("\x03")
	said.await(t, "keys")
	_, _ = tty.WriteString("end\r")
	if got := code(cmd); got != 6 {
		t.Errorf("code %d, %q; want the command's own", got, said)
	}
}
