// Package choirtest runs the real binary for tests: `choir up` on a data
// directory of its own, and the command line against it.
package choirtest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Binary returns the path of bin/choir, which `make build` makes. It fails the test if there is
// none.
func Binary(t testing.TB) string {
	t.Helper()
	path := filepath.Join(Root(), "bin", "choir")
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: run `make build` first", err)
	}
	return path
}

// Root returns the repository's root.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}

// Options are the options of Start.
type Options struct {
	Data string   // data directory; empty: a new one in Scratch
	Env  []string // added to a minimal environment
	Args []string // added to `choir up`
	// Binary is another binary than bin/choir.
	Binary string
	// User is the user as whom choir runs; 0 means the test's own. Only root can choose another
	// one.
	User uint32
	// Stopped is for tests of a choir up that can't open its data, says so, and keeps running for
	// that. For other tests this is a refusal, and choir is ended.
	Stopped bool
}

// Instance is a running control plane.
type Instance struct {
	URL      string `json:"url"`
	ClaimURL string `json:"claim_url"`
	Token    string `json:"token"`
	PID      int    `json:"pid"`
	Data     string `json:"data"`
	// Stopped says why it is not up, or is nil.
	Stopped *Stopped `json:"stopped"`

	cmd    *exec.Cmd
	binary string
	done   chan struct{}
	logs   *tail
}

// Stopped is what choir up says when it can't open its data.
type Stopped struct{ Code, Detail, Hint string }

// Start starts `choir up` and waits until its computers are awake. It is stopped when the test
// ends, and its logs are printed if the test failed.
func Start(t testing.TB, opts Options) *Instance {
	t.Helper()
	in, err := TryStart(t, opts)
	if err != nil {
		t.Fatal(err)
	}
	if res, err := in.Run(t.Context(), "events", "--limit", "1"); err != nil || res.Code != 0 {
		t.Fatalf("the computer does not wake: %v, %s", err, res.Stderr)
	}
	return in
}

// TryStart is Start for tests that expect a refusal, with stderr in the error. It waits only until
// the control plane answers.
func TryStart(t testing.TB, opts Options) (*Instance, error) {
	t.Helper()
	if opts.Data == "" {
		opts.Data = filepath.Join(Scratch(t), "data")
	}
	in, line, err := begin(t, opts)
	if err != nil {
		return nil, err
	}
	select {
	case b := <-line:
		if err := json.Unmarshal(b, in); err != nil {
			<-in.done
			return nil, fmt.Errorf("choir up did not come up (exit code %d): %s", in.cmd.ProcessState.ExitCode(), in.logs)
		}
		if in.Stopped != nil && !opts.Stopped {
			in.Stop(t)
			return nil, fmt.Errorf("choir up can't open what is stored: %s", in.logs)
		}
		return in, nil
	case <-time.After(90 * time.Second):
		return nil, fmt.Errorf("choir up was not healthy after 90 s: %s", in.logs)
	}
}

// KillStarting begins to start `choir up` on a data directory and kills it after so long, whatever it has come to, or when by is
// closed. It reports whether it had come up, and fails the test if choir up ended by itself.
func KillStarting(t testing.TB, opts Options, after time.Duration, by <-chan struct{}) (up bool) {
	t.Helper()
	in, line, err := begin(t, opts)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-in.done:
	case <-by:
	case <-time.After(after):
	}
	if in.Kill(); !in.Killed() {
		t.Fatalf("choir up ended before it was killed: %s", in.logs)
	}
	return len(<-line) > 0
}

// begin starts the process, and returns the first line that it prints when it has come up.
func begin(t testing.TB, opts Options) (*Instance, <-chan []byte, error) {
	t.Helper()
	NotInBox(t, "namespace for the boxes that choir up opens")
	if err := shareModules(opts.Data); err != nil {
		return nil, nil, err
	}
	if opts.Binary == "" {
		opts.Binary = Binary(t)
	}
	in := &Instance{binary: opts.Binary, done: make(chan struct{}), logs: &tail{max: 256 << 10}}
	args := append([]string{"up", "--data", opts.Data, "--listen", "127.0.0.1:0", "--no-open", "--json"}, opts.Args...)
	in.cmd = exec.Command(in.binary, args...)
	in.cmd.Env = append(environ(), opts.Env...)
	in.cmd.Stderr = in.logs
	if opts.User != 0 {
		if out, err := exec.Command("chown", "-R", fmt.Sprintf("%d:%[1]d", opts.User), opts.Data).CombinedOutput(); err != nil {
			return nil, nil, fmt.Errorf("chown: %w %s", err, out)
		}
		in.cmd.Env = append(in.cmd.Env, "HOME="+opts.Data)
		in.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: opts.User, Gid: opts.User}}
	}
	out, err := in.cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := in.cmd.Start(); err != nil {
		return nil, nil, err
	}
	line := make(chan []byte, 1)
	go func() {
		r := bufio.NewReader(out)
		b, _ := r.ReadBytes('\n')
		line <- b
		_, _ = r.WriteTo(in.logs)
		_ = in.cmd.Wait()
		close(in.done)
	}()
	t.Cleanup(func() {
		in.Stop(t)
		if t.Failed() {
			t.Logf("choir up said:\n%s", in.logs.String())
		}
	})
	return in, line, nil
}

