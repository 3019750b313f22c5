package loops

import (
	"context"
	"log/slog"

	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/supervise"
)

// Opening is a box that is opened while something else is still being done. It is used by one goroutine,
// which must close it.
type Opening struct {
	Ctx   context.Context
	Boxes ports.Boxes
	Box   ports.BoxRequest
	Kill  func(ports.Box)
	begun bool
	done  chan struct{} // closed when box or err is set
	box   ports.Box
	err   error
}

// Begin starts opening the box. Nothing is sent to the box before Wait has returned it.
func (o *Opening) Begin() {
	if o.begun {
		return
	}
	o.begun, o.done = true, make(chan struct{})
	go func() { // ends with Open, which Close waits for
		defer close(o.done)
		o.err = supervise.Safely(func() (err error) { o.box, err = o.Boxes.Open(o.Ctx, o.Box); return err })
	}()
}

// Wait returns the box once it is open.
func (o *Opening) Wait() (ports.Box, error) {
	o.Begin()
	<-o.done
	return o.box, o.err
}

// Close ends the box if it was opened. It may be called more than once.
func (o *Opening) Close() {
	if !o.begun {
		return
	}
	if <-o.done; o.box != nil {
		o.Kill(o.box)
	}
}

// Kill ends a box of a run. No box may be left running, so a failure is logged as an error.
func Kill(logger *slog.Logger, run string, b ports.Box) {
	if err := b.Kill(); err != nil {
		logger.Error("a box could not be ended", "box", b.ID(), "run", run, "error", err)
	}
}
