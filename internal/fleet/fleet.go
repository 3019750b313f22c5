package fleet

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/blob"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/computer"
	"choir.dev/choiros/internal/computer/boxes"
	"choir.dev/choiros/internal/config"
	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/egress"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/gateway"
	"choir.dev/choiros/internal/identity"
	"choir.dev/choiros/internal/recovery"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/shell"
	"choir.dev/choiros/internal/supervise"
	"choir.dev/choiros/internal/vault"
	"choir.dev/choiros/internal/view"
)

// Options are the parts that a Fleet uses. It closes none of them.
type Options struct {
	Dir     *datadir.Dir
	Config  config.Config
	Version string
	Bus     *bus.Bus
	Blobs   blob.Store
	Vault   *vault.Vault
	// Spending counts what all computers' calls of models consumed.
	Spending *identity.Store
	Driver   sandbox.Driver
	Source   fs.FS  // the shell's source: the base of a new computer
	Build    fs.FS  // its build, which is painted first
	Path     string // what boxes have in PATH; empty: the guest's default
	Reader   boxes.Reader
	Getenv   func(string) string
	Logger   *slog.Logger
	// Report says what of the data directory is damaged. If the store is, Bus runs on an
	// empty one, and no computer is woken.
	Report *recovery.Report
	// Restart closes the control plane and starts it again; it returns at once. Nil:
	// restarting is not possible.
	Restart func(Restart)
	// StateChanged is called with how each waking of a computer ended, and when one was put to
	// sleep. Nil: nothing is.
	StateChanged func(cid contract.CID, name string, state view.ComputerState, err error)
}

// Fleet holds the computers of one machine.
type Fleet struct {
	Options
	machine *computer.Machine
	// wake is Machine.Wake, except in tests.
	wake func(context.Context, contract.CID, computer.WakeOptions) (*computer.Computer, error)

	upkeep upkeep
	parts  *supervise.Tree // the machine's own, and under it each awake computer's

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	waking sync.WaitGroup

	mu      sync.Mutex
	places  map[contract.CID]*place
	order   []contract.CID
	closing sync.WaitGroup
	// unmaking are the computers whose creation failed and whose remains are being removed;
	// a channel is closed when that is done.
	unmaking map[contract.CID]chan struct{}
	// removing is held while a computer is removed or put back.
	removing sync.Mutex
	closed   atomic.Bool

	damage sync.RWMutex // guards what the report says of computers

	counting sync.Mutex            // held while spending is counted
	counted  map[contract.CID]bool // whose log was found to be the one that was counted before
}

// New prepares the parts that all computers share. Open takes up the computers.
func New(opts Options) (*Fleet, error) {
	const op = "fleet.New"
	fl := &Fleet{Options: opts, places: map[contract.CID]*place{}, counted: map[contract.CID]bool{}}
	private, err := opts.Config.Egress.PrivateAddrs()
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	extra, err := egress.ParseRules(opts.Config.Egress.Allow)
	if err != nil {
		return nil, fault.New(op, fault.Invalid, "Correct egress.allow; write each entry as host:port or *.suffix:port.", err)
	}
	fl.machine = &computer.Machine{
		Dir: opts.Dir, Config: opts.Config, Version: opts.Version, Bus: opts.Bus, Blobs: opts.Blobs, Driver: opts.Driver,
		Source: opts.Source, Build: opts.Build, Getenv: opts.Getenv, Logger: opts.Logger,
		Modules: &shell.Modules{Source: opts.Source},
		Boxes: &boxes.Machine{
			Path: opts.Path, Runtime: opts.Config.Runtime, Storage: opts.Config.Storage, Reader: opts.Reader,
			Policy: &egress.Sources{Registries: egress.Cached(egress.HostRegistries(opts.Logger), registriesTTL), Extra: extra, Logger: opts.Logger},
		},
		Secrets: opts.Vault.Values, Secret: opts.Vault.Get, Count: fl.count, PartsFailed: fl.partsFailed, Notices: fl.notices,
	}
	fl.wake = fl.machine.Wake
	if fl.machine.Search, err = search(opts); err != nil {
		return nil, err
	}
	if fl.machine.Traces, err = traces(opts); err != nil {
		return nil, err
	}
	if fl.machine.Gateway, err = gateway.New(gateway.Options{
		Keys:    gateway.Lookup(gateway.Env(opts.Getenv), opts.Vault.Lookup),
		Default: opts.Config.Models.Default, Roles: roles(opts.Config.Models.Roles), Efforts: efforts(opts.Config.Models.Efforts), Providers: providers(opts.Config.Models.Providers),
		AnthropicBaseURL: opts.Config.Models.AnthropicBaseURL, OpenAIBaseURL: opts.Config.Models.OpenAIBaseURL,
		Catalogue: opts.Config.Models.Catalogue, Plans: opts.Config.Models.Plans,
		Meter: fl.meter, Spent: fl.spent, Sum: fl.spentIn, Bounds: bounds(opts.Config.Budget), Blobs: opts.Blobs, Logger: opts.Logger,
		Fallback: map[string][]string{gateway.AnyModel: opts.Config.Models.Fallback},
		Limits:   gateway.Limits{Patience: time.Duration(opts.Config.Models.PatienceS) * time.Second},
	}); err != nil {
		return nil, fault.Wrap(op, err)
	}
	if err = checkComputers(fl.machine.Gateway, opts.Config); err != nil {
		return nil, errors.Join(err, fl.machine.Gateway.Close())
	}
	if fl.machine.Boxes.Proxy, err = egress.NewProxy(egress.Options{Decide: fl.decide, Meter: fl.meterEgress, AllowPrivate: private, Logger: opts.Logger}); err != nil {
		return nil, fault.Wrap(op, errors.Join(err, fl.machine.Gateway.Close()))
	}
	if fl.machine.Reserve, err = datadir.OpenReserve(opts.Dir, int64(opts.Config.Storage.ReserveMB)<<20, opts.Bus.Health, opts.Logger); err != nil {
		return nil, errors.Join(err, fl.machine.Boxes.Proxy.Close(), fl.machine.Gateway.Close())
	}
	fl.machine.Boxes.Reserve = fl.machine.Reserve
	return fl, nil
}

