package computer

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer/actions"
	"choir.dev/choiros/internal/computer/boxes"
	"choir.dev/choiros/internal/computer/commands"
	"choir.dev/choiros/internal/computer/consistency"
	"choir.dev/choiros/internal/computer/files"
	"choir.dev/choiros/internal/computer/fork"
	"choir.dev/choiros/internal/computer/gitserve"
	"choir.dev/choiros/internal/computer/history"
	"choir.dev/choiros/internal/computer/mcpservers"
	"choir.dev/choiros/internal/computer/mounts"
	"choir.dev/choiros/internal/computer/parts"
	"choir.dev/choiros/internal/computer/past"
	"choir.dev/choiros/internal/computer/runspace"
	"choir.dev/choiros/internal/computer/upkeep"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/document"
	"choir.dev/choiros/internal/document/mirror"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/memory"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/shell"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/internal/workspace"
)

// Computer is one awake computer.
type Computer struct {
	// These parts answer the methods that callers ask of a computer.
	*past.Past      // from when its log and state are open
	*upkeep.Counter // the same

	// These are set once its files and documents are open.
	*history.History
	*files.Files
	*commands.Commands
	*gitserve.Server // for git's requests

	*actions.Actions // from when its runs are taken up

	machine *Machine
	cid     contract.CID
	logger  *slog.Logger

	log       *ledger.Log
	state     *state.Store
	boxes     *boxes.Boxes
	keeper    *boxes.Keeper
	workspace *workspace.Workspace
	documents *document.Documents
	memory    *memory.Memory
	mirror    *mirror.Mirror
	runs      *dispatch.Dispatcher
	servers   *mcpservers.Servers // of the Model Context Protocol
	shell     *shell.Shell
	upkeep    *upkeep.Upkeep
	mounts    *mounts.Mounts
	seeded    bool // it was made by this waking, and has the files of every new computer

	ctx   context.Context // ends with the computer; what it started runs under it
	parts *parts.Parts

	methods rpc.Table
}

// WakeOptions says how a computer is opened.
type WakeOptions struct {
	Name string // the name of a computer that is new
	// WithoutTasks opens it without what tasks left; interrupted runs are cancelled.
	WithoutTasks bool
	// Opened is called with the computer once it owns its log, and with nil if opening
	// failed afterwards: its runs meter and use the network before it is awake.
	Opened func(*Computer)
}

// Wake opens a computer: it takes over the log, brings the state up to it, starts the
// keeper, repairs what a crash left, and resumes open runs. A computer without a log is
// made new.
func (m *Machine) Wake(ctx context.Context, cid contract.CID, w WakeOptions) (*Computer, error) {
	return m.open(ctx, cid, w, func(c *Computer) (err error) {
		if w.WithoutTasks {
			if err := runspace.SetAside(c.path("boxes")); err != nil {
				return err
			}
		}
		if err := c.openHistory(ctx, w); err != nil {
			return err
		}
		if c.seeded {
			c.parts.Task("checking the first checkpoint out", c.mounts.CheckOut)
		}
		if c.runs, err = c.newDispatcher(); err != nil {
			return err
		}
		if c.servers, err = mcpservers.New(ctx, mcpservers.Options{
			Append: c.log.Append, Events: c.Events, Payload: c.log.Payload, Boxes: c.boxes, Secret: c.machine.Secret,
			Offer: c.runs.Offer, Version: c.machine.Version, Awake: c.ctx, Logger: c.logger,
		}); err != nil {
			return err
		}
		c.parts.Own("MCP servers", c.servers.Keep)
		c.Actions = &actions.Actions{Log: c.log, Runs: c.runs}
		c.methods = c.bindMethods()
		if w.WithoutTasks {
			if err := runspace.GiveUp(ctx, c.log, c.runPast()); err != nil {
				return err
			}
		}
		if err := c.runs.Recover(ctx); err != nil {
			return err
		}
		c.parts.Add(c.shell.DevServer())
		c.parts.Own("desktop builds", c.shell.Builds)
		c.parts.Own("theme", c.shell.WatchTheme)
		c.parts.Own("mirroring documents", c.mirror.Run)
		c.parts.Own("maintenance", c.upkeep.Maintain)
		c.parts.Own("scrub", c.upkeep.Scrub)
		c.export()
		return nil
	})
}

