package gateway

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/gateway/provider"
)

// outcome is the result of a call: message and stop if it succeeded, otherwise only what it
// consumed.
type outcome struct {
	message contract.Message
	stop    contract.StopReason
	usage   provider.Usage
	bytes   int // of text and arguments received
}

// An answer that has more bytes for each token that was asked for, and more beside, is longer than that. Few tokens are of
// so many bytes, and what is beside is for thoughts that are encrypted.
const (
	bytesPerToken = 32
	moreBytes     = 64 << 10
)

// once makes one request. shown says that part of the answer was passed on, so that another try
// would repeat it. progress is called when the model's answer grows.
func (c *call) once(ctx context.Context, t target, sent prepared, maxTokens int, red redactor, progress func()) (out outcome, shown bool, err error) {
	l := c.gateway.limits
	l.Output = min(l.Output, maxTokens*bytesPerToken+moreBytes) // a service that knows no end of its own spends no more
	ctx, cancel := awake.WithTimeoutCause(ctx, l.Wall, errWall)
	defer cancel()
	ctx, chosen := context.WithCancelCause(ctx)
	pulse, grows := &pulse{}, &growth{}
	sink := newCollector(l, red, c.reader.delta, t.provider, c.req)
	sink.progress = func() { pulse.beat(); grows.note(c.gateway.clock.Now()); progress() }
	var heeds sync.WaitGroup
	heeds.Go(func() { c.heed(ctx, chosen, grows) })
	defer heeds.Wait()
	defer chosen(nil)
	finish, err := t.impl.Stream(ctx, provider.Call{
		Role: c.scope.Role, Provider: t.provider, Model: t.model, Request: sent.request, MaxTokens: maxTokens,
		Abilities: t.info.abilities(), Dialect: t.dialect, Images: sent.pictures, Memo: c.gateway.said.memo(c.scope),
		Endpoint: provider.Endpoint{BaseURL: t.base, Key: t.key, Bearer: t.bearer, Region: t.region, HTTP: c.gateway.client(t.base, pulse)},
	}, sink)
	out = outcome{usage: finish.Usage, bytes: sink.size}
	wall := err != nil && context.Cause(ctx) == errWall
	if err != nil && context.Cause(ctx) == errChosen {
		return out, sink.shown, errChosen
	}
	cut := errors.Is(err, provider.ErrFull) || wall && sink.size > 0
	switch {
	case wall && !cut:
		return out, sink.shown, &provider.Error{Code: provider.CodeTimeout, Message: errWall.Error(), Retriable: true, Err: err}
	case err != nil && !cut:
		return out, sink.shown, err
	}
	switch {
	case cut || sink.dropped:
		out.stop = contract.StopTruncate
	case sink.calls > 0 && (finish.Stop == contract.StopEnd || finish.Stop == ""):
		out.stop = contract.StopToolUse
	case sink.calls == 0 && finish.Stop == contract.StopToolUse:
		out.stop = contract.StopEnd
	default:
		out.stop = cmp.Or(finish.Stop, contract.StopEnd) // who completes an answer without a reason is done
	}
	sink.cut = out.stop == contract.StopLength || cut
	out.message = sink.message()
	sink.flush()
	return out, sink.shown, nil
}
