package computer

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/blob"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/config"
	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/egress"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/gateway"
	"choir.dev/choiros/internal/identity"
	"choir.dev/choiros/internal/recovery"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/shell"
	"choir.dev/choiros/internal/vault"
	"choir.dev/choiros/internal/view"
)

// Options are the parts a Host stands on. It owns none of them but what it
// starts itself.
type Options struct {
	Dir     *datadir.Dir
	Config  config.Config
	Version string
	Bus     *bus.Bus
	Blobs   blob.Store
	Vault   *vault.Vault
	// Spending keeps what all computers' calls of models consumed.
	Spending *identity.Store
	Driver   sandbox.Driver
	Source   fs.FS  // the shell's source: the base of a new computer
	Build    fs.FS  // its build: what paints first
	Path     string // what boxes have in PATH; empty: the guest's default
	Getenv   func(string) string
	Logger   *slog.Logger
	// Report says what of the data directory is damaged. If the store is, Bus is
	// not on it, and no computer is woken.
	Report *recovery.Report
	// Restart closes the control plane and starts it anew; it returns at once.
	// Nil: it can't.
	Restart func(Restart)
	// Said is told how each waking of a computer ended, and that one was put to
	// sleep. Nil: nobody is.
	Said func(cid contract.CID, name string, state view.ComputerState, err error)
}

// Host holds the computers of one machine.
type Host struct {
	Options
	gateway *gateway.Gateway
	proxy   *egress.Proxy
	policy  *egress.Sources
	modules *shell.Modules
	reserve *datadir.Reserve
	warmth  warmth

	upkeep upkeep

	watch sync.Map // box id → func(hostport string, allowed bool): who else wants its decisions

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	waking sync.WaitGroup

	mu     sync.Mutex
	places map[contract.CID]*place
	order  []contract.CID
	falls  sync.WaitGroup
	closed atomic.Bool

	damage sync.RWMutex // guards what the report says of computers

	counting sync.Mutex            // held by who counts what was spent
	counted  map[contract.CID]bool // whose log is the one that was counted before
}

// NewHost prepares the parts that all computers share. Open wakes them.
func NewHost(opts Options) (*Host, error) {
	const op = "computer.NewHost"
	h := &Host{Options: opts, warmth: warmth{dir: opts.Dir.Path("cache")}, places: map[contract.CID]*place{}, counted: map[contract.CID]bool{},
		modules: &shell.Modules{Dir: opts.Dir.Path("cache", "node_modules"), Source: opts.Source}}
	var err error
	if h.gateway, err = gateway.New(gateway.Options{
		Keys:    gateway.Lookup(gateway.Env(opts.Getenv), opts.Vault.Lookup),
		Default: opts.Config.Models.Default, AnthropicBaseURL: opts.Config.Models.AnthropicBaseURL,
		OpenAIBaseURL: opts.Config.Models.OpenAIBaseURL, Catalogue: opts.Config.Models.Catalogue, Plans: opts.Config.Models.Plans,
		Meter: h.meter, Spent: h.spent, Sum: h.spentIn, Bounds: bounds(opts.Config.Budget), Logger: opts.Logger,
	}); err != nil {
		return nil, fault.Wrap(op, err)
	}
	private, err := opts.Config.Egress.PrivateAddrs()
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	if h.proxy, err = egress.NewProxy(egress.Options{Decide: h.decide, Meter: h.meterEgress, AllowPrivate: private, Logger: opts.Logger}); err != nil {
		return nil, fault.Wrap(op, err)
	}
	extra, err := egress.ParseRules(opts.Config.Egress.Allow)
	if err != nil {
		return nil, fault.New(op, fault.Invalid, "Correct egress.allow; write each entry as host:port or *.suffix:port.", errors.Join(err, h.proxy.Close()))
	}
	if h.reserve, err = datadir.OpenReserve(opts.Dir, int64(opts.Config.Storage.ReserveMB)<<20, opts.Bus.Health, opts.Logger); err != nil {
		return nil, errors.Join(err, h.proxy.Close(), h.gateway.Close())
	}
	h.policy = &egress.Sources{Registries: egress.Cached(egress.HostRegistries(opts.Logger), registriesTTL), Extra: extra, Logger: opts.Logger}
	return h, nil
}

// meter records what a model call consumed in the computer's log, and counts it
// for the whole machine. What only the log has, after a crash in between, is
// counted before anything is spent again.
func (h *Host) meter(ctx context.Context, s gateway.Scope, m contract.UsageMetered) error {
	if s.CID == "" {
		call := identity.Call{ID: m.Call, At: time.Now(), Usage: m.Usage}
		return h.reserve.Spaced(ctx, func() error { return h.Spending.Spend(ctx, call) })
	}
	c, err := h.get(s.CID)
	if err != nil {
		return err
	}
	if _, err = c.log.Append(ctx, contract.Draft{
		ID: contract.DeriveID(m.Call, "usage"), Role: contract.RoleSystem, Type: "usage.metered", Run: s.Run, Task: s.Task, Data: m,
	}); err != nil {
		return err
	}
	return h.count(ctx, c.log)
}

// decide records a decision of the network policy before a byte passes.
func (h *Host) decide(ctx context.Context, s egress.Scope, allowed bool, d contract.EgressDecided) error {
	c, err := h.recording(s.CID)
	if err != nil {
		return err
	}
	eventType := "egress.denied"
	if allowed {
		eventType = "egress.allowed"
	}
	if _, err := c.log.Append(ctx, contract.Draft{Role: contract.RoleSystem, Type: eventType, Run: s.Run, Task: s.Task, Data: d}); err != nil {
		return err
	}
	if f, ok := h.watch.Load(s.Box); ok {
		f.(func(string, bool))(hostPort(d), allowed)
	}
	return nil
}

// meterEgress records what has passed a tunnel.
func (h *Host) meterEgress(ctx context.Context, s egress.Scope, t egress.Traffic) error {
	c, err := h.recording(s.CID)
	if err != nil {
		return err
	}
	_, err = c.log.Append(ctx, contract.Draft{Role: contract.RoleSystem, Type: "egress.metered", Run: s.Run, Task: s.Task, Data: contract.EgressMetered{
		Tunnel: t.Tunnel, Box: s.Box, Kind: s.Kind, Host: t.Target.Host, Port: int(t.Target.Port),
		Sent: t.Sent, Received: t.Received, WallMS: t.Duration.Milliseconds(), Ended: t.Ended,
	}})
	return err
}

// recording returns a computer whose boxes may still have something to record:
// one that is awake or on its way to sleep.
func (h *Host) recording(cid contract.CID) (*Computer, error) {
	h.mu.Lock()
	p := h.places[cid]
	var closing *Computer
	if p != nil {
		closing = p.closing
	}
	h.mu.Unlock()
	if closing != nil {
		return closing, nil
	}
	return h.get(cid)
}

// egressHandler makes a box's way out. A policy that can't be loaded denies.
func (h *Host) egressHandler(ctx context.Context, c *Computer, s egress.Scope, spec contract.EgressSpec, decided func(string, bool), approved ...egress.Rule) http.Handler {
	sources := *h.policy
	sources.Remotes = c.remotes
	if decided != nil {
		h.watch.Store(s.Box, decided)
	}
	return h.proxy.Handler(s, sources.Policy(ctx, spec, approved...))
}

// resolveModel names what a model's name, or "" for the default, stands for.
func (h *Host) resolveModel(ctx context.Context, name string) (provider, model string, err error) {
	return h.gateway.Resolve(ctx, name)
}