// OpenHistory opens a computer's files and history, and nothing else of it.
func (m *Machine) OpenHistory(ctx context.Context, cid contract.CID, w WakeOptions) (*Computer, error) {
	return m.open(ctx, cid, w, func(c *Computer) error { return c.openHistory(ctx, w) })
}

// OpenState opens a computer's log and its state, which is brought up to the log, and
// nothing else. It writes nothing to the log.
func (m *Machine) OpenState(ctx context.Context, cid contract.CID) (*Computer, error) {
	return m.open(ctx, cid, WakeOptions{}, func(c *Computer) error { return c.openState(ctx) })
}

// open carries out do on a new Computer, and closes the computer again when do fails or
// panics.
func (m *Machine) open(ctx context.Context, cid contract.CID, w WakeOptions, do func(*Computer) error) (_ *Computer, err error) {
	c := m.newComputer(ctx, cid)
	opened := false
	defer func() {
		if opened {
			return
		}
		if w.Opened != nil {
			w.Opened(nil)
		}
		err = fault.Wrap("wake "+string(cid), errors.Join(err, c.Close()))
	}()
	if err := do(c); err != nil {
		return nil, err
	}
	opened = true
	return c, nil
}

// newComputer makes a computer of which nothing is open yet.
func (m *Machine) newComputer(ctx context.Context, cid contract.CID) *Computer {
	c := &Computer{machine: m, cid: cid, logger: m.Logger.With("computer", string(cid))}
	c.parts = parts.New(ctx, parts.Options{CID: cid, Under: m.Parts, Logger: c.logger, Escalate: func(err error) { m.PartsFailed(c, err) }})
	c.ctx = c.parts.Context()
	return c
}

// CID names the computer.
func (c *Computer) CID() contract.CID { return c.cid }

// Log is the computer's log.
func (c *Computer) Log() *ledger.Log { return c.log }

// openHistory opens what a computer's files, documents and checkpoints need, after checking
// them against the log.
func (c *Computer) openHistory(ctx context.Context, w WakeOptions) (err error) {
	if err := os.MkdirAll(c.path(), 0o700); err != nil {
		return err
	}
	if err := c.openBoxes(ctx); err != nil {
		return err
	}
	notes := c.boxes.FindNotes()
	if err := c.openState(ctx); err != nil {
		return err
	}
	if err := c.boxes.Sweep(ctx); err != nil {
		return err
	}
	c.keeper = c.boxes.NewKeeper()
	c.parts.Add(c.keeper.Part())
	if err := (consistency.Check{CID: c.cid, Volumes: c.boxes.Volumes(), State: c.state, Log: c.log, Keeper: c.keeper}).Run(ctx); err != nil {
		return err
	}
	if err := c.claim(ctx, w.Name, notes); err != nil {
		return err
	}
	if w.Opened != nil {
		w.Opened(c)
	}
	c.parts.RecordWith(c.note)
	c.parts.Own("projection", c.project)
	c.documents, c.memory = document.New(c.log, c.state), memory.New(c.log, c.state)
	if err := c.state.CaughtUp(ctx, c.log); err != nil {
		return err
	}
	if err := c.documents.Recover(ctx); err != nil {
		// Accepting it again completes it, so nothing is lost by going on.
		c.logger.Warn("a proposal that was accepted still looks open", "error", err)
	}
	if c.mirror, err = mirror.New(ctx, mirror.Options{
		Log: c.log, State: c.state, Documents: c.documents, Logger: c.logger,
		Busy: c.busy, Ended: func() bool { return c.ctx.Err() != nil },
	}); err != nil {
		return err
	}
	c.parts.Own("following revisions", c.mirror.Follow)
	if err := c.openWorkspace(ctx); err != nil {
		return err
	}
	if err := commands.EndLost(ctx, c.log, c.state); err != nil {
		return err
	}
	if err := fork.Documents(ctx, c.path(), c.workspace, c.documents); err != nil {
		return err
	}
	c.upkeep = upkeep.New(upkeep.Options{
		CID: c.cid, Dir: c.path(), Log: c.log, State: c.state, Workspace: c.workspace, Blobs: c.machine.Blobs,
		Free: c.machine.Dir.Free, Busy: c.busy, Logger: c.logger,
	})
	c.mounts = mounts.New(mounts.Options{
		Workspace: c.workspace, Boxes: c.boxes, Modules: c.machine.Modules, Awake: c.ctx, Logger: c.logger,
		Install: func(ctx context.Context) (sandbox.Volume, error) { return c.shell.Modules(ctx) },
	})
	c.shell = c.openShell()
	c.openAsked()
	return c.Server.Sweep(ctx)
}

