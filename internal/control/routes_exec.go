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
	"choir.dev/choiros/internal/control/httpio"
	"choir.dev/choiros/internal/control/problem"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

func (s *Server) routeExec(hapi huma.API) {
	streamed(hapi, s, rpc.ExecHTTP, "application/x-ndjson", "application/vnd.choir.frames", s.exec)
}

func (s *Server) exec(w http.ResponseWriter, r *http.Request, cid contract.CID, in *rpc.Of) error {
	in2 := bufio.NewReaderSize(r.Body, 32<<10)
	line, err := httpio.ReadLine(in2, view.MaxExecRequest)
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
	c, err := s.options.Computers.Get(r.Context(), cid)
	if err != nil {
		return err
	}
	req.By = actorOf(r.Context())
	ctx, release := context.WithCancel(r.Context())
	defer release()
	if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
		return err
	}
	// What comes of the input once this has returned must not be taken for the next request.
	// net/http makes sure of that only where it reads the input before it sends the answer.
	w.Header().Set("Connection", "close")
	out := httpio.NewFrames(w, release)
	cio := view.ExecIO{
		Stdout: out.Writer(view.FrameStdout), Stderr: out.Writer(view.FrameStderr),
		Started: func(command string, sequence uint64) {
			out.JSON(view.FrameStarted, view.Started{Command: command, Sequence: sequence})
		},
	}
	if req.Stdin {
		httpio.Patient(r)
		stdin := httpio.WhileConnected(in2, release)
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
				out.Frame(view.FrameAlive, nil)
			case <-stop:
				return
			}
		}
	})
	exit, err := c.Exec(ctx, req, cio)
	close(stop)
	alive.Wait()
	if err != nil {
		if !out.Began() {
			return err
		}
		out.JSON(view.FrameFailed, problem.Of(s.log, "exec-run", err).Refusal)
	} else {
		out.JSON(view.FrameExited, exit)
	}
	return out.Err()
}
