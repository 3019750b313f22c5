package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/gateway/anthropic"
	"choir.dev/choiros/internal/gateway/openai"
	"choir.dev/choiros/internal/gateway/provider"
	"choir.dev/choiros/internal/gateway/rehearsal"
)

// Options configures how a Gateway finds models and keys. The zero value of every field but Logger
// is usable.
type Options struct {
	// Keys returns the key kept under a name (KeyAnthropic, KeyOpenAI), or ""
	// if there is none. It is asked before every call, so a key that was just
	// stored is used at once. See Lookup.
	Keys func(ctx context.Context, name string) (string, error)

	Default          string // provider/model or alias; "" picks what is configured
	AnthropicBaseURL string // "" is the vendor's
	OpenAIBaseURL    string // "" is the vendor's; may be any compatible service
	LocalBaseURL     string // where a local model server is looked for; "" is LocalBaseURL, "none" looks for none
	Catalogue        string // TOML file that adds to the built-in catalogue
	Plans            string // directory of further rehearsal plans

	// Meter records what a call consumed, exactly once per call that was passed to a
	// provider. It is tried again; if it fails for good, the turn fails as well and says
	// so, so that no consumption goes unrecorded. The event's id is
	// contract.DeriveID(m.Call, "usage"). A call without a computer is a test of a model.
	Meter func(ctx context.Context, scope Scope, m contract.UsageMetered) error
	// Spent returns what a run consumed before this process started; it is called once for each
	// run. Nil means nothing.
	Spent func(ctx context.Context, scope Scope) (contract.Usage, error)
	// Bounds are the owner's budgets beyond one run's.
	Bounds Bounds
	// Sum returns what calls consumed, including tests of models: of one computer, or of all, awake
	// or not, when cid is empty; on one UTC day (YYYY-MM-DD), or ever when day is empty. It is
	// called once for each account; an error means that the sum is not known, and then nothing may
	// be spent. Nil means nothing.
	Sum func(ctx context.Context, cid contract.CID, day string) (contract.Usage, error)

	Logger     *slog.Logger
	HTTPClient *http.Client // its Transport is used; redirects are never followed
	Limits     Limits
}

// Limits bounds every call. Zero fields mean the defaults.
type Limits struct {
	Wall        time.Duration // one call with its retries; 10 minutes
	FirstByte   time.Duration // until the answer starts; 2 minutes
	Idle        time.Duration // between two pieces of the answer; 1 minute
	Body        int64         // raw bytes of one answer; 32 MiB
	Output      int           // bytes of text and arguments kept of one turn; 1 MiB
	Calls       int           // tool calls kept of one turn; 64
	Attempts    int           // attempts of one call; 4
	Backoff     time.Duration // before the first retry, doubled each time; 500 ms
	MaxRetryGap time.Duration // the longest wait between attempts that a service may ask for; 30 s
	Parallel    int           // calls of one run at a time; 16
}

func (l Limits) withDefaults() Limits {
	def := func(p *time.Duration, v time.Duration) {
		if *p <= 0 {
			*p = v
		}
	}
	def(&l.Wall, 10*time.Minute)
	def(&l.FirstByte, 2*time.Minute)
	def(&l.Idle, time.Minute)
	def(&l.Backoff, 500*time.Millisecond)
	def(&l.MaxRetryGap, 30*time.Second)
	num := func(p *int, v int) {
		if *p <= 0 {
			*p = v
		}
	}
	num(&l.Output, 1<<20)
	num(&l.Calls, 64)
	num(&l.Attempts, 4)
	num(&l.Parallel, 16)
	if l.Body <= 0 {
		l.Body = 32 << 20
	}
	return l
}

// Scope says for whom a call is made. The host fills it in, never the box.
type Scope struct {
	CID  contract.CID
	Run  string
	Task string // "" for the director
	Role string // director or associate
	// Model is the host's choice for this loop, which takes precedence over the one in the request.
	// With "" the request decides, then the default.
	Model string
	// Budget bounds all calls of the run together; TaskBudget those of Task.
	// Only Tokens and CostUSD count here; 0 is no limit.
	Budget     contract.Budget
	TaskBudget contract.Budget
}

// Gateway serves model turns. It is safe for concurrent use.
type Gateway struct {
	opt       Options
	limits    Limits
	catalogue *Catalogue
	providers map[string]provider.Provider
	bases     map[string]string // provider's name → validated base URL
	custom    map[string]bool   // providers whose base URL is not the vendor's own
	transport http.RoundTripper
	accounts  accounts
	local     localServer
	plans     *rehearsal.Provider
	now       func() time.Time
}