// busy reports whether a run is working.
func (c *Computer) busy() bool { return c.runs != nil && c.runs.Busy() }

// openBoxes has the driver open the computer; no box is open afterwards.
func (c *Computer) openBoxes(ctx context.Context) error {
	on, err := c.machine.Driver.Open(ctx, sandbox.ComputerSpec{CID: c.cid, Dir: c.path(), Caches: []string{boxes.DependenciesDir, shell.BuildsDir}})
	if err != nil {
		return err
	}
	c.boxes = boxes.New(boxes.Options{
		CID: c.cid, Machine: c.machine.Boxes, On: on, Awake: c.ctx, Once: c.parts.Task, Logger: c.logger,
		// The log and what is read of it are opened after this.
		Remotes: func(ctx context.Context) ([]string, error) { return c.Remotes(ctx) },
		Append: func(ctx context.Context, drafts ...contract.Draft) ([]contract.Event, error) {
			return c.log.Append(ctx, drafts...)
		},
		Read: func(ctx context.Context, commit, path string, most int64) (io.ReadCloser, error) {
			content, err := c.workspace.Read(ctx, commit, path, 0, most)
			if err != nil {
				return nil, err
			}
			return content, nil
		},
	})
	return nil
}

// openState opens the log, without taking it over, and the state, and brings the state up
// to the log.
func (c *Computer) openState(ctx context.Context) (err error) {
	if c.state, err = state.OpenOrReplace(ctx, c.path("state.sqlite"), c.logger, state.WithBlobs(c.machine.Blobs)); err != nil {
		return err
	}
	if c.log, err = ledger.Open(ctx, c.machine.Bus.JetStream(), ledger.Options{CID: c.cid, Blobs: c.machine.Blobs, Index: c.state, Live: c.machine.Bus, Ensure: c.machine.Bus.EnsureStream, Health: c.machine.Bus.Health, FailedReads: c.machine.Bus.FailedReads, Full: c.machine.Reserve.Full,
		Head: c.path("log.head"), Trouble: func(err error) { c.logger.Warn("the log's head could not be written", "error", err) }}); err != nil {
		return err
	}
	c.Past = past.New(c.cid, c.log, c.state, c.machine.Blobs, c.Info)
	c.Counter = &upkeep.Counter{Log: c.log, Once: c.parts.Task, Logger: c.logger, Count: func() func(context.Context, *ledger.Log) error { return c.machine.Count }}
	return c.state.Recover(ctx, c.log)
}

// claim appends the first event of the new epoch, which takes the log over from whoever had
// it.
func (c *Computer) claim(ctx context.Context, name string, found <-chan []string) error {
	if c.log.Last() == 0 {
		// A computer exists once its first event does, and then with its files. That it
		// woke is a separate event: a computer that died in between wakes again.
		if err := c.seedWorkspace(ctx); err != nil {
			return err
		}
		created := contract.ComputerCreated{Name: name, Driver: c.machine.Driver.Name()}
		if of, err := fork.Read(c.path()); err != nil {
			return err
		} else if of != nil {
			created.Name, created.From, created.Checkpoint = of.Name, string(of.From), of.Checkpoint
		}
		c.seeded = created.From == ""
		if err := c.note(ctx, "computer.created", created); err != nil {
			return err
		}
	}
	var notes []string
	select {
	case notes = <-found:
	case <-ctx.Done():
		return ctx.Err()
	}
	return c.note(ctx, "computer.woken", contract.ComputerWoken{
		Version: c.machine.Version, Driver: c.machine.Driver.Name(), Isolation: Isolation(c.machine.Driver.Name()), Notes: notes,
	})
}

