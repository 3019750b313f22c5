package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/gateway/breaker"
	"choir.dev/choiros/internal/gateway/provider"
)

// reader is who reads an answer while it arrives.
type reader struct {
	delta func(text string)
	// again says that what was read so far is void, and that the answer begins anew. nil: the reader
	// can't take that, and an answer that breaks off is not asked for again.
	again func()
}

// call is one turn that is asked for, by as many tries at as many models as it takes. It alone
// decides what is tried again and waited for: loops do not repeat what it has given up.
type call struct {
	gateway *Gateway
	scope   Scope
	req     contract.TurnRequest
	reader  reader

	name    string          // the model that was asked for
	another <-chan struct{} // closed when the user chooses another
	models  []*candidate    // that one, and those that may answer in its place
	metered *metered        // what was consumed and is not recorded yet
	last    contract.UsageMetered

	repeated float64 // the share of the request that the loop's one before began with

	tries   int // that have failed
	broken  int // tries of which part of an answer came, since brokeAt
	brokeAt time.Duration
	since   time.Duration
	failing bool          // since since
	held    time.Duration // how long it was held meanwhile because its run is paused
	wait    waited
}

// candidate is a model that may answer.
type candidate struct {
	target
	red     redactor
	breaker *breaker.Breaker
	instead string // the model in whose place it would answer
	tries   int    // that have failed
	since   time.Duration
	not     time.Duration // not to be tried before
	err     *provider.Error
	dead    bool               // it can't answer this request
	blind   bool               // its service took no request with this one's pictures
	showed  []contract.BlobRef // of the last request that had pictures
	blames  bool               // its refusal was of what the request says
}

func (k *candidate) name() string { return k.provider + "/" + k.model }

func (g *Gateway) turn(ctx context.Context, scope Scope, req contract.TurnRequest, to reader) (contract.Turn, contract.UsageMetered, error) {
	if err := req.Validate(); err != nil {
		return contract.Turn{}, contract.UsageMetered{}, turnError(provider.CodeInvalid, err.Error(), false)
	}
	return g.answer(ctx, scope, req, to)
}

// answer is turn, of a request that was checked.
func (g *Gateway) answer(ctx context.Context, scope Scope, req contract.TurnRequest, to reader) (contract.Turn, contract.UsageMetered, error) {
	defer awake.Hold()()
	req.Effort = cmp.Or(req.Effort, scope.Effort, g.opt.Efforts[scope.Role])
	c := &call{gateway: g, scope: scope, req: req, reader: to, repeated: g.said.share(scope, req)}
	turn, err := c.run(ctx)
	c.waitEnds(ctx, err)
	if bad := c.record(ctx); bad != nil {
		return contract.Turn{}, c.last, bad
	}
	if err != nil {
		return contract.Turn{}, c.last, err
	}
	return turn, c.last, nil
}

// choose finds the models for the call, which the user may change while it waits.
func (c *call) choose(ctx context.Context) error {
	c.name = c.scope.Model
	if c.scope.Chosen != nil {
		c.name, c.another = c.scope.Chosen()
	}
	if c.name == "" {
		c.name = c.req.Model
	}
	if c.name == "" {
		c.name = c.gateway.chosen(c.scope)
	}
	var err error
	c.models, err = c.gateway.candidates(ctx, c.name)
	c.failing, c.held, c.tries, c.broken = false, 0, 0, 0
	return err
}

// run asks until there is a turn, or an error that no further try helps against.
func (c *call) run(ctx context.Context) (contract.Turn, error) {
	if err := c.choose(ctx); err != nil {
		return contract.Turn{}, c.gateway.outward(err, redactor{})
	}
	for {
		if err := c.ready(ctx); err != nil {
			return contract.Turn{}, c.gateway.outward(err, redactor{})
		}
		changed := c.gateway.breakers.Changed() // before it is looked at
		k, permit, again := c.pick()
		if k == nil {
			switched, err := c.await(ctx, again, changed)
			if err == nil && switched {
				err = c.turnTo(ctx, nil)
			}
			if err != nil {
				return contract.Turn{}, c.gateway.outward(err, redactor{})
			}
			continue
		}
		turn, err := contract.Turn{}, c.meter(ctx, k)
		if err == nil {
			turn, err = c.try(ctx, k, permit)
		}
		permit.Left()
		if err == nil {
			return turn, nil
		}
		if errors.Is(err, errChosen) && ctx.Err() == nil {
			if err := c.turnTo(ctx, err); err != nil {
				return contract.Turn{}, c.gateway.outward(err, redactor{})
			}
			continue
		}
		if !c.goesOn(ctx, k, permit, err) {
			te := c.gateway.outward(err, k.red)
			if made := (*tryError)(nil); errors.As(err, &made) && c.scope.Waiter != nil {
				te.Retriable = false // what helps was done here
			}
			return contract.Turn{}, te
		}
	}
}

