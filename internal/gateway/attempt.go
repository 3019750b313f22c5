package gateway

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/gateway/provider"
)

// attempt is one call with its retries.
type attempt struct {
	gateway   *Gateway
	target    target
	req       contract.TurnRequest
	maxTokens int
	role      string
	red       redactor
	onDelta   func(string)
	retries   int
	until     time.Duration // the time by package awake's clock at which the call has used up its time
}

// outcome is the result of a call: message and stop if it succeeded, otherwise only what it
// consumed.
type outcome struct {
	message contract.Message
	stop    contract.StopReason
	usage   provider.Usage
	bytes   int // of text and arguments received
}

// run repeats the request until there is a turn, the error is one that a repetition does not help
// against, part of the answer has been passed on, or no attempts are left.
func (a *attempt) run(ctx context.Context) (outcome, error) {
	for {
		out, shown, err := a.once(ctx)
		if err == nil {
			return out, nil
		}
		var pe *provider.Error
		if !errors.As(err, &pe) || !pe.Retriable || shown || a.retries+1 >= a.gateway.limits.Attempts || ctx.Err() != nil {
			return out, err
		}
		pause := a.pause(pe)
		if pause > a.gateway.limits.MaxRetryGap {
			return out, err
		}
		if awake.Now()+pause > a.until {
			return out, err
		}
		if !awake.Pause(ctx, pause) {
			return out, ctx.Err()
		}
		a.retries++
	}
}

// pause returns the wait that the service asked for, or one that doubles each time, with up to a
// quarter of jitter, so that parallel calls are not repeated at the same moment.
func (a *attempt) pause(pe *provider.Error) time.Duration {
	if pe.RetryAfter > 0 {
		return pe.RetryAfter
	}
	d := a.gateway.limits.Backoff << min(a.retries, 10)
	d = min(d, a.gateway.limits.MaxRetryGap)
	return d - time.Duration(rand.Int64N(int64(d)/4+1))
}

// once makes one request. shown says that part of the answer was passed on, so that another attempt
// would repeat it.
func (a *attempt) once(ctx context.Context) (outcome, bool, error) {
	l := a.gateway.limits
	sink := newCollector(l, a.red, a.onDelta, a.req)
	finish, err := a.target.impl.Stream(ctx, provider.Call{
		Role: a.role, Model: a.target.model, Request: a.req, MaxTokens: a.maxTokens,
		Endpoint: provider.Endpoint{BaseURL: a.target.base, Key: a.target.key, HTTP: a.gateway.client(a.target.base)},
	}, sink)
	out := outcome{usage: finish.Usage, bytes: sink.size}
	cut := errors.Is(err, provider.ErrFull) || (err != nil && context.Cause(ctx) == errWall && sink.size > 0)
	if err != nil && !cut {
		return out, sink.shown, err
	}
	out.message = sink.message()
	switch {
	case cut || sink.dropped:
		out.stop = contract.StopTruncate
	case len(sink.calls) > 0 && (finish.Stop == contract.StopEnd || finish.Stop == ""):
		out.stop = contract.StopToolUse
	case len(sink.calls) == 0 && finish.Stop == contract.StopToolUse:
		out.stop = contract.StopEnd
	default:
		out.stop = finish.Stop
	}
	sink.flush()
	return out, sink.shown, nil
}
