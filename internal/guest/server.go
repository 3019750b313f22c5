package guest

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"

	"choir.dev/choiros/internal/crash"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/fault/httpstatus"
)

const maxRequest = 16 << 20 // the kernel accepts arguments of 2 MiB and more, which are longer as JSON

// server answers the host.
type server struct {
	spec     Spec
	runner   Runner
	services http.Handler
	fresh    string // the state when the box began
}

// ServeHTTP does not use http.ServeMux, which cleans paths: forwarded requests must keep
// theirs.
func (g *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch path := r.URL.Path; {
	case path == "/health":
		writeJSON(w, http.StatusOK, Health{Box: g.spec.Box, Kind: string(g.spec.Kind), Processes: len(processes())})
	case path == "/exec":
		g.exec(w, r)
	case path == "/pty":
		g.pty(w, r)
	case path == "/clear":
		g.clear(w, r)
	case path == "/signal":
		g.signal(w, r)
	case strings.HasPrefix(path, "/forward/"):
		g.forward(w, r)
	case strings.HasPrefix(path, "/files/"):
		g.files(w, r)
	case g.services != nil:
		g.services.ServeHTTP(w, r)
	default:
		writeError(w, fault.New("guest", fault.NotFound, "", fmt.Errorf("a %s box serves no %s", g.spec.Kind, path)))
	}
}

// Health is the answer of GET /health. Processes counts the guest too.
type Health struct {
	Box       string `json:"box"`
	Kind      string `json:"kind"`
	Processes int    `json:"processes"`
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // if the reader has gone, the answer is cut off
}

// Problem is the body of an answer that is an error.
type Problem struct {
	Code    fault.Code `json:"code"`
	Message string     `json:"message"`
	Hint    string     `json:"hint,omitempty"`
}

// writeError answers with err as a Problem; Client turns it back into a fault.
func writeError(w http.ResponseWriter, err error) {
	code := fault.CodeOf(err)
	writeJSON(w, httpstatus.Of(code), Problem{Code: code, Message: fault.Answer(err), Hint: fault.HintOf(err)})
}

func decode(w http.ResponseWriter, r *http.Request, v any) error {
	if r.Method != http.MethodPost {
		return fault.New("guest", fault.Invalid, "", errors.New("use POST"))
	}
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fault.New("guest", fault.Invalid, "", fmt.Errorf("read the request: %w", err))
	}
	return nil
}

// upgrade takes the connection over for frames.
func upgrade(w http.ResponseWriter) (net.Conn, *bufio.Reader, error) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	_, err = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+upgradeName+"\r\n\r\n")
	if err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	return conn, rw.Reader, nil
}

// frames is one upgraded stream: a writer, and a reader that passes input on and cancels
// when the host disconnects.
type frames struct {
	conn net.Conn
	in   *bufio.Reader
	out  *frameWriter
}

// inbox takes the host's input and acknowledges what was read from it.
func (f *frames) inbox() *inbox {
	return newInbox(func(n int) {
		// If the host has gone, the acknowledgement fails, and read notices.
		_ = f.out.frame(frameTaken, binary.BigEndian.AppendUint32(nil, uint32(n)))
	})
}

type frameSink struct {
	frames        *frames
	data, gapKind byte
}

func (s frameSink) write(p []byte) error { return s.frames.out.frame(s.data, p) }
func (s frameSink) gap(n int64) error {
	return s.frames.out.frame(s.gapKind, binary.BigEndian.AppendUint64(nil, uint64(n)))
}

// read serves the host's frames until the stream ends.
func (f *frames) read(stdin *inbox, signal func(syscall.Signal), resize func(rows, cols uint16)) {
	buf := make([]byte, maxFrame)
	for {
		kind, p, err := readFrame(f.in, buf)
		if err != nil {
			return
		}
		switch {
		case kind == frameStdin && len(p) == 0:
			stdin.close()
		case kind == frameStdin:
			if !stdin.put(p) {
				return
			}
		case kind == frameSignal && len(p) == 1 && p[0] >= 1 && p[0] <= 64:
			signal(syscall.Signal(p[0]))
		case kind == frameResize && len(p) == 4 && resize != nil:
			resize(binary.BigEndian.Uint16(p), binary.BigEndian.Uint16(p[2:]))
		default:
			return
		}
	}
}

