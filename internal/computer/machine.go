package computer

import (
	"context"
	"io/fs"
	"log/slog"

	"choir.dev/choiros/internal/blob"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/computer/boxes"
	"choir.dev/choiros/internal/config"
	"choir.dev/choiros/internal/datadir"
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
	Source  fs.FS // the shell's source: the base of a new computer
	Build   fs.FS // its build: what paints first
	Getenv  func(string) string
	Logger  *slog.Logger

	Gateway *gateway.Gateway
	Boxes   *boxes.Machine
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
}