// project keeps the state up to the log. What ends a projection is not the fault of an
// event, but for example a full disk; it continues when that has passed.
func (c *Computer) project(ctx context.Context) error {
	for {
		err := c.state.Project(ctx, c.log)
		if ctx.Err() != nil {
			return nil
		}
		if fault.Is(err, fault.DiskFull) && c.machine.Reserve.Full(ctx) {
			continue // there is space again
		}
		return err
	}
}

// projectRest brings the state up to the last events of what has ended, so that it is a
// complete copy of the log while the computer sleeps.
func (c *Computer) projectRest() {
	if c.state == nil || c.state.Last() >= c.log.Last() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), restWait)
	defer cancel()
	if err := c.state.Recover(ctx, c.log); err != nil {
		c.logger.Warn("the state is not brought up to the log; it is at the next wake", "error", err)
	}
}

// Isolation says, in a few words, how a driver isolates boxes.
func Isolation(driver string) string {
	if driver == "local" {
		return "bubblewrap: own namespaces, seccomp, no network card"
	}
	return driver
}

// Close ends everything the computer started, in reverse order, and waits.
// Open runs stay open in the log and are resumed at the next wake.
func (c *Computer) Close() error {
	var errs []error
	if c.runs != nil {
		errs = append(errs, c.runs.Close())
	}
	c.parts.Stop()
	if c.boxes != nil {
		errs = append(errs, c.boxes.EndAll())
	}
	if c.workspace != nil {
		errs = append(errs, c.workspace.Close())
	}
	if c.boxes != nil {
		errs = append(errs, c.boxes.Close())
	}
	if c.machine.Boxes != nil {
		c.machine.Boxes.Proxy.CloseComputer(c.cid)
	}
	if c.log != nil {
		c.CountAsleep()
		c.projectRest()
		errs = append(errs, c.log.Close())
	}
	c.parts.Close()
	if c.state != nil {
		errs = append(errs, c.state.Close())
	}
	return errors.Join(errs...)
}

// path joins names to the computer's directory.
func (c *Computer) path(names ...string) string { return c.machine.Dir.Computer(c.cid, names...) }

// Info implements control.Computer.
func (c *Computer) Info(ctx context.Context) (view.Computer, error) {
	row, err := c.state.Computer(ctx)
	if err != nil {
		return view.Computer{}, err
	}
	state := view.StateAwake
	open, err := c.AnyOpenRun(ctx)
	if err != nil {
		return view.Computer{}, err
	}
	if open {
		state = view.StateWorking
	}
	if c.shell != nil && c.shell.Broken() { // with only its history open, nobody sees the desktop
		state = view.StateBroken
	}
	return view.Computer{
		ID: c.cid, Name: row.Name, State: state, Created: past.When(row.Created), Driver: row.Driver, Isolation: row.Isolation,
		Notes: slices.Concat(row.Notes, c.parts.Notes(), c.DamageNotes(), c.servers.Notes(), c.machine.Notices()), Sequence: c.log.Last(),
	}, nil
}

// Frame implements control.Computer.
func (c *Computer) Frame(ctx context.Context) (f view.Frame, err error) {
	if f.Running, err = c.OpenRuns(ctx); err != nil {
		return view.Frame{}, err
	}
	if f.Computer, err = c.Info(ctx); err != nil {
		return view.Frame{}, err
	}
	if f.SpentUSD, err = c.SpentToday(ctx); err != nil {
		return view.Frame{}, err
	}
	if f.Provider, err = c.models().Next(ctx, c.machine.Config); err != nil {
		return view.Frame{}, err
	}
	if f.Waiting, err = c.Staying(ctx); err != nil {
		return view.Frame{}, err
	}
	f.Commands = c.Running()
	f.Desktop, err = c.shell.Status(ctx)
	return f, err
}

// Provider implements control.Desktop.
func (c *Computer) Provider(ctx context.Context) (view.Provider, error) {
	return c.models().Provider(ctx, c.machine.Config)
}

func (c *Computer) models() runspace.Models {
	return runspace.ModelsOf(c.cid, c.machine.Gateway, c.machine.Config.Models, nil)
}

// restWait bounds how long the projection of its last events may delay a computer that
// falls asleep; the next wake projects the rest.
const restWait = 5 * time.Second
