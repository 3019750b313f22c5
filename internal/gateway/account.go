package gateway

import (
	"context"
	"fmt"
	"math"
	"sync"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/gateway/provider"
)

const (
	// maxCount is the most tokens one call can credibly have; a service that
	// reports more, or less than none, is not believed.
	maxCount = 1 << 27
	// minOut is the smallest answer worth asking for.
	minOut = 64
	// defaultOut is asked for when neither request nor catalogue says.
	defaultOut = 8192
)

// accounts keeps what runs and tasks have consumed and reserved.
type accounts struct {
	mu    sync.Mutex
	byKey map[string]*account
}

type account struct {
	asked    bool // whether Spent was asked
	tokens   int64
	cost     float64
	parallel int
	tasks    map[string]bool
}

func (a *accounts) forget(run string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if acc := a.byKey[run]; acc != nil {
		for task := range acc.tasks {
			delete(a.byKey, run+"/"+task)
		}
		delete(a.byKey, run)
	}
}

// reservation is what a call may consume; settle replaces it by what it did.
type reservation struct {
	accounts []*account
	mu       *sync.Mutex
	in       int64
	maxOut   int
	tokens   int64
	cost     float64
}

// reserve takes the call's worst case from the run's and the task's budget, so
// that parallel calls together cannot go over. It asks for a shorter answer
// rather than refuse, as long as the answer is worth having.
func (g *Gateway) reserve(ctx context.Context, s Scope, t target, req contract.TurnRequest) (*reservation, error) {
	in, out := estimateIn(req), req.MaxTokens
	if out <= 0 {
		out = defaultOut
	}
	if t.info.MaxOutput > 0 {
		out = min(out, t.info.MaxOutput)
	}
	out = min(out, 1<<20)
	a := &g.accounts
	r := &reservation{mu: &a.mu, in: in, maxOut: out}
	if s.Run == "" {
		r.size(t)
		return r, nil
	}
	runKey := string(s.CID) + "/" + s.Run
	if err := g.opening(ctx, s, runKey); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	run := a.open(runKey)
	if run.parallel >= g.limits.Parallel {
		return nil, turnError(provider.CodeRateLimited, fmt.Sprintf("this run has %d model calls open already", run.parallel), true)
	}
	type limit struct {
		acc *account
		b   contract.Budget
		of  string
	}
	limits := []limit{{run, s.Budget, "run"}}
	if s.Task != "" {
		if run.tasks == nil {
			run.tasks = map[string]bool{}
		}
		run.tasks[s.Task] = true
		limits = append(limits, limit{a.open(runKey + "/" + s.Task), s.TaskBudget, "task"})
	}
	for _, l := range limits {
		if l.b.Tokens > 0 {
			left := l.b.Tokens - l.acc.tokens - in
			if left < minOut {
				return nil, turnError(provider.CodeBudget, fmt.Sprintf("the %s's budget of %d tokens is used up: %d are spent or reserved and this call needs about %d", l.of, l.b.Tokens, l.acc.tokens, in+minOut), false)
			}
			r.maxOut = int(min(int64(r.maxOut), left))
		}
		if l.b.CostUSD > 0 && t.info.Priced && t.info.PriceOut > 0 {
			left := l.b.CostUSD - l.acc.cost - price(float64(in), t.info.writePrice())
			tokens := math.Floor(left / t.info.PriceOut * 1e6)
			if tokens < minOut {
				return nil, turnError(provider.CodeBudget, fmt.Sprintf("the %s's budget of %.4f USD is used up: %.4f are spent or reserved", l.of, l.b.CostUSD, l.acc.cost), false)
			}
			r.maxOut = int(min(float64(r.maxOut), tokens))
		}
	}
	r.size(t)
	for _, l := range limits {
		l.acc.tokens += r.tokens
		l.acc.cost += r.cost
		l.acc.parallel++
		r.accounts = append(r.accounts, l.acc)
	}
	return r, nil
}

