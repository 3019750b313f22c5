package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/guest/seal"
	"choir.dev/choiros/internal/process"
)

// ExecRequest is a command. Dir is absolute or relative to the box's root. HeadBytes and
// TailBytes, when either is set, limit each output stream: its first and last bytes are
// kept, and the rest is counted and left out.
type ExecRequest struct {
	Argv      []string          `json:"argv"`
	Dir       string            `json:"dir,omitempty"`
	Env       map[string]string `json:"env,omitempty"`
	TimeoutMS int64             `json:"timeout_ms,omitempty"`
	HeadBytes int64             `json:"head_bytes,omitempty"`
	TailBytes int64             `json:"tail_bytes,omitempty"`
	Stdin     bool              `json:"stdin,omitempty"` // input follows; otherwise /dev/null
}

// Exit is how a command ended. Code is 128+n if signal n ended it. If the command did not
// start, Refused says why.
type Exit struct {
	Code          int    `json:"code"`
	Refused       string `json:"refused,omitempty"`
	Signal        string `json:"signal,omitempty"`
	TimedOut      bool   `json:"timed_out,omitempty"`
	DurationMS    int64  `json:"duration_ms"`
	CPUMS         int64  `json:"cpu_ms"`
	MaxRSSBytes   int64  `json:"max_rss_bytes"`
	StdoutDropped int64  `json:"stdout_dropped,omitempty"`
	StderrDropped int64  `json:"stderr_dropped,omitempty"`
}

// maxKeep limits what is kept of each end of a stream. The number and length of a command's
// arguments are limited by the kernel only.
const maxKeep = 64 << 20

// Validate checks a request.
func (r ExecRequest) Validate() error {
	if len(r.Argv) == 0 || r.Argv[0] == "" {
		return errors.New("argv is empty")
	}
	for _, a := range r.Argv {
		if strings.IndexByte(a, 0) >= 0 {
			return errors.New("a word of argv holds a NUL byte")
		}
	}
	if strings.IndexByte(r.Dir, 0) >= 0 {
		return errors.New("dir holds a NUL byte")
	}
	for k, v := range r.Env {
		if !validVar(k, v) {
			return fmt.Errorf("env holds the name or value %.40q", k)
		}
	}
	if r.TimeoutMS < 0 || r.HeadBytes < 0 || r.TailBytes < 0 || r.HeadBytes > maxKeep || r.TailBytes > maxKeep {
		return errors.New("timeout_ms, head_bytes and tail_bytes must not be negative, and a stream keeps at most 64 MiB at each end")
	}
	return nil
}

// Runner starts commands in a box, for the guest itself and for services.
type Runner struct {
	Root string
	Env  map[string]string
}

// Streams are a command's streams; nil ones are /dev/null. Each writer is called from one
// goroutine.
type Streams struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Signals        <-chan syscall.Signal // sent to the command's process group, if a Client runs it
}

// Run runs a command to its end. If ctx ends first, everything that the command started and
// that can still be found is killed, and the error is ctx's. Where output was left out,
// there is a line that says so. Errors: fault.Invalid (for example, no such directory),
// fault.NotFound (no such command), fault.Denied (there is one, and it can't be run).
func (r Runner) Run(ctx context.Context, req ExecRequest, s Streams) (Exit, error) {
	return r.run(ctx, req, s.Stdin, gapText{s.Stdout}, gapText{s.Stderr}, nil)
}

// sink takes a stream's bytes, and the sizes of gaps in it.
type sink interface {
	write(p []byte) error
	gap(n int64) error
}

type gapText struct{ w io.Writer }

func (g gapText) write(p []byte) error {
	if g.w == nil {
		return nil
	}
	_, err := g.w.Write(p)
	return err
}

func (g gapText) gap(n int64) error { return g.write([]byte(GapLine(n))) }

// GapLine is the line in an output from which n bytes were left out.
func GapLine(n int64) string { return fmt.Sprintf("\n[… %d bytes left out …]\n", n) }

