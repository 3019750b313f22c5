package boxtools

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/harness"
)

type runArgs struct {
	Argv     []string `json:"argv"`
	Cwd      string   `json:"cwd"`
	TimeoutS int      `json:"timeout_s"`
}

func (b *Box) run(ctx context.Context, a runArgs) (Result, error) {
	if a.TimeoutS == 0 {
		a.TimeoutS = 24 * 3600 // whoever runs steps bounds their time
	}
	dir, err := b.folder(a.Cwd)
	if err != nil {
		return Result{}, err
	}
	cmd, why := b.exec(ctx, a.Argv, dir, nil, time.Duration(a.TimeoutS)*time.Second)
	b.forget() // steps know what they do to files
	return Result{OK: true, Output: describe(cmd, why), Truncated: cmd.Truncated, Command: &cmd}, nil
}

// folder is the place of a folder of the workspace, for a command to start in.
func (b *Box) folder(cwd string) (string, error) {
	if cwd == "" {
		cwd = "."
	}
	dir, err := b.clean(cwd)
	if err != nil {
		return "", err
	}
	info, err := b.root.Stat(dir) // refuses a symlink that leads outside
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return "", refuse("%s is not a folder", dir)
	}
	return filepath.Join(b.dir, dir), nil
}

// exec runs argv in a process group of its own, which is killed as a whole when the time is
// up. why says what else than itself ended it, or "".
func (b *Box) exec(ctx context.Context, argv []string, dir string, stdin io.Reader, timeout time.Duration, env ...string) (contract.Command, string) {
	return b.execTo(ctx, argv, dir, stdin, func(w io.Writer) io.Writer { return w }, timeout, env...)
}

// execTo is exec with a filter between the command's output and what is kept of it.
func (b *Box) execTo(ctx context.Context, argv []string, dir string, stdin io.Reader, between func(io.Writer) io.Writer, timeout time.Duration, env ...string) (contract.Command, string) {
	var stdout, stderr headTail
	ran, why := start(ctx, process{argv: argv, dir: dir, env: append(slices.Clone(b.env), env...), path: b.env,
		stdin: stdin, stdout: between(&stdout), stderr: &stderr, timeout: timeout})
	out := contract.Command{Argv: argv, ExitCode: ran.ExitCode, DurationMS: ran.DurationMS,
		Stdout: stdout.String(), Stderr: stderr.String() + ran.Stderr, Truncated: stdout.cut() || stderr.cut()}
	return out, why
}

// process is what start starts.
type process struct {
	argv           []string
	dir            string
	env            []string
	path           []string // the environment in whose PATH the program is looked for
	stdin          io.Reader
	stdout, stderr io.Writer // if they are the same, what is written to both comes in its order
	timeout        time.Duration
}

// start runs a program in a process group of its own, which is killed as a whole when the time is up.
// Of the command it returns the exit code and the time, and in Stderr why it did not start; why says what
// else than itself ended it, or "".
func start(ctx context.Context, p process) (out contract.Command, why string) {
	ctx, cancel := awake.WithTimeout(ctx, p.timeout)
	defer cancel()
	out.ExitCode = -1
	program, err := lookUp(p.argv[0], p.path)
	if err != nil {
		out.Stderr = err.Error()
		return out, "could not be started: " + err.Error()
	}
	cmd := exec.CommandContext(ctx, program, p.argv[1:]...)
	cmd.Args[0] = p.argv[0]
	cmd.Dir, cmd.Env = p.dir, p.env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.stdin, p.stdout, p.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	// A child that was left behind may hold the pipes open; what it writes later does not
	// belong to this command.
	cmd.WaitDelay = 2 * time.Second
	began := time.Now()
	err = cmd.Run()
	out.DurationMS = time.Since(began).Milliseconds()
	if st := cmd.ProcessState; st != nil {
		out.ExitCode = st.ExitCode()
		if ws, ok := st.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			out.ExitCode = 128 + int(ws.Signal())
		}
	}
	var ee *exec.ExitError
	switch {
	case ctx.Err() == context.DeadlineExceeded:
		return out, fmt.Sprintf("stopped after %s", p.timeout)
	case ctx.Err() != nil:
		return out, "cancelled: who asked for it has gone"
	case errors.Is(err, exec.ErrWaitDelay):
		return out, "it left a process behind that still holds its output"
	case err != nil && !errors.As(err, &ee):
		out.Stderr = startReason(err)
		return out, "could not be started: " + startReason(err)
	}
	return out, ""
}

// lookUp finds a program in the PATH of the command's own environment, which may differ
// from this process'.
func lookUp(name string, env []string) (string, error) {
	if strings.ContainsRune(name, '/') {
		return name, nil
	}
	var dirs string
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			dirs = v // the last one counts
		}
	}
	for _, dir := range filepath.SplitList(dirs) {
		p := filepath.Join(dir, name)
		if info, err := os.Stat(p); err == nil && filepath.IsAbs(p) && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return p, nil
		}
	}
	return "", fmt.Errorf("%s: no such program in %s", name, dirs)
}

func startReason(err error) string {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return fmt.Sprintf("%s: %v", pe.Path, pe.Err)
	}
	return err.Error()
}

// describe shows a finished command to a model.
func describe(c contract.Command, why string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "exit code %d", c.ExitCode)
	if why != "" {
		fmt.Fprintf(&out, " (%s)", why)
	}
	out.WriteByte('\n')
	room := MaxOutput - 256
	if c.Stderr != "" {
		room /= 2
	}
	out.WriteString(harness.Clip(c.Stdout, room))
	if c.Stderr != "" {
		out.WriteString("\n[stderr]\n" + harness.Clip(c.Stderr, room))
	}
	return out.String()
}