// environ is the part of the machine's environment that our processes need: without model keys,
// CHOIR_ variables and proxies.
func environ() []string {
	var out []string
	for _, kv := range os.Environ() {
		switch name, _, _ := strings.Cut(kv, "="); name {
		case "PATH", "HOME", "LANG", "TMPDIR", "GOPATH", "GOMODCACHE", "GOCACHE":
			out = append(out, kv)
		}
	}
	return out
}

// GoneOn waits until an instance that could not open its data is up, and stores its address.
func (in *Instance) GoneOn(t testing.TB) {
	t.Helper()
	Eventually(t, 30*time.Second, "choir up goes on by itself", func() bool {
		for line := range strings.Lines(in.logs.String()) {
			if up := *in; strings.HasPrefix(line, "{") && strings.HasSuffix(line, "\n") {
				up.Stopped = nil
				if json.Unmarshal([]byte(line), &up) == nil && up.Token != "" {
					in.URL, in.ClaimURL, in.Token, in.Stopped = up.URL, up.ClaimURL, up.Token, nil
					return true
				}
			}
		}
		return false
	})
}

// Stop ends the control plane in an orderly way and waits for it.
func (in *Instance) Stop(t testing.TB) {
	t.Helper()
	select {
	case <-in.done:
		return
	default:
	}
	_ = in.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-in.done:
	case <-time.After(30 * time.Second):
		t.Errorf("choir up did not stop within 30 s of SIGTERM")
		_ = in.cmd.Process.Signal(syscall.SIGQUIT)
		select {
		case <-in.done:
		case <-time.After(5 * time.Second):
			in.Kill()
		}
	}
}

// Kill ends the control plane with SIGKILL and waits for it.
func (in *Instance) Kill() {
	_ = in.cmd.Process.Kill()
	<-in.done
}

// Killed reports whether the control plane has ended and was ended by SIGKILL.
func (in *Instance) Killed() bool {
	select {
	case <-in.done:
		status, ok := in.cmd.ProcessState.Sys().(syscall.WaitStatus)
		return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
	default:
		return false
	}
}

// Done is closed when the control plane ended.
func (in *Instance) Done() <-chan struct{} { return in.done }

// Logs returns the last part of what the control plane wrote to stderr.
func (in *Instance) Logs() string { return in.logs.String() }

// Result is the result of one command of the command line.
type Result struct {
	Stdout, Stderr string
	Code           int
}

// Run runs `choir ARGS` against the instance.
func (in *Instance) Run(ctx context.Context, args ...string) (Result, error) {
	return in.RunInput(ctx, nil, args...)
}

// RunInput is Run with something on standard input.
func (in *Instance) RunInput(ctx context.Context, stdin []byte, args ...string) (Result, error) {
	cmd := exec.CommandContext(ctx, in.binary, args...)
	cmd.Env = append(environ(), "CHOIR_URL="+in.URL, "CHOIR_TOKEN="+in.Token)
	cmd.Stdin = bytes.NewReader(stdin)
	var out, errb bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errb
	err := cmd.Run()
	r := Result{Stdout: out.String(), Stderr: errb.String(), Code: cmd.ProcessState.ExitCode()}
	var exit *exec.ExitError
	if errors.As(err, &exit) && ctx.Err() == nil {
		err = nil
	}
	return r, err
}

// Must runs `choir ARGS`, fails the test unless it exits with 0, and returns
// its standard output.
func (in *Instance) Must(t testing.TB, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	r, err := in.Run(ctx, args...)
	if err != nil || r.Code != 0 {
		t.Fatalf("choir %s: code %d, %v\n%s%s", strings.Join(args, " "), r.Code, err, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

// JSON runs `choir ARGS --json` and decodes what it prints.
func (in *Instance) JSON(t testing.TB, v any, args ...string) {
	t.Helper()
	out := in.Must(t, append(args, "--json")...)
	if err := json.Unmarshal([]byte(out), v); err != nil {
		t.Fatalf("choir %s --json printed no JSON: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// Eventually polls until ok returns true, and fails the test after the deadline.
func Eventually(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(within)
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 200*time.Millisecond) {
		began := time.Now()
		if ok() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %v still not: %s", within, what)
		}
		// To look is a process often, which takes from what is waited for: a quarter of the time at most.
		time.Sleep(max(wait, min(3*time.Since(began), time.Second)))
	}
}

// tail keeps the last bytes written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
	max int
}

func (w *tail) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf = append(w.buf, p...)
	if n := len(w.buf) - w.max; n > 0 {
		w.buf = append(w.buf[:0], w.buf[n:]...)
	}
	return len(p), nil
}

func (w *tail) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.buf)
}
