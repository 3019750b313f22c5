package computer

import (
	"context"
	"io/fs"
	"log/slog"
	"net/http"
	"sync"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/blob"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/config"
	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/egress"
	"choir.dev/choiros/internal/gateway"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/shell"
)

// Machine is what the computers of one machine share. It is filled before the
// first of them is opened and not changed afterwards.
type Machine struct {
	Dir     *datadir.Dir
	Config  config.Config
	Version string
	Bus     *bus.Bus
	Blobs   blob.Store
	Driver  sandbox.Driver
	Source  fs.FS  // the shell's source: the base of a new computer
	Build   fs.FS  // its build: what paints first
	Path    string // what boxes have in PATH; empty: the guest's default
	Getenv  func(string) string
	Logger  *slog.Logger

	Gateway *gateway.Gateway
	Proxy   *egress.Proxy
	Policy  *egress.Sources
	Modules *shell.Modules
	Reserve *datadir.Reserve

	// Secrets lists the values of secrets, which no text may hold.
	Secrets func(ctx context.Context) ([]string, error)
	// Count brings the sum of what was spent up to the end of a log. Nil: nobody
	// counts.
	Count func(ctx context.Context, log *ledger.Log) error
	// Fell is told that a computer's own services go on failing.
	Fell func(c *Computer, err error)
	// Notices are what every computer's user is told of the machine.
	Notices func() []string

	warmth warmth
	watch  sync.Map // box id → func(hostport string, allowed bool): who else wants its decisions
}

// Decided tells whoever runs a box of a decision of the network policy about it.
func (m *Machine) Decided(box, hostport string, allowed bool) {
	if f, ok := m.watch.Load(box); ok {
		f.(func(string, bool))(hostport, allowed)
	}
}

// egressHandler makes a box's way out. A policy that can't be loaded denies.
func (m *Machine) egressHandler(ctx context.Context, c *Computer, s egress.Scope, spec contract.EgressSpec, decided func(string, bool), approved ...egress.Rule) http.Handler {
	sources := *m.Policy
	sources.Remotes = c.remotes
	if decided != nil {
		m.watch.Store(s.Box, decided)
	}
	return m.Proxy.Handler(s, sources.Policy(ctx, spec, approved...))
}
