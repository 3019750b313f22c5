package gateway

import (
	"sync"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/gateway/provider"
)

const (
	// maxCount is the most tokens that one call can credibly have used: a service's report of more,
	// or of a negative number, is not used.
	maxCount = 1 << 27
	// minOut is the smallest answer worth asking for.
	minOut = 64
	// defaultOut is asked for when neither the request nor the catalogue has a limit.
	defaultOut = 8192
)

// accounts holds what runs and tasks have consumed and reserved.
type accounts struct {
	mu    sync.Mutex
	byKey map[string]*account
}

type account struct {
	asked    bool // whether Options.Spent or Sum was asked what was spent before
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

// reservation is the most that a call may consume; settle replaces it by what the call did consume.
type reservation struct {
	accounts []*account
	mu       *sync.Mutex
	in       int64
	maxOut   int
	own      bool // the request asks for no length: maxOut is the model's own
	tokens   int64
	cost     float64
	free     bool // nothing was reserved
}

func (r *reservation) size(t target) {
	r.tokens = r.in + int64(r.maxOut)
	info := t.info.at(r.in)
	r.cost = price(float64(r.in), info.writePrice()) + price(float64(r.maxOut), info.PriceOut)
}

func (r *reservation) settle(u contract.Usage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.free {
		r.tokens, r.cost = 0, 0
	}
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

// pictureBytes is what a picture counts as in an estimate: 1,600 tokens are what services make of a large one.
const pictureBytes = 3 * 1600

// EstimateTokens returns how many tokens a request has at most, as far as that can be said without its
// model: it is what is reserved for it.
func EstimateTokens(req contract.TurnRequest) int64 { return estimateIn(req) }

// estimateIn estimates a request's tokens rather high: one for every three bytes, and some for each
// message, tool and picture.
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
				n += len(p.Return.ID) + len(p.Return.Content) + 32 + pictureBytes*len(p.Return.Images)
			}
			if p.Reasoning != nil {
				n += len(p.Reasoning.Text) + len(p.Reasoning.Opaque) + len(p.Reasoning.ID) + 32
			}
			if p.Image != nil {
				n += pictureBytes
			}
		}
	}
	for _, t := range req.Tools {
		n += len(t.Name) + len(t.Description) + len(t.Schema) + 64
	}
	if req.Output != nil {
		n += len(req.Output.Name) + len(req.Output.Schema) + 64
	}
	return int64(n)/3 + 16
}

// usage returns what a call is charged. What the service reports is used if it is credible;
// otherwise it is an estimate, and estimated is true. A call that failed before anything arrived is
// charged nothing.
func (g *Gateway) usage(t target, r *reservation, out outcome, callErr error) (u contract.Usage, estimated bool) {
	p := out.usage
	credible := true
	for _, n := range []int64{p.In, p.Out, p.CacheRead, p.CacheWrite} {
		if (n < 0 || n > maxCount) && !defence.Off(defence.BudgetCredible) {
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
	u.TokensOut, u.TokensCached = p.Out, p.CacheRead
	if info := t.info.at(u.TokensIn); info.Priced {
		u.CostUSD = price(float64(p.In), info.PriceIn) + price(float64(p.Out), info.PriceOut) +
			price(float64(p.CacheRead), info.readPrice()) + price(float64(p.CacheWrite), info.writePrice())
	}
	return u, estimated
}

func price(tokens, perMillion float64) float64 { return tokens * perMillion / 1e6 }