func (r *reservation) size(t target) {
	r.tokens = r.in + int64(r.maxOut)
	r.cost = price(float64(r.in), t.info.writePrice()) + price(float64(r.maxOut), t.info.PriceOut)
}

func (r *reservation) settle(u contract.Usage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, acc := range r.accounts {
		acc.tokens += u.TokensIn + u.TokensOut - r.tokens
		acc.cost = max(0, acc.cost+u.CostUSD-r.cost)
		acc.parallel--
	}
}

// open must be called with the lock held.
func (a *accounts) open(key string) *account {
	acc := a.byKey[key]
	if acc == nil {
		acc = &account{}
		a.byKey[key] = acc
	}
	return acc
}

// opening asks once what the run consumed before this process started.
func (g *Gateway) opening(ctx context.Context, s Scope, key string) error {
	if g.opt.Spent == nil {
		return nil
	}
	g.accounts.mu.Lock()
	known := g.accounts.open(key).asked
	g.accounts.mu.Unlock()
	if known {
		return nil
	}
	spent, err := g.opt.Spent(ctx, s)
	if err != nil {
		return turnError(provider.CodeUnavailable, "what the run has consumed so far could not be read: "+err.Error(), true)
	}
	g.accounts.mu.Lock()
	defer g.accounts.mu.Unlock()
	if acc := g.accounts.open(key); !acc.asked {
		acc.asked = true
		acc.tokens += spent.TokensIn + spent.TokensOut
		acc.cost += spent.CostUSD
	}
	return nil
}

// estimateIn is a high guess of a request's tokens: one per three bytes, and
// some for each message and tool.
func estimateIn(req contract.TurnRequest) int64 {
	n := len(req.System)
	for _, m := range req.Messages {
		n += 16
		for _, p := range m.Parts {
			n += len(p.Text)
			if p.Call != nil {
				n += len(p.Call.ID) + len(p.Call.Name) + len(p.Call.Args) + 32
			}
			if p.Return != nil {
				n += len(p.Return.ID) + len(p.Return.Content) + 32
			}
		}
	}
	for _, t := range req.Tools {
		n += len(t.Name) + len(t.Description) + len(t.Schema) + 64
	}
	return int64(n)/3 + 16
}

// usage is what a call is booked with. What the service reports is taken if it
// is credible; otherwise an estimate, and estimated is true. A call that failed
// before anything arrived cost nothing.
func (g *Gateway) usage(t target, r *reservation, out outcome, callErr error) (u contract.Usage, estimated bool) {
	p := out.usage
	credible := true
	for _, n := range []int64{p.In, p.Out, p.CacheRead, p.CacheWrite} {
		if n < 0 || n > maxCount {
			credible = false
		}
	}
	switch {
	case !credible:
		p = provider.Usage{In: r.in, Out: int64(r.maxOut)}
		estimated = true
		g.opt.Logger.Warn("a model service reported usage that cannot be; the reserved amount is booked instead", "provider", t.provider, "model", t.model)
	case t.provider == ProviderRehearsal:
		p = provider.Usage{}
	case !p.Known && callErr != nil && out.bytes == 0 && p.In == 0:
		p = provider.Usage{}
	case !p.Known:
		if p.In == 0 {
			p.In = r.in
		}
		p.Out = max(p.Out, int64(out.bytes)/3+1)
		estimated = true
	}
	u.TokensIn = p.In + p.CacheRead + p.CacheWrite
	u.TokensOut = p.Out
	if t.info.Priced {
		u.CostUSD = price(float64(p.In), t.info.PriceIn) + price(float64(p.Out), t.info.PriceOut) +
			price(float64(p.CacheRead), t.info.readPrice()) + price(float64(p.CacheWrite), t.info.writePrice())
	}
	return u, estimated
}

func price(tokens, perMillion float64) float64 { return tokens * perMillion / 1e6 }