func (g *server) exec(w http.ResponseWriter, r *http.Request) {
	var req ExecRequest
	if err := decode(w, r, &req); err != nil {
		writeError(w, err)
		return
	}
	if _, err := g.runner.command(req); err != nil {
		writeError(w, err)
		return
	}
	conn, in, err := upgrade(w)
	if err != nil {
		return
	}
	defer conn.Close()
	f := &frames{conn: conn, in: in, out: &frameWriter{w: conn}}
	ctx, cancel := context.WithCancel(context.Background()) // the context of a hijacked request does not end with its stream
	defer cancel()

	stdin := f.inbox()
	pid := make(chan int, 1)
	var reader sync.WaitGroup
	reader.Go(func() {
		defer cancel()
		defer stdin.close()
		group := 0
		f.read(stdin, func(s syscall.Signal) {
			if group == 0 {
				select {
				case group = <-pid:
				case <-ctx.Done():
					return
				}
			}
			_ = syscall.Kill(-group, s)
		}, nil)
	})
	exit, err := g.runner.run(ctx, req, stdin, frameSink{f, frameStdout, frameOutGap}, frameSink{f, frameStderr, frameErrGap}, func(p int) {
		crash.At("command.started")
		pid <- p
	})
	switch {
	case err == nil:
		f.exit(exit)
	case fault.Is(err, fault.Denied):
		f.exit(Exit{Refused: fault.Text(err)})
	}
	_ = conn.SetReadDeadline(time.Unix(1, 0)) // wakes the reader
	reader.Wait()
}

func (f *frames) exit(exit Exit) {
	p, err := json.Marshal(exit)
	if err == nil {
		_ = f.out.frame(frameExit, p) // if the host has gone, nobody is left to be told
	}
}

// PTYRequest is a command on a terminal of its own.
type PTYRequest struct {
	Argv []string          `json:"argv"`
	Dir  string            `json:"dir,omitempty"`
	Env  map[string]string `json:"env,omitempty"`
	Rows uint16            `json:"rows"`
	Cols uint16            `json:"cols"`
}

func (g *server) pty(w http.ResponseWriter, r *http.Request) {
	var req PTYRequest
	if err := decode(w, r, &req); err != nil {
		writeError(w, err)
		return
	}
	env := map[string]string{"TERM": "xterm-256color", "COLORTERM": "truecolor"}
	for k, v := range req.Env {
		env[k] = v
	}
	cmd, err := g.runner.command(ExecRequest{Argv: req.Argv, Dir: req.Dir, Env: env})
	if err != nil {
		writeError(w, err)
		return
	}
	master, err := startPTY(cmd, req.Rows, req.Cols)
	if err != nil {
		writeError(w, notStarted(ExecRequest{Argv: req.Argv}, err))
		return
	}
	defer master.Close()
	begin := time.Now()
	conn, in, err := upgrade(w)
	if err != nil {
		killTree(cmd.Process.Pid)
		_ = cmd.Wait()
		return
	}
	defer conn.Close()
	f := &frames{conn: conn, in: in, out: &frameWriter{w: conn}}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var reader, input, output sync.WaitGroup
	typed := f.inbox()
	input.Go(func() { _, _ = io.Copy(master, typed) }) // ends with typed, or when the terminal is closed
	reader.Go(func() {
		defer cancel()
		defer typed.close()
		f.read(typed, func(s syscall.Signal) { _ = syscall.Kill(-cmd.Process.Pid, s) },
			func(rows, cols uint16) { _ = pty.Setsize(master, &pty.Winsize{Rows: rows, Cols: cols}) })
	})
	output.Go(func() {
		buf := make([]byte, 32<<10)
		for {
			n, err := master.Read(buf)
			if n > 0 && f.out.frame(frameStdout, buf[:n]) != nil {
				cancel()
				return
			}
			if err != nil {
				return // EIO: the last process on the terminal has ended
			}
		}
	})
	exit, err := wait(ctx, cmd, 0, begin)
	if err != nil { // the host hung up
		_ = master.Close()
	} else {
		_ = master.SetReadDeadline(time.Now().Add(drainGrace))
	}
	output.Wait()
	if err == nil {
		killTree(cmd.Process.Pid) // a closed terminal takes its jobs with it
		f.exit(exit)
	}
	_ = conn.SetReadDeadline(time.Unix(1, 0))
	reader.Wait()
	_ = master.Close()
	input.Wait()
}

func startPTY(cmd *exec.Cmd, rows, cols uint16) (*os.File, error) {
	if rows == 0 || cols == 0 {
		rows, cols = 24, 80
	}
	master, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: rows, Cols: cols})
	if err != nil {
		return nil, err
	}
	preferOOM(cmd.Process.Pid)
	return master, nil
}

// signal sends a signal to everything in the box but the guest.
func (g *server) signal(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Signal int `json:"signal"`
	}
	if err := decode(w, r, &req); err != nil {
		writeError(w, err)
		return
	}
	if req.Signal < 1 || req.Signal > 64 {
		writeError(w, fault.New("guest.Signal", fault.Invalid, "", fmt.Errorf("%d is no signal", req.Signal)))
		return
	}
	if err := syscall.Kill(-1, syscall.Signal(req.Signal)); err != nil && !errors.Is(err, syscall.ESRCH) {
		writeError(w, fault.Wrap("guest.Signal", err))
		return
	}
	writeJSON(w, http.StatusOK, struct{}{})
}