// meter records what a model call consumed in the computer's log, and has it counted for the
// whole machine soon after. What only the log has, also after a crash between the two, is
// counted before anything is spent again under a budget.
func (fl *Fleet) meter(ctx context.Context, s gateway.Scope, m contract.UsageMetered) error {
	if s.CID == "" {
		call := identity.Call{ID: m.Call, At: time.Now(), Usage: m.Usage}
		return fl.machine.Reserve.RetryWithRoom(ctx, func() error { return fl.Spending.Spend(ctx, call) })
	}
	c, err := fl.get(s.CID)
	if err != nil {
		return err
	}
	d := contract.Draft{ID: contract.DeriveID(m.Call, "usage"), Actor: contract.System(), Type: "usage.metered", Run: s.Run, Task: s.Task, Data: m}
	if s.Hold != nil {
		err = s.Hold(d)
	} else {
		_, err = c.Log().Append(ctx, d)
	}
	if err != nil {
		return err
	}
	c.CountSoon()
	return nil
}

// decide records a decision of the network policy before the first byte passes.
func (fl *Fleet) decide(ctx context.Context, s egress.Scope, allowed bool, d contract.EgressDecided) error {
	c, err := fl.recording(s.CID)
	if err != nil {
		return err
	}
	eventType := "egress.denied"
	if allowed {
		eventType = "egress.allowed"
	}
	if _, err := c.Log().Append(ctx, contract.Draft{Actor: contract.System(), Type: eventType, Run: s.Run, Task: s.Task, Data: d}); err != nil {
		return err
	}
	fl.machine.Boxes.Decided(s.Box, hostPort(d), allowed)
	return nil
}

// meterEgress records what has passed a tunnel.
func (fl *Fleet) meterEgress(ctx context.Context, s egress.Scope, t egress.Traffic) error {
	c, err := fl.recording(s.CID)
	if err != nil {
		return err
	}
	_, err = c.Log().Append(ctx, contract.Draft{Actor: contract.System(), Type: "egress.metered", Run: s.Run, Task: s.Task, Data: contract.EgressMetered{
		Tunnel: t.Tunnel, Box: s.Box, Kind: s.Kind, Host: t.Target.Host, Port: int(t.Target.Port),
		Sent: t.Sent, Received: t.Received, WallMS: t.Duration.Milliseconds(), Ended: t.Ended,
	}})
	return err
}

// recording returns a computer whose boxes may still have something to record: it is awake
// or falling asleep.
func (fl *Fleet) recording(cid contract.CID) (*computer.Computer, error) {
	fl.mu.Lock()
	p := fl.places[cid]
	var closing *computer.Computer
	if p != nil {
		closing = p.closing
	}
	fl.mu.Unlock()
	if closing != nil {
		return closing, nil
	}
	return fl.get(cid)
}
