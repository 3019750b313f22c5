package dispatch

import (
	"context"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch/look"
	"choir.dev/choiros/internal/dispatch/loops"
	"choir.dev/choiros/internal/dispatch/ports"
)

// directorBox is a Director's box and the API that it may call on the host.
type directorBox struct {
	loops.Opening
	cancel   context.CancelCauseFunc
	requests *loops.Gate
	api      *directorAPI
}

func (r *run) directorBox() *directorBox {
	o := r.dispatcher.options
	b := &directorBox{api: &directorAPI{run: r, eyes: look.New(look.Options{Boxes: o.Boxes, Workspace: o.Workspace, Logger: r.dispatcher.log, Run: r.story.ID, Times: o.Times, Go: r.Go})}}
	b.Ctx, b.cancel = context.WithCancelCause(r.ctx)
	b.requests = loops.NewGate(b.Ctx)
	b.Boxes, b.Kill = o.Boxes, r.kill
	b.Box = ports.BoxRequest{ID: loops.BoxID("d"), Kind: contract.BoxDirector, Run: r.story.ID, Handler: b.requests.Guard(b.api.handler())}
	return b
}

func (b *directorBox) close() {
	b.requests.Close(b.Opening.Close)
	b.api.eyes.Close()
	b.cancel(nil)
}
