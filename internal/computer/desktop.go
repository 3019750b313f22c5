package computer

import (
	"context"
	"io/fs"
	"net/http"

	"choir.dev/choiros/internal/computer/runspace"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/shell"
	"choir.dev/choiros/internal/view"
)

// openShell makes the shell of an open computer.
func (c *Computer) openShell() *shell.Shell {
	return shell.New(shell.Options{
		Log: c.log, State: c.state, Workspace: c.workspace, Volumes: c.boxes.Volumes(),
		Box: c.boxes.Open, Limits: c.boxes.Limits, Registries: c.boxes.Registries, Snapshot: c.mounts.Snapshot,
		NoWatches: func(ctx context.Context) string { return sandbox.NoWatchesHint(c.machine.Driver.Doctor(ctx)) },
		VerifyMounts: func(ctx context.Context, o ports.Overlay, commit string) ([]sandbox.Mount, func(), error) {
			tree, err := runspace.TreeOf(o)
			if err != nil {
				return nil, nil, err
			}
			return c.mounts.Verify(ctx, tree, commit, true)
		},
		Modules: c.machine.Modules, Build: c.machine.Build,
		Silence: runspace.Times(c.machine.Config).Silence, Logger: c.logger,
	})
}

// AddViewer implements control.Desktop.
func (c *Computer) AddViewer(context.Context) (release func()) { return c.shell.AddViewer() }

// Live implements control.Desktop.
func (c *Computer) Live(context.Context) (http.RoundTripper, error) { return c.shell.Live() }

// Build implements control.Desktop.
func (c *Computer) Build(ctx context.Context) (fs.FS, error) { return c.shell.Build(ctx) }

// Heartbeat implements control.Desktop.
func (c *Computer) Heartbeat(ctx context.Context, b view.Heartbeat) error {
	return c.shell.Heartbeat(ctx, b)
}
