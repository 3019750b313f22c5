package shell

import (
	"context"
	"io/fs"
	"log/slog"
	"net/http"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/supervise"
	"choir.dev/choiros/internal/workspace"
)

// Options are the parts that a Shell uses. It owns none of them.
type Options struct {
	Log       *ledger.Log
	State     *state.Store
	Workspace *workspace.Workspace
	Volumes   sandbox.Volumes

	// Box opens a box and records it in the log; Limits are the configured limits of a box.
	Box    func(ctx context.Context, spec sandbox.BoxSpec) (sandbox.Box, error)
	Limits func() sandbox.Limits
	// Registries is the network access of the box that installs the shell's dependencies.
	Registries func(ctx context.Context, box string) http.Handler
	// Snapshot checks a commit out, in layers; VerifyMounts shows a task's work as its
	// checks see it. Both last until release is called.
	Snapshot     func(ctx context.Context, commit string) (layers []sandbox.Volume, release func(), err error)
	VerifyMounts func(ctx context.Context, o ports.Overlay, commit string) (mounts []sandbox.Mount, release func(), err error)
	// NoWatches says what to do when files can't be watched; "" when they can.
	NoWatches func(ctx context.Context) string

	Modules *Modules      // of all the machine's computers
	Build   fs.FS         // the build of the shell that came with the program
	Silence time.Duration // for how long its dev server may be silent
	Logger  *slog.Logger
}

// Shell is the desktop of one awake computer.
type Shell struct {
	opts      Options
	log       *ledger.Log
	state     *state.Store
	workspace *workspace.Workspace
	logger    *slog.Logger

	server  *server
	builds  *builds
	health  health
	changed chan struct{} // the theme's file may have changed
}

// New makes a shell without starting anything: the computer has to keep DevServer, Builds and
// WatchTheme running.
func New(opts Options) *Shell {
	s := &Shell{
		opts: opts, log: opts.Log, state: opts.State, workspace: opts.Workspace, logger: opts.Logger, changed: make(chan struct{}, 1),
	}
	s.server = newServer(s)
	s.builds = &builds{shell: s, want: make(chan struct{}, 1)}
	return s
}

// DevServer is the dev server as a part of the computer. It runs while somebody looks.
func (s *Shell) DevServer() supervise.Part { return s.server.part() }

// Builds builds the shell whenever it changed and was verified, until ctx ends.
func (s *Shell) Builds(ctx context.Context) error { return s.builds.run(ctx) }

// AddViewer says that somebody views the desktop, until release is called.
func (s *Shell) AddViewer() (release func()) { return s.server.addViewer() }

// Idle reports whether nobody looks at the desktop and no build of it is being made or
// about to be.
func (s *Shell) Idle() bool {
	return s.server.unwatched() > 0 && len(s.builds.want) == 0 && !s.builds.busy.Load()
}

// Live reaches the dev server; fault.Unavailable while there is none.
func (s *Shell) Live() (http.RoundTripper, error) { return s.server.transport() }

// Changed says that the live tree may have changed, so that what is derived from it is
// checked again.
func (s *Shell) Changed() {
	s.ThemeChanged()
	s.builds.changed()
}

// openBox opens the desktop's box: live choiros/ read-only, the shell's
// dependencies read-only, no network.
func (s *Shell) openBox(ctx context.Context) (sandbox.Box, error) {
	if err := sandbox.Program("node", "Install Node.js 20.19 or 22.12 or newer; until then the kept build of the desktop is served."); err != nil {
		return nil, err
	}
	tree, err := s.Modules(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.MakeModulesDir(ctx); err != nil {
		return nil, err
	}
	return s.opts.Box(ctx, sandbox.BoxSpec{
		ID: "desktop", Kind: contract.BoxDesktop, Root: "/computer/choiros",
		Mounts: []sandbox.Mount{
			{Source: sandbox.Live("choiros"), Target: "/computer/choiros", Mode: sandbox.ReadOnly},
			{Source: tree, Target: "/computer/choiros/node_modules", Mode: sandbox.ReadOnly},
		},
		Limits: s.opts.Limits(),
	})
}

// ModulesPath is where the shell's dependencies are mounted.
const ModulesPath = "choiros/node_modules"

// MakeModulesDir makes the mount point for the shell's dependencies, which git ignores and
// a restore may have removed.
func (s *Shell) MakeModulesDir(ctx context.Context) error {
	return s.workspace.Mkdir(ctx, ModulesPath)
}

// note appends one event of the system's.
func (s *Shell) note(ctx context.Context, eventType string, data contract.Payload) error {
	_, err := s.log.Append(ctx, contract.Draft{Actor: contract.System(), Type: eventType, Data: data})
	return err
}
