package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/gateway/anthropic"
	"choir.dev/choiros/internal/gateway/breaker"
	"choir.dev/choiros/internal/gateway/openai"
	"choir.dev/choiros/internal/gateway/provider"
	"choir.dev/choiros/internal/gateway/rehearsal"
)

// Options configures how a Gateway finds models and keys. The zero value of every field but Logger
// is usable.
type Options struct {
	// Keys returns the key kept under a name (see Gateway.KeyNames), or "" if there is none. It is asked before every call, so a key that was just
	// stored is used at once. See Lookup.
	Keys func(ctx context.Context, name string) (string, error)

	Default string            // provider/model or alias; "" picks what is configured
	Roles   map[string]string // the same for one role: director or associate; "" is the default
	// Efforts are how much the models of roles think, where neither request nor scope says it.
	Efforts map[string]contract.Effort
	// Providers are further providers, and what departs in those that are built in.
	Providers        map[string]Service
	AnthropicBaseURL string // of anthropic, if Providers has none; "" is the vendor's
	OpenAIBaseURL    string // of openai, if Providers has none; "" is the vendor's; may be any compatible service
	LocalBaseURL     string // where a local model server is looked for; "" is the usual places, "none" looks for none
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

	// Blobs is where the pictures are that a conversation shows; nil: models are shown none.
	Blobs Blobs
	// Fallback names the models that may answer in the place of another, by name or alias, in order.
	Fallback map[string][]string

	Logger     *slog.Logger
	HTTPClient *http.Client // its Transport is used; redirects are never followed
	Limits     Limits
	Clock      Clock // what waiting for a model is measured by; nil: the time in which this process runs
}

// Scope says for whom a call is made. The host fills it in, never the box.
type Scope struct {
	CID  contract.CID
	Run  string
	Task string // "" for the director
	Role string // director or associate
	// Model is the host's choice for this loop, which takes precedence over the one in the request.
	// With "" the request decides, then Choice, then the owner's.
	Model string
	// Effort is how much the model thinks, where the request does not say it; "" is the role's, by the owner.
	Effort contract.Effort
	// Choice is the computer's own.
	Choice Choice
	// Budget bounds all calls of the run together; TaskBudget those of Task.
	// Only Tokens and CostUSD count here; 0 is no limit.
	Budget     contract.Budget
	TaskBudget contract.Budget
	// Waiter is told when a call waits for its model, and then the call waits for as long as
	// Limits.Patience. nil: nobody can be told, and a call is tried only for a short time.
	Waiter Waiter
	// Chosen returns the model that the run's user has chosen, in place of Model, and a channel that
	// is closed when they choose another. nil: they can't.
	Chosen func() (model string, another <-chan struct{})
	// Hold stores an event of the loop with what it says next, in front of that, so that nothing that comes of an answer is there
	// without what the answer cost. nil: what it cost is stored before the answer is passed on.
	Hold func(contract.Draft) error
	// Aside says that the call is none of the loop's own conversation.
	Aside bool
}

// Gateway serves model turns. It is safe for concurrent use.
type Gateway struct {
	opt       Options
	limits    Limits
	catalogue *Catalogue
	services  []service // in the order in which they are chosen
	wires     map[Wire]provider.Provider
	bedrock   *anthropic.Bedrock
	transport http.RoundTripper
	accounts  accounts
	refused   refusedPictures
	lists     *lists
	plans     *rehearsal.Provider
	now       func() time.Time
	clock     Clock
	breakers  *breaker.Set
	said      *conversations
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
	all, err := services(opt)
	if err != nil {
		return nil, err
	}
	aws := &anthropic.Bedrock{}
	g := &Gateway{
		opt: opt, limits: opt.Limits.withDefaults(), catalogue: cat, plans: plans, now: time.Now,
		services: all, wires: map[Wire]provider.Provider{WireAnthropic: anthropic.Provider{}, WireChat: openai.Provider{}, WireResponses: openai.Responses{}, wireBedrock: aws}, bedrock: aws,
		transport: newTransport(),
		accounts:  accounts{byKey: map[string]*account{}},
		said:      newConversations(),
		lists:     newLists(),
	}
	if g.clock = opt.Clock; g.clock == nil {
		g.clock = running{}
	}
	g.breakers = breaker.New(breaker.Options{Now: g.clock.Now, After: g.limits.Failures, First: 4 * g.limits.Backoff, Most: g.limits.MaxBackoff})
	if opt.HTTPClient != nil && opt.HTTPClient.Transport != nil {
		g.transport = opt.HTTPClient.Transport
	}
	if err := g.checkFallback(); err != nil {
		return nil, err
	}
	if err := g.checkNames(); err != nil {
		return nil, err
	}
	return g, nil
}

// Close closes the connections that are kept for later calls, and ends what was asked aside. Calls that are under way end
// with their contexts.
func (g *Gateway) Close() error {
	g.lists.close()
	if t, ok := g.transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
	return nil
}

// Forget drops the account of a run that has ended.
func (g *Gateway) Forget(cid contract.CID, run string) {
	g.accounts.forget(string(cid) + "/" + run)
	g.said.forget(string(cid) + "/" + run)
}

// Turn asks the scope's model for one turn. onDelta, if not nil, is called with the text as it
// arrives, from one goroutine. Every error is a *contract.TurnError whose text contains no key.
func (g *Gateway) Turn(ctx context.Context, scope Scope, req contract.TurnRequest, onDelta func(string)) (contract.Turn, error) {
	turn, _, err := g.turn(ctx, scope, req, reader{delta: onDelta})
	return turn, err
}

// CodeCancelled is the code of a TurnError when the caller cancelled the call.
const CodeCancelled = "cancelled"

func turnError(code, message string, retriable bool) *contract.TurnError {
	return &contract.TurnError{Code: code, Message: message, Retriable: retriable}
}

// outward turns any error into one that may be shown outside the gateway.
func (g *Gateway) outward(err error, red redactor) *contract.TurnError {
	var te *contract.TurnError
	var pe *provider.Error
	switch {
	case errors.As(err, &te):
		return turnError(te.Code, red.text(te.Message), te.Retriable)
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