func (r Runner) command(req ExecRequest) (*exec.Cmd, error) {
	const op = "guest.Exec"
	if err := req.Validate(); err != nil {
		return nil, fault.New(op, fault.Invalid, "", err)
	}
	dir := r.dir(req.Dir)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, fault.New(op, fault.Invalid, "", fmt.Errorf("no directory %s in the box", dir))
	}
	env := flatten(r.Env, req.Env)
	if defence.Off(defence.GuestEnvironment) {
		env = append(os.Environ(), env...)
	}
	path, err := lookPath(req.Argv[0], dir, env)
	if errors.Is(err, fs.ErrPermission) {
		return nil, fault.New(op, fault.Denied, "", err)
	}
	if err != nil {
		return nil, fault.New(op, fault.NotFound, "", err)
	}
	return &exec.Cmd{Path: path, Args: req.Argv, Dir: dir, Env: env}, nil
}

func (r Runner) dir(dir string) string {
	if dir == "" {
		return r.Root
	}
	if !filepath.IsAbs(dir) {
		return filepath.Join(r.Root, dir)
	}
	return filepath.Clean(dir)
}

// lookPath is exec.LookPath with the environment of another process.
func lookPath(name, dir string, env []string) (string, error) {
	usable := func(p string) error {
		info, err := os.Stat(p)
		if err != nil {
			return err
		}
		if info.IsDir() || info.Mode()&0o111 == 0 {
			return fs.ErrPermission
		}
		return nil
	}
	if strings.Contains(name, "/") {
		p := name
		if !filepath.IsAbs(p) {
			p = filepath.Join(dir, p)
		}
		if err := usable(p); err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		return p, nil
	}
	for _, kv := range env {
		if list, ok := strings.CutPrefix(kv, "PATH="); ok {
			for _, d := range filepath.SplitList(list) {
				p := filepath.Join(d, name)
				if !filepath.IsAbs(p) {
					p = filepath.Join(dir, p)
				}
				if usable(p) == nil {
					return p, nil
				}
			}
		}
	}
	return "", fmt.Errorf("%s: command not found", name)
}

// notStarted is the error for a program that exists and that the kernel does not run: for
// example, its arguments are too long, or its interpreter is missing.
func notStarted(req ExecRequest, err error) error {
	var of *os.PathError
	if errors.As(err, &of) {
		err = of.Err
	}
	return fault.New("guest.Exec", fault.Denied, "", fmt.Errorf("%s: %w", req.Argv[0], err))
}

func (r Runner) run(ctx context.Context, req ExecRequest, stdin io.Reader, stdout, stderr sink, started func(pid int)) (Exit, error) {
	cmd, err := r.command(req)
	if err != nil {
		return Exit{}, err
	}
	// It gets a session of its own: a group to signal, and no terminal to take over.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var in *os.File
	if req.Stdin && stdin != nil {
		pr, pw, err := os.Pipe()
		if err != nil {
			return Exit{}, fault.Wrap("guest.Exec", err)
		}
		defer pr.Close()
		cmd.Stdin, in = pr, pw
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return Exit{}, fault.Wrap("guest.Exec", err)
	}
	defer outR.Close()
	errR, errW, err := os.Pipe()
	if err != nil {
		_ = outW.Close()
		return Exit{}, fault.Wrap("guest.Exec", err)
	}
	defer errR.Close()
	cmd.Stdout, cmd.Stderr = outW, errW
	begin := time.Now()
	err = cmd.Start()
	_ = outW.Close()
	_ = errW.Close()
	if err != nil {
		if in != nil {
			_ = in.Close()
		}
		return Exit{}, notStarted(req, err)
	}
	preferOOM(cmd.Process.Pid)
	if started != nil {
		started(cmd.Process.Pid)
	}
	var input sync.WaitGroup
	if in != nil {
		_ = cmd.Stdin.(*os.File).Close()
		input.Go(func() {
			_, _ = io.Copy(in, stdin) // ends when the command closes its input, or with stdin
			_ = in.Close()
		})
	}
	out := newLimiter(stdout, req.HeadBytes, req.TailBytes)
	eout := newLimiter(stderr, req.HeadBytes, req.TailBytes)
	exited := make(chan struct{})
	var pumps sync.WaitGroup
	pumps.Go(func() { out.err = pump(outR, out, exited) })
	pumps.Go(func() { eout.err = pump(errR, eout, exited) })

	exit, err := wait(ctx, cmd, time.Duration(req.TimeoutMS)*time.Millisecond, begin)
	close(exited)
	setDeadline := func(d time.Duration) {
		_ = outR.SetReadDeadline(time.Now().Add(d))
		_ = errR.SetReadDeadline(time.Now().Add(d))
	}
	// Processes that the command left behind may keep its streams open forever.
	setDeadline(drainGrace)
	pumps.Wait()
	if in != nil {
		_ = in.Close()
	}
	exit.StdoutDropped, exit.StderrDropped = out.dropped(), eout.dropped()
	if err == nil {
		err = errors.Join(out.finish(), eout.finish())
	}
	if err == nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return exit, fault.Wrap("guest.Exec", err)
}

