package dispatch

import (
	"context"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch/loops"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/supervise"
)

// opening is a box that is opened while something else is still being done. It is used by one goroutine,
// which must close it.
type opening struct {
	run   *run
	ctx   context.Context
	req   ports.BoxRequest
	begun bool
	done  chan struct{} // closed when box or err is set
	box   ports.Box
	err   error
}

// begin starts opening the box. Nothing is sent to the box before wait has returned it.
func (o *opening) begin() {
	if o.begun {
		return
	}
	o.begun, o.done = true, make(chan struct{})
	go func() { // ends with Open, which close waits for
		defer close(o.done)
		o.err = supervise.Safely(func() (err error) { o.box, err = o.run.dispatcher.options.Boxes.Open(o.ctx, o.req); return err })
	}()
}

// wait returns the box once it is open.
func (o *opening) wait() (ports.Box, error) {
	o.begin()
	<-o.done
	return o.box, o.err
}

// close ends the box if it was opened. It may be called more than once.
func (o *opening) close() {
	if !o.begun {
		return
	}
	if <-o.done; o.box != nil {
		o.run.kill(o.box)
	}
}

// openLoop begins to open the box of the attempt's loop while the attempt's tree is made. If the attempt
// may have to wait for a person's approval, the box is opened later, so that none is held meanwhile.
func (a *attempt) openLoop(ctx context.Context) *opening {
	a.fence = newFence()
	o := &opening{run: a.run, ctx: ctx, req: ports.BoxRequest{ID: boxID("a"), Kind: contract.BoxAssociate, Run: a.ref.Run, Task: a.ref.Task,
		Handler: a.requests.Guard(a.handler())}}
	if a.task.Egress.Profile != contract.EgressCustom {
		o.begin()
	}
	return o
}

// directorBox is a Director's box and the API that it may call on the host.
type directorBox struct {
	opening
	cancel   context.CancelCauseFunc
	requests *loops.Gate
	api      *directorAPI
}

func (r *run) directorBox() *directorBox {
	b := &directorBox{api: &directorAPI{run: r}}
	b.run = r
	b.ctx, b.cancel = context.WithCancelCause(r.ctx)
	b.requests = loops.NewGate(b.ctx)
	b.req = ports.BoxRequest{ID: boxID("d"), Kind: contract.BoxDirector, Run: r.story.ID, Handler: b.requests.Guard(b.api.handler())}
	return b
}

func (b *directorBox) close() {
	b.requests.Close(b.opening.close)
	b.cancel(nil)
}
