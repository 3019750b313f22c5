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
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/gateway"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/shell"
	"choir.dev/choiros/internal/supervise"
	"choir.dev/choiros/internal/trace/otlp"
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
	Source  fs.FS // the shell's source, with which a new computer begins
	Build   fs.FS // the shell's build, which is shown before the computer has its own
	Getenv  func(string) string
	Logger  *slog.Logger

	Gateway *gateway.Gateway
	Boxes   *boxes.Machine
	Search  ports.Search   // nil: none is configured
	Traces  *otlp.Exporter // nil: none are exported
	Modules *shell.Modules
	Reserve *datadir.Reserve

	// Secrets lists the values of secrets, which no stored text may contain.
	Secrets func(ctx context.Context) ([]string, error)
	// Secret returns one of them by its name; fault.NotFound if there is none.
	Secret func(ctx context.Context, name string) (string, error)
	// Count adds what a log records as spent to the machine's sum, up to the log's end. If
	// it is nil, nothing is counted.
	Count func(ctx context.Context, log *ledger.Log) error
	// Parts is the tree of the machine's parts, under which each computer's is; nil: there is none.
	Parts *supervise.Tree
	// PartsFailed is called when a part that a computer can't do without was given up.
	PartsFailed func(c *Computer, err error)
	// Notices returns messages about the machine that every computer's user is shown.
	Notices func() []string
}
