package control

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

func (s *Server) routeExec(hapi huma.API) {
	streamed(hapi, s, rpc.ExecHTTP, "application/x-ndjson", "application/vnd.choir.frames", s.exec)
}

func (s *Server) exec(w http.ResponseWriter, r *http.Request, cid contract.CID, in *rpc.Of) error {
	in2 := bufio.NewReaderSize(r.Body, 32<<10)
	line, err := readLine(in2, view.MaxExecRequest)
	if err != nil {
		return err
	}
	var req view.ExecRequest
	if err := contract.DecodeStrict(line, view.MaxExecRequest, &req); err != nil {
		if contract.AsFieldError(err) != nil {
			return err
		}
		return &contract.FieldError{Field: "body", Reason: err.Error()}
	}
	if req, err = req.Valid(); err != nil {
		return err
	}
	c, err := s.o.Computers.Get(r.Context(), cid)
	if err != nil {
		return err
	}
	req.By = callerOf(r.Context()).actor()
	ctx, release := context.WithCancel(r.Context())
	defer release()
	rc := http.NewResponseController(w)
	if err := rc.EnableFullDuplex(); err != nil {
		return err
	}
	out := &frames{w: deadlined{w, rc}, rc: rc, cancel: release}
	cio := view.ExecIO{
		Stdout: &frameWriter{out, view.FrameStdout}, Stderr: &frameWriter{out, view.FrameStderr},
		Started: func(command string, sequence uint64) {
			out.json(view.FrameStarted, view.Started{Command: command, Sequence: sequence})
		},
	}
	if req.Stdin {
		patient(r)
		stdin := &hungUp{in2, release}
		cio.Stdin = stdin
	} else if _, err := in2.ReadByte(); !errors.Is(err, io.EOF) {
		// Reading to the end is also what lets the server notice a client that leaves.
		return &contract.FieldError{Field: "stdin", Reason: "is false, but the body goes on"}
	}
	w.Header().Set("Content-Type", "application/vnd.choir.frames")
	stop := make(chan struct{})
	var alive sync.WaitGroup
	alive.Go(func() {
		t := time.NewTicker(aliveEvery / 3)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				out.frame(view.FrameAlive, nil)
			case <-stop:
				return
			}
		}
	})
	exit, err := c.Exec(ctx, req, cio)
	close(stop)
	alive.Wait()
	if err != nil {
		if !out.began() {
			return err
		}
		out.json(view.FrameFailed, problemOf(s.log, "exec-run", err).Refusal)
	} else {
		out.json(view.FrameExited, exit)
	}
	return out.err()
}

// readLine reads up to a newline, at most max bytes.
func readLine(r *bufio.Reader, max int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > max:
			return nil, refusal(http.StatusRequestEntityTooLarge, fault.Exhausted, "the request line is too long", "")
		case err == nil:
			return line, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil
		default:
			return nil, &contract.FieldError{Field: "body", Reason: "must begin with one line of JSON"}
		}
	}
}

// hungUp ends the command when the client goes away in the middle of its
// standard input: until that is read to the end the server can't notice.
type hungUp struct {
	r    io.Reader
	gone func()
}

func (h *hungUp) Read(p []byte) (int, error) {
	n, err := h.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		h.gone()
	}
	return n, err
}

// frames writes one side of the exec stream; a failed write ends the command.
type frames struct {
	mu     sync.Mutex
	w      io.Writer
	rc     *http.ResponseController
	cancel func()
	sent   bool
	failed error
}

func (f *frames) frame(kind view.FrameKind, payload []byte) {
	f.do(func() error { return view.WriteFrame(f.w, kind, payload) })
}

func (f *frames) json(kind view.FrameKind, v any) {
	f.do(func() error { return view.WriteJSONFrame(f.w, kind, v) })
}

func (f *frames) do(write func() error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed != nil {
		return
	}
	f.sent = true
	if f.failed = write(); f.failed == nil {
		f.failed = f.rc.Flush()
	}
	if f.failed != nil {
		f.cancel()
	}
}

func (f *frames) began() bool { f.mu.Lock(); defer f.mu.Unlock(); return f.sent }
func (f *frames) err() error  { f.mu.Lock(); defer f.mu.Unlock(); return f.failed }

type frameWriter struct {
	f    *frames
	kind view.FrameKind
}

func (w *frameWriter) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	w.f.frame(w.kind, p)
	if err := w.f.err(); err != nil {
		return 0, err
	}
	return len(p), nil
}
