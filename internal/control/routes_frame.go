package control

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/control/httpio"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

// frameSettle is how long changes are gathered before the frame is sent again. The frame is the console's
// description of a computer: its state, runs and desktop.
const (
	frameSettle  = 100 * time.Millisecond
	lookStarting = 300 * time.Millisecond
	lookSteady   = 5 * time.Second

	// frameAlive is how often a frame's stream shows that it is still open. It sends an event, because a
	// page does not see the comments of an event stream.
	frameAlive = 5 * time.Second
)

// lookEvery is how soon the frame is read again without an event: no event tells that a dev server is
// ready or that a desktop works again.
func lookEvery(f view.Frame) time.Duration {
	if f.Desktop.Mode == view.ModeStarting || f.Desktop.Broken {
		return lookStarting
	}
	return lookSteady
}

func (s *Server) routeFrame(hapi huma.API) {
	streamed(hapi, s, rpc.FrameStream, "", "text/event-stream", s.streamFrame)
}

func (s *Server) frame(ctx context.Context, c Computer) (view.Frame, error) {
	f, err := c.Frame(ctx)
	if err != nil {
		return view.Frame{}, err
	}
	if f.Running == nil {
		f.Running = []view.Run{}
	}
	if f.Commands == nil {
		f.Commands = []view.RunningCommand{}
	}
	if f.Waiting == nil {
		f.Waiting = []view.Waiting{}
	}
	f.Computer, err = s.info(ctx, c)
	f.Limited = s.quota.Refused(f.Computer.ID)
	if f.Desktop.Broken {
		f.Computer.State = view.StateBroken
	}
	return f, err
}

// moves reports whether an event may change what the frame shows.
func moves(e contract.Event) bool {
	switch e.Type {
	case "usage.metered", "checkpoint.created", "checkpoint.restored", "question.asked", "question.answered", "prompt.submitted":
		return true
	}
	for _, prefix := range []string{"run.", "computer.", "desktop.", "command.", "approval.", "review.", "effect."} {
		if strings.HasPrefix(e.Type, prefix) {
			return true
		}
	}
	return false
}

// watchFrame signals on changed when the frame may have changed: at once, after events that may change
// it, and whenever refresh is called, until ctx ends. failed receives the error that ended the following of
// events and is closed when that has ended.
func watchFrame(ctx context.Context, c Computer) (changed <-chan struct{}, refresh func(), failed <-chan error) {
	changes, errs := make(chan struct{}, 1), make(chan error, 1)
	refresh = func() {
		select {
		case changes <- struct{}{}:
		default:
		}
	}
	refresh()
	after := c.Last()
	go func() {
		defer close(errs)
		for e, err := range c.Follow(ctx, after) {
			if err != nil {
				errs <- err
				return
			}
			if moves(e) {
				refresh()
			}
		}
	}()
	return changes, refresh, errs
}

func (s *Server) streamFrame(w http.ResponseWriter, r *http.Request, cid contract.CID, in *rpc.Of) error {
	c, err := s.options.Computers.Get(r.Context(), cid)
	if err != nil {
		return err
	}
	ctx, release := context.WithCancel(r.Context())
	defer release()
	defer c.AddViewer(ctx)()
	changed, refresh, failed := watchFrame(ctx, c)
	defer func() {
		release()
		for range failed { // until the goroutine has ended
		}
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	out := httpio.NewLines(w)
	alive := time.NewTicker(frameAlive)
	defer alive.Stop()
	look := time.NewTimer(lookStarting)
	defer look.Stop()
	last := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			if ctx.Err() != nil {
				return nil
			}
			return err
		case <-alive.C:
			if err := join(out.Write([]byte("event: alive\ndata: 1\n")), out.Flush()); err != nil {
				return err
			}
		case <-look.C:
			refresh()
		case <-changed:
			f, err := s.frame(ctx, c)
			if err != nil {
				return err
			}
			look.Reset(lookEvery(f))
			b, err := json.Marshal(f)
			if err != nil {
				return fmt.Errorf("encode frame: %w", err)
			}
			if string(b) != last {
				last = string(b)
				if err := join(out.Write([]byte("event: frame\ndata: "+last+"\n")), out.Flush()); err != nil {
					return err
				}
			}
			select {
			case <-time.After(frameSettle):
			case <-ctx.Done():
				return nil
			}
		}
	}
}