// pick returns the model to try now, with the permit for that, or when to look again.
func (c *call) pick() (*candidate, *breaker.Permit, time.Duration) {
	now := c.gateway.clock.Now()
	again := now + c.gateway.limits.MaxBackoff
	for i, k := range c.models {
		if k.dead {
			continue
		}
		if k.not > now {
			again = min(again, k.not)
		} else if permit, at := k.breaker.Take(); permit != nil {
			return k, permit, 0
		} else {
			again = min(again, at)
		}
		since, failing := k.since, k.tries > 0
		if s, _, all := k.breaker.Failing(); all && (!failing || s < since) {
			since, failing = s, true
		}
		if turn := since + c.gateway.limits.FallbackAfter; !failing || now < turn {
			if i+1 < len(c.models) {
				again = min(again, turn)
			}
			break
		}
	}
	return nil, nil, again
}

// try makes one request. What it consumed is noted for the record.
func (c *call) try(ctx context.Context, k *candidate, permit *breaker.Permit) (contract.Turn, error) {
	g := c.gateway
	sent, err := g.prepare(ctx, c.scope, k, c.req)
	if err != nil {
		return contract.Turn{}, err
	}
	if !k.blind {
		k.showed = slices.Collect(maps.Keys(sent.pictures))
	}
	// Nothing is reserved while the call waits, for others need it.
	res, err := g.reserve(ctx, c.scope, k.target, sent.request)
	if err != nil {
		return contract.Turn{}, err
	}
	if c.metered == nil {
		c.metered = &metered{target: k.target, red: k.red}
	}
	start := g.now()
	answers := false
	c.wait.said = false
	out, shown, err := c.once(ctx, k.target, sent, res.maxOut, k.red, func() {
		if !answers {
			answers = true
			permit.Answered()
			c.answers(ctx, k)
		}
	})
	made := err
	if err == nil {
		err = sent.conform(&out)
	}
	usage, estimated := g.usage(k.target, res, out, err)
	usage.TokensRepeated = int64(c.repeated * float64(usage.TokensIn))
	usage.WallMS = max(0, g.now().Sub(start).Milliseconds())
	res.settle(usage)
	c.metered.add(usage, estimated, err)
	if made != nil {
		return contract.Turn{}, &tryError{err: made, shown: shown, part: out.bytes > 0 || answers}
	}
	permit.Answered()
	switch {
	case !k.blind:
		g.refused.took(k.name(), k.showed)
	case k.blames:
		g.refused.note(k.name(), k.showed)
	}
	c.answers(ctx, k)
	if c.scope.Waiter != nil {
		if err := c.scope.Waiter.Settled(ctx); err != nil {
			return contract.Turn{}, err
		}
	}
	if err != nil {
		return contract.Turn{}, err // an answer of another form than was asked for is the loop's to ask for again
	}
	return contract.Turn{Provider: k.provider, Model: k.model, Message: out.message, Stop: out.stop, Usage: c.metered.usage}, nil
}

// tryError is the error of a request that was made.
type tryError struct {
	err         error
	shown, part bool // part of the answer was passed on, or came
}

func (e *tryError) Error() string { return e.err.Error() }
func (e *tryError) Unwrap() error { return e.err }

