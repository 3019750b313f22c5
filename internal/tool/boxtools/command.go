package boxtools

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/harness"
)

const defaultCommandTime = 120 * time.Second

type bashArgs struct {
	Command  string `json:"command"`
	Cwd      string `json:"cwd"`
	TimeoutS int    `json:"timeout_s"`
}

func (b *Box) bash(ctx context.Context, a bashArgs) (Result, error) {
	return b.command(ctx, []string{"bash", "-c", a.Command}, a.Cwd, a.TimeoutS)
}

type runArgs struct {
	Argv     []string `json:"argv"`
	Cwd      string   `json:"cwd"`
	TimeoutS int      `json:"timeout_s"`
}

func (b *Box) run(ctx context.Context, a runArgs) (Result, error) {
	if a.TimeoutS == 0 {
		a.TimeoutS = 24 * 3600 // whoever runs steps bounds their time
	}
	return b.command(ctx, a.Argv, a.Cwd, a.TimeoutS)
}

func (b *Box) command(ctx context.Context, argv []string, cwd string, timeoutS int) (Result, error) {
	if cwd == "" {
		cwd = "."
	}
	dir, err := b.clean(cwd)
	if err != nil {
		return Result{}, err
	}
	info, err := b.root.Stat(dir) // refuses a symlink that leads outside
	if err != nil {
		return Result{}, err
	}
	if !info.IsDir() {
		return Result{}, refuse("%s is not a folder", dir)
	}
	timeout := defaultCommandTime
	if timeoutS > 0 {
		timeout = time.Duration(timeoutS) * time.Second
	}
	cmd, why := b.exec(ctx, argv, filepath.Join(b.dir, dir), nil, timeout)
	return Result{OK: true, Output: describe(cmd, why), Truncated: cmd.Truncated, Command: &cmd}, nil
}

// exec runs argv in a process group of its own, which is killed as a whole when the time is
// up. why says what else than itself ended it, or "".
func (b *Box) exec(ctx context.Context, argv []string, dir string, stdin io.Reader, timeout time.Duration, env ...string) (contract.Command, string) {
	return b.execTo(ctx, argv, dir, stdin, func(w io.Writer) io.Writer { return w }, timeout, env...)
}

// execTo is exec with a filter between the command's output and what is kept of it.
func (b *Box) execTo(ctx context.Context, argv []string, dir string, stdin io.Reader, between func(io.Writer) io.Writer, timeout time.Duration, env ...string) (contract.Command, string) {
	ctx, cancel := awake.WithTimeout(ctx, timeout)
	defer cancel()
	out := contract.Command{Argv: argv, ExitCode: -1}
	var stdout, stderr headTail
	full := append(append([]string(nil), b.env...), env...)
	program, err := lookUp(argv[0], full)
	if err != nil {
		out.Stderr = err.Error()
		return out, "could not be started: " + err.Error()
	}
	cmd := exec.CommandContext(ctx, program, argv[1:]...)
	cmd.Args[0] = argv[0]
	cmd.Dir, cmd.Env = dir, full
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, between(&stdout), &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	// A child that was left behind may hold the pipes open; what it writes later does not
	// belong to this command.
	cmd.WaitDelay = 2 * time.Second
	began := time.Now()
	err = cmd.Run()
	out.DurationMS = time.Since(began).Milliseconds()
	out.Stdout, out.Stderr = stdout.String(), stderr.String()
	out.Truncated = stdout.cut() || stderr.cut()
	if st := cmd.ProcessState; st != nil {
		out.ExitCode = st.ExitCode()
		if ws, ok := st.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			out.ExitCode = 128 + int(ws.Signal())
		}
	}
	var ee *exec.ExitError
	switch {
	case ctx.Err() == context.DeadlineExceeded:
		return out, fmt.Sprintf("stopped after %s", timeout)
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

// headTail keeps the beginning and the end of a stream of any length.
type headTail struct {
	head []byte
	tail []byte // ring
	next int
	n    int64
}

const half = maxStream / 2

func (h *headTail) Write(p []byte) (int, error) {
	h.n += int64(len(p))
	q := p
	if room := half - len(h.head); room > 0 {
		k := min(room, len(q))
		h.head, q = append(h.head, q[:k]...), q[k:]
	}
	if len(q) > half {
		q = q[len(q)-half:]
	}
	for len(q) > 0 {
		if len(h.tail) < half {
			k := min(half-len(h.tail), len(q))
			h.tail, q = append(h.tail, q[:k]...), q[k:]
			continue
		}
		k := copy(h.tail[h.next:], q)
		h.next, q = (h.next+k)%half, q[k:]
	}
	return len(p), nil
}

func (h *headTail) cut() bool { return h.n > int64(len(h.head)+len(h.tail)) }

func (h *headTail) String() string {
	tail := string(h.tail[h.next:]) + string(h.tail[:h.next])
	s := string(h.head) + tail
	if h.cut() {
		s = fmt.Sprintf("%s\n[… %d bytes left out …]\n%s", h.head, h.n-int64(len(h.head)+len(h.tail)), tail)
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
