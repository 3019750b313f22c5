package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/gateway/provider"
)

// Waiter is told about the waits of a loop's calls, and may hold them.
type Waiter interface {
	// Ready returns when a call may be tried: not while its run is paused. An error ends the call.
	Ready(ctx context.Context) error
	// Waiting says that a call waits for its model. It is called again when the reason has changed.
	Waiting(ctx context.Context, w contract.ModelWaiting)
	// Resumed says that a call does not wait, because a model answers, now or at once, or because it was
	// given up.
	Resumed(ctx context.Context, r contract.ModelResumed)
	// Settled returns, once for each turn, when its loop may go on with it.
	Settled(ctx context.Context) error
}

// maxTold bounds how often the same call says that it waits.
const maxTold = 20

// waited is what was said of a call's wait.
type waited struct {
	told   int
	reason string // code and model
	open   bool
	said   bool // that a model answers, since the newest try began
	from   time.Duration
}

// ready waits until the call may be tried. That time is no part of the patience.
func (c *call) ready(ctx context.Context) error {
	if c.scope.Waiter == nil {
		return nil
	}
	was := c.gateway.clock.Now()
	if err := c.scope.Waiter.Ready(ctx); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	c.held += c.gateway.clock.Now() - was
	return nil
}

// await waits until a model may be tried, at again at the latest. switched says that the user chose
// another meanwhile. The error is the last one when the patience is over.
func (c *call) await(ctx context.Context, again time.Duration, changed <-chan struct{}) (switched bool, err error) {
	g := c.gateway
	now := g.clock.Now()
	if !c.failing { // others have found that it can't be had
		c.failing, c.since, c.held = true, now, 0
	}
	patience := g.limits.Patience
	if c.scope.Waiter == nil {
		patience = g.limits.MaxRetryGap
	}
	until := c.since + c.held + patience
	if now >= until || c.scope.Waiter == nil && again > until {
		return false, c.gaveUp(now - c.since)
	}
	c.tell(ctx, now, again, until)
	over, stop := g.clock.After(min(again, until) - now)
	defer stop()
	select {
	case <-over:
	case <-changed:
		// All who wait are told at the same moment.
		over, stop := g.clock.After(c.pause(1, &provider.Error{}))
		defer stop()
		select {
		case <-over:
		case <-ctx.Done():
		}
	case <-c.another:
		return true, nil
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	return false, nil
}

// failed returns the failure that the call waits for to pass, and of which model.
func (c *call) failed() (k *candidate, code, message string) {
	for _, k := range c.models {
		if k.err != nil {
			return k, k.err.Code, said(k.err.Code) + ": " + k.red.text(text(k.err))
		}
	}
	k = c.models[0]
	_, code, ok := k.breaker.Failing() // only the code: what was said there was said to another
	if !ok {
		code = provider.CodeUnavailable
	}
	return k, code, said(code)
}

func text(pe *provider.Error) string {
	if pe.Message == "" && pe.Err != nil {
		return pe.Err.Error()
	}
	return pe.Message
}

// said says in words what a code of a failure that passes means.
func said(code string) string {
	switch code {
	case provider.CodeRateLimited:
		return "the model service lets us ask no more for now"
	case provider.CodeTimeout:
		return "the model service does not answer"
	}
	return "the model service can't be had"
}

// gaveUp is the error of a call that has waited long enough. Its loop does not repeat it.
func (c *call) gaveUp(waited time.Duration) error {
	k, code, message := c.failed()
	return turnError(code, fmt.Sprintf("%s was waited for %s: %s", k.name(), waited.Round(time.Second), message), c.scope.Waiter == nil)
}

// tell says that the call waits, unless that is short or was said.
func (c *call) tell(ctx context.Context, now, again, until time.Duration) {
	w := &c.wait
	if c.scope.Waiter == nil || again-c.since < c.gateway.limits.Tell {
		return
	}
	k, code, message := c.failed()
	reason := code + " " + k.name()
	if w.open && w.reason == reason || w.told >= maxTold {
		return
	}
	if !w.open {
		w.from = c.since
	}
	w.reason, w.open = reason, true
	w.told++
	at := func(t time.Duration) string { return c.gateway.now().Add(t - now).UTC().Format(time.RFC3339) }
	c.scope.Waiter.Waiting(ctx, contract.ModelWaiting{Role: c.scope.Role, Provider: k.provider, Model: k.model, Code: code,
		Message: clip(message, 2000), Since: at(c.since), Next: at(min(again, until)), Until: at(until), Try: c.tries})
}

// answers says that a model answers.
func (c *call) answers(ctx context.Context, k *candidate) {
	if c.wait.said {
		return
	}
	c.failing, k.tries = false, 0 // what fails from now on is another outage
	c.wait.said = true
	c.waitOver(ctx, contract.ModelResumed{Provider: k.provider, Model: k.model, Instead: k.instead, Outcome: contract.WaitAnswered})
}

// waitOver says how a wait ended.
func (c *call) waitOver(ctx context.Context, r contract.ModelResumed) {
	if c.scope.Waiter == nil {
		return
	}
	if c.wait.open {
		r.WaitedMS = max(0, (c.gateway.clock.Now() - c.wait.from).Milliseconds())
	}
	c.wait.open, c.wait.reason = false, ""
	r.Role = c.scope.Role
	if r.Model == "" {
		k, _, _ := c.failed()
		r.Provider, r.Model = k.provider, k.model
	}
	c.scope.Waiter.Resumed(ctx, r)
}

// waitEnds ends the wait of a call that has ended without an answer.
func (c *call) waitEnds(ctx context.Context, err error) {
	if !c.wait.open {
		return
	}
	outcome := contract.WaitGaveUp
	if ctx.Err() != nil || err == nil {
		outcome = contract.WaitLeft
	}
	c.waitOver(context.WithoutCancel(ctx), contract.ModelResumed{Outcome: outcome})
}

func clip(s string, n int) string {
	if len(s) > n {
		return clean(s[:n]) + "…"
	}
	return s
}

// metered is what a call consumed of one model.
type metered struct {
	target    target
	usage     contract.Usage
	estimated bool
	err       error
	retries   int
	red       redactor
}

func (m *metered) add(u contract.Usage, estimated bool, err error) {
	m.usage, m.estimated, m.err = m.usage.Add(u), m.estimated || estimated, err
}

// meter records what was consumed of another model than k.
func (c *call) meter(ctx context.Context, k *candidate) error {
	if c.metered == nil || c.metered.target.provider == k.provider && c.metered.target.model == k.model {
		return nil
	}
	return c.record(ctx)
}

// record records what was consumed: once for each model that the call tried before it turned to
// another or ended.
func (c *call) record(ctx context.Context) error {
	m := c.metered
	if m == nil {
		return nil
	}
	c.metered = nil
	retries := m.retries
	if m.err != nil && retries > 0 {
		retries-- // the last was not repeated
	}
	c.last = contract.UsageMetered{
		Call: contract.NewID(), Role: c.scope.Role, Provider: m.target.provider, Model: m.target.model, Usage: m.usage,
		Outcome: "ok", Retries: min(retries, 1000), Estimated: m.estimated || !m.target.info.Priced,
		PriceIn: m.target.info.PriceIn, PriceOut: m.target.info.PriceOut,
	}
	if m.err != nil {
		c.last.Outcome = c.gateway.outward(m.err, m.red).Code
	}
	scope := c.scope
	if ctx.Err() != nil || m.err != nil {
		scope.Hold = nil // what cut the call may end its loop as well, before that stores what it has; of a failure it says nothing
	}
	if err := c.gateway.meter(ctx, scope, c.last); err != nil {
		return turnError(provider.CodeUnavailable,
			"no more is spent: what the last model call consumed could not be recorded: "+m.red.text(err.Error()), false)
	}
	return nil
}

func invalidFallback(err error) error {
	return fault.New("gateway.New", fault.Invalid, "Name models as provider/model or by an alias; see: choir models", err)
}

var errWall = errors.New("the model call took longer than a call may")