// goesOn notes that a model failed, and reports whether the call goes on.
func (c *call) goesOn(ctx context.Context, k *candidate, permit *breaker.Permit, err error) bool {
	g, l := c.gateway, c.gateway.limits
	var made *tryError
	var pe *provider.Error
	if !errors.As(err, &made) {
		// The request was not made, or was answered. Another model may fit the budget, or know the form.
		var te *contract.TurnError
		if errors.As(err, &te) && (te.Code == provider.CodeBudget || te.Code == provider.CodeInvalid) && k.instead != "" {
			k.dead = true
			return true
		}
		return false
	}
	if ctx.Err() != nil || !errors.As(err, &pe) {
		return false
	}
	c.metered.retries++
	if len(k.showed) > 0 && !k.blind && !made.shown && refusesPictures(pe) {
		// One picture that a service can't read, and which stays in the conversation, would end the task.
		permit.Answered()
		g.opt.Logger.Warn("a service refused a request with pictures, and is asked once more without them", "model", k.name(), "error", pe)
		k.blind, k.blames = true, pe.Code == provider.CodeInvalid
		return true
	}
	if !pe.Retriable {
		permit.Answered() // it is there
		if k.instead != "" {
			g.opt.Logger.Warn("a model can't answer in the place of another", "model", k.name(), "instead", k.instead, "code", pe.Code)
			k.dead = true
		}
		return k.instead != ""
	}
	permit.Failed(pe.Code, min(pe.RetryAfter, l.Patience))
	now := g.clock.Now()
	from := now
	if made.part { // a service that only begins its answers is not back
		if c.broken++; c.broken == 1 {
			c.brokeAt = now
		}
		from = c.brokeAt
	}
	if !c.failing {
		c.failing, c.since, c.held = true, from, 0
	}
	if k.tries == 0 {
		k.since = from
	}
	c.tries++
	k.tries = max(k.tries+1, c.broken)
	k.err = pe
	pause := c.pause(k.tries, pe)
	k.not = now + pause
	switch {
	case made.shown && c.reader.again == nil:
		return false
	case c.scope.Waiter == nil && (c.tries >= l.Attempts || pause > l.MaxRetryGap):
		return false
	}
	if made.shown {
		c.reader.again()
	}
	return true
}

// refusesPictures reports whether a service may have refused a request for what it shows, and not for who asks. Some
// routers say that no model of theirs can look, and some servers fail.
func refusesPictures(pe *provider.Error) bool {
	switch pe.Status {
	case 0, http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusUnsupportedMediaType, http.StatusNotFound:
		return pe.Code == provider.CodeInvalid || pe.Code == provider.CodeNoModel || pe.Code == provider.CodeOverflow
	case http.StatusInternalServerError, http.StatusNotImplemented:
		return strings.Contains(strings.ToLower(pe.Message), "image") && !strings.Contains(pe.Message, "<")
	}
	return pe.Code == provider.CodeTooLarge
}

// pause returns the wait that the service asked for, or one that doubles each time, with jitter, so
// that parallel calls are not repeated at the same moment.
func (c *call) pause(tries int, pe *provider.Error) time.Duration {
	l := c.gateway.limits
	if d := pe.RetryAfter; d > 0 {
		return d + time.Duration(rand.Int64N(int64(min(d/10, 5*time.Second))+1)) // not before
	}
	d := min(l.Backoff<<min(tries-1, 20), l.MaxBackoff)
	if c.scope.Waiter == nil {
		d = min(d, l.MaxRetryGap)
	}
	return d - time.Duration(rand.Int64N(int64(d)/4+1))
}

// candidates returns the model with a name, which must be one that can be called, and those that may
// answer in its place, as far as they can be called.
func (g *Gateway) candidates(ctx context.Context, name string) ([]*candidate, error) {
	t, err := g.resolve(ctx, name)
	if err != nil {
		return nil, err
	}
	add := func(t target, instead string) *candidate {
		return &candidate{target: t, red: newRedactor(t.key), breaker: g.breakers.Of(t.provider + "/" + t.model), instead: instead}
	}
	first := add(t, "")
	out := []*candidate{first}
	for _, other := range g.fallback(name, first.name()) {
		t, err := g.resolve(ctx, other)
		if err != nil {
			g.opt.Logger.Debug("a fallback can't be called", "model", other, "error", err)
			continue
		}
		if t.provider+"/"+t.model != first.name() {
			out = append(out, add(t, first.name()))
		}
	}
	return out, nil
}

// AnyModel stands in Options.Fallback for every model that has none of its own there.
const AnyModel = "*"

// maxFallbacks bounds how many models may answer in the place of one.
const maxFallbacks = 8

// fallback lists what may answer in the place of a model, by the name that was asked for or its own.
func (g *Gateway) fallback(asked, name string) []string {
	if list, ok := g.opt.Fallback[asked]; ok {
		return list
	}
	if list, ok := g.opt.Fallback[name]; ok {
		return list
	}
	return g.opt.Fallback[AnyModel]
}

// checkFallback checks the names of the fallbacks.
func (g *Gateway) checkFallback() error {
	for name, list := range g.opt.Fallback {
		if len(list) > maxFallbacks {
			return invalidFallback(fmt.Errorf("models.fallback: %s has %d models; at most %d can stand in for one", name, len(list), maxFallbacks))
		}
		for _, n := range append([]string{name}, list...) {
			if n == AnyModel {
				continue
			}
			if _, err := g.names(n); err != nil {
				return invalidFallback(fmt.Errorf("models.fallback: %w", err))
			}
		}
	}
	return nil
}