// New checks the configuration and returns a gateway. It makes no request. Its errors are Invalid
// and name the setting.
func New(opt Options) (*Gateway, error) {
	const op = "gateway.New"
	if opt.Logger == nil {
		return nil, fault.New(op, fault.Invalid, "", errors.New("a logger is required"))
	}
	cat, err := loadCatalogue(opt.Catalogue)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	plans, err := rehearsal.Load(opt.Plans)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	g := &Gateway{
		opt: opt, limits: opt.Limits.withDefaults(), catalogue: cat, plans: plans, now: time.Now,
		providers: map[string]provider.Provider{
			ProviderAnthropic: anthropic.Provider{}, ProviderOpenAI: openai.Provider{},
			ProviderLocal: openai.Provider{}, ProviderRehearsal: plans,
		},
		bases: map[string]string{}, custom: map[string]bool{},
		transport: newTransport(),
		accounts:  accounts{byKey: map[string]*account{}},
	}
	if opt.HTTPClient != nil && opt.HTTPClient.Transport != nil {
		g.transport = opt.HTTPClient.Transport
	}
	local := opt.LocalBaseURL
	switch local {
	case "":
		local = LocalBaseURL
	case "none":
		local = ""
	}
	for name, set := range map[string][2]string{
		ProviderAnthropic: {opt.AnthropicBaseURL, anthropic.BaseURL},
		ProviderOpenAI:    {opt.OpenAIBaseURL, openai.BaseURL},
		ProviderLocal:     {local, ""},
	} {
		base := set[0]
		if base == "" {
			base = set[1]
		} else if name != ProviderLocal {
			g.custom[name] = true
		}
		if base == "" {
			continue
		}
		if g.bases[name], err = validBase(base); err != nil {
			return nil, fault.New(op, fault.Invalid, "Write the base URL as https://HOST/PATH.", fmt.Errorf("base URL of %s: %w", name, err))
		}
	}
	if opt.Default != "" {
		if _, _, err := g.split(opt.Default); err != nil {
			return nil, fault.New(op, fault.Invalid, "Set CHOIR_MODEL to provider/model, such as "+g.catalogue.Defaults[ProviderAnthropic]+".", err)
		}
	}
	return g, nil
}

// Close closes the connections that are kept for later calls. Calls that are under way end with
// their contexts.
func (g *Gateway) Close() error {
	if t, ok := g.transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
	return nil
}

// Forget drops the account of a run that has ended.
func (g *Gateway) Forget(cid contract.CID, run string) { g.accounts.forget(string(cid) + "/" + run) }

// Turn asks the scope's model for one turn. onDelta, if not nil, is called with the text as it
// arrives, from one goroutine. Every error is a *contract.TurnError whose text contains no key.
func (g *Gateway) Turn(ctx context.Context, scope Scope, req contract.TurnRequest, onDelta func(string)) (contract.Turn, error) {
	turn, _, err := g.turn(ctx, scope, req, onDelta)
	return turn, err
}

func (g *Gateway) turn(ctx context.Context, scope Scope, req contract.TurnRequest, onDelta func(string)) (contract.Turn, contract.UsageMetered, error) {
	var metered contract.UsageMetered
	if err := req.Validate(); err != nil {
		return contract.Turn{}, metered, turnError(provider.CodeInvalid, err.Error(), false)
	}
	ctx, cancel := awake.WithTimeoutCause(ctx, g.limits.Wall, errWall)
	defer cancel()
	until := awake.Now() + g.limits.Wall
	name := scope.Model
	if name == "" {
		name = req.Model
	}
	t, err := g.resolve(ctx, name)
	if err != nil {
		return contract.Turn{}, metered, g.outward(ctx, err, redactor{})
	}
	red := newRedactor(t.key)
	res, err := g.reserve(ctx, scope, t, req)
	if err != nil {
		return contract.Turn{}, metered, g.outward(ctx, err, red)
	}
	a := attempt{gateway: g, target: t, req: req, maxTokens: res.maxOut, role: scope.Role, red: red, onDelta: onDelta, until: until}
	start := g.now()
	out, callErr := a.run(ctx)
	usage, estimated := g.usage(t, res, out, callErr)
	usage.WallMS = max(0, g.now().Sub(start).Milliseconds())
	res.settle(usage)
	metered = contract.UsageMetered{
		Call: contract.NewID(), Role: scope.Role, Provider: t.provider, Model: t.model, Usage: usage,
		Outcome: "ok", Retries: a.retries, Estimated: estimated || !t.info.Priced,
		PriceIn: t.info.PriceIn, PriceOut: t.info.PriceOut,
	}
	var failed *contract.TurnError
	if callErr != nil {
		failed = g.outward(ctx, callErr, red)
		metered.Outcome = failed.Code
	}
	if err := g.meter(ctx, scope, metered); err != nil {
		return contract.Turn{}, metered, turnError(provider.CodeUnavailable,
			"no more is spent: what the last model call consumed could not be recorded: "+red.text(err.Error()), false)
	}
	if failed != nil {
		return contract.Turn{}, metered, failed
	}
	return contract.Turn{Provider: t.provider, Model: t.model, Message: out.message, Stop: out.stop, Usage: usage}, metered, nil
}

var errWall = errors.New("the model call took longer than a call may")

// CodeCancelled is the code of a TurnError when the caller cancelled the call.
const CodeCancelled = "cancelled"

func turnError(code, message string, retriable bool) *contract.TurnError {
	return &contract.TurnError{Code: code, Message: message, Retriable: retriable}
}

// outward turns any error into one that may be shown outside the gateway.
func (g *Gateway) outward(ctx context.Context, err error, red redactor) *contract.TurnError {
	var te *contract.TurnError
	var pe *provider.Error
	switch {
	case errors.As(err, &te):
		return turnError(te.Code, red.text(te.Message), te.Retriable)
	case context.Cause(ctx) == errWall:
		return turnError(provider.CodeTimeout, errWall.Error(), true)
	case errors.Is(err, context.Canceled):
		return turnError(CodeCancelled, "the call was given up: who asked for it has gone", false)
	case errors.Is(err, context.DeadlineExceeded):
		return turnError(provider.CodeTimeout, "the time for this call is over", true)
	case errors.As(err, &pe):
		message := pe.Message
		if message == "" && pe.Err != nil {
			message = pe.Err.Error()
		}
		return turnError(pe.Code, red.text(message), pe.Retriable)
	}
	return turnError(provider.CodeUnavailable, red.text(err.Error()), false)
}

// localServer remembers whether a model server was found on this machine.
type localServer struct {
	mu     sync.Mutex
	until  time.Time
	models []string
}