// drainGrace is how long output is still read after the command itself has ended while
// another process keeps the stream open.
const drainGrace = 150 * time.Millisecond

// wait waits for the command, its time limit or ctx.
func wait(ctx context.Context, cmd *exec.Cmd, limit time.Duration, begin time.Time) (Exit, error) {
	done := make(chan error, 1)
	go func() {
		process.Await(cmd.Process)
		done <- cmd.Wait()
	}()
	var timeout <-chan struct{}
	if limit > 0 {
		over := make(chan struct{})
		timer := awake.AfterFunc(limit, func() { close(over) })
		defer timer.Stop()
		timeout = over
	}
	var exit Exit
	var err error
	select {
	case err = <-done:
	case <-timeout:
		exit.TimedOut = true
		killTree(cmd.Process.Pid)
		err = <-done
	case <-ctx.Done():
		killTree(cmd.Process.Pid)
		<-done
		err = ctx.Err()
	}
	exit.DurationMS = time.Since(begin).Milliseconds()
	state := cmd.ProcessState
	if state == nil {
		return exit, fmt.Errorf("wait for the command: %w", err)
	}
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
		exit.MaxRSSBytes = usage.Maxrss << 10
	}
	exit.CPUMS = (state.UserTime() + state.SystemTime()).Milliseconds()
	status := state.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		exit.Code = 128 + int(status.Signal())
		exit.Signal = unix.SignalName(status.Signal())
	} else {
		exit.Code = status.ExitStatus()
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return exit, err
	}
	return exit, nil
}

// pump copies r to l until its end. After exited is closed it stops at the reader's
// deadline, but not before it has read what was in the pipe by then.
func pump(r *os.File, l *limiter, exited <-chan struct{}) error {
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if werr := l.write(buf[:n]); werr != nil {
				return werr
			}
		}
		switch {
		case err == nil:
			continue
		case errors.Is(err, os.ErrDeadlineExceeded):
			return drain(r, l, buf)
		default: // the end of the stream, or it was closed
			return nil
		}
	}
}

// drain reads what is in the pipe now, at most as much as a pipe holds by default.
func drain(r *os.File, l *limiter, buf []byte) error {
	raw, err := r.SyscallConn()
	if err != nil {
		return err
	}
	var werr error
	err = raw.Control(func(fd uintptr) {
		for left := 64 << 10; left > 0; {
			n, err := syscall.Read(int(fd), buf[:min(len(buf), left)])
			if n <= 0 || err != nil {
				return // empty (EAGAIN), or the end
			}
			left -= n
			if werr = l.write(buf[:n]); werr != nil {
				return
			}
		}
	})
	return errors.Join(err, werr)
}

// preferOOM makes the kernel kill a command before the guest when memory runs out. It is
// not a protection: if it fails, nothing else changes.
func preferOOM(pid int) {
	name := strconv.Itoa(pid) + "/oom_score_adj"
	if seal.Proc < 0 {
		_ = os.WriteFile("/proc/"+name, []byte("500"), 0)
		return
	}
	fd, err := unix.Openat(seal.Proc, name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	_, _ = unix.Write(fd, []byte("500"))
	_ = unix.Close(fd)
}
