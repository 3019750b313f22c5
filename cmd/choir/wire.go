package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/console"
	"choir.dev/choiros/contract"
	"choir.dev/choiros/desktop"
	"choir.dev/choiros/internal/blob"
	"choir.dev/choiros/internal/blob/disk"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/computer/boxes"
	"choir.dev/choiros/internal/config"
	"choir.dev/choiros/internal/control"
	"choir.dev/choiros/internal/control/quota"
	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/fleet"
	"choir.dev/choiros/internal/guest/image"
	"choir.dev/choiros/internal/identity"
	"choir.dev/choiros/internal/newfile"
	"choir.dev/choiros/internal/process"
	"choir.dev/choiros/internal/recovery"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/local"
	"choir.dev/choiros/internal/vault"
	"choir.dev/choiros/internal/view"
)

// plane is a whole control plane on one machine. This file is the only place
// where its parts are put together.
type plane struct {
	cfg      config.Config
	dir      *datadir.Dir
	identity *identity.Store
	fleet    *fleet.Fleet
	server   *control.Server
	keys     string             // directory of the keys
	restart  chan fleet.Restart // requests to restart while it serves; it holds one
	opened   []func() error     // what Close calls, in the order in which the parts were opened
}

// openPlane opens every part; on an error it closes those it had opened.
func openPlane(ctx context.Context, cfg config.Config, ln net.Listener, logger *slog.Logger, failed error, o announcer) (_ *plane, err error) {
	p := &plane{cfg: cfg, restart: make(chan fleet.Restart, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	build, ok := desktop.Build()
	if !ok {
		return nil, fault.New("up", fault.Missing, "Build it with: make build", errors.New("this binary was built without the desktop"))
	}
	if err := sandbox.Program("git", "Install git 2.38 or newer, for example: sudo apt-get install git"); err != nil {
		return nil, err
	}
	report, stores, err := p.openData(ctx, logger, failed, o)
	if err != nil {
		return nil, err
	}
	driver, boxPath, err := p.openDriver(ctx, logger)
	if err != nil {
		return nil, err
	}
	var making []identity.Option
	on := newfile.Synced
	if p.dir.Making() { // the directory counts as made once announce has run
		making, on = append(making, identity.Unsynced()), newfile.Unsynced
	}
	if p.identity, err = identity.Open(ctx, p.dir.Path("control.sqlite"), making...); err != nil {
		return nil, stored{err}
	}
	p.own(p.identity.Close)
	nats, err := bus.Open(ctx, bus.Options{Dir: stores.nats, KeysDir: stores.keys, Keys: on, Logger: logger})
	if err != nil {
		return nil, stored{err}
	}
	p.own(nats.Close)
	blobs, err := disk.Open(stores.blobs, blob.Quota{PerComputer: int64(cfg.Storage.BlobsQuotaMB) << 20})
	if err != nil {
		return nil, stored{err}
	}
	secrets, err := vault.Open(stores.keys, on)
	if err != nil {
		return nil, stored{err}
	}
	if err := p.openFleet(ctx, fleet.Options{
		Dir: p.dir, Config: cfg, Version: version, Bus: nats, Blobs: blobs, Vault: secrets, Spending: p.identity, Driver: driver,
		Source: desktop.Source(), Build: build, Path: boxPath, Reader: boxes.Reader{Name: image.ReaderName(), Binary: image.Reader}, Getenv: os.Getenv, Logger: logger, Report: report,
		StateChanged: func(cid contract.CID, name string, state view.ComputerState, err error) {
			o.computer(string(cid), name, state, err)
		},
	}); err != nil {
		return nil, err
	}
	p.server, err = control.New(control.Options{
		Identity: p.identity, Computers: p.fleet, System: p.fleet, Bus: nats, Console: console.Files(),
		Host: cfg.Server.Host, Port: ln.Addr().(*net.TCPAddr).Port, Version: version, Logger: logger, Appends: appends(cfg.Budget), AddBytes: int64(cfg.Storage.AddMB) << 20,
		Stop: func() error { return unix.Kill(unix.Getpid(), unix.SIGTERM) }, // as choir stop has it end
	})
	if err != nil {
		return nil, err
	}
	p.own(p.server.Close)
	return p, nil
}

// openData opens the data directory, has the log kept there, and returns what of it is
// damaged and where the parts lie. failed is why the recovery before did not succeed.
func (p *plane) openData(ctx context.Context, logger *slog.Logger, failed error, o announcer) (_ *recovery.Report, _ stores, err error) {
	data := p.cfg.Server.Data
	if p.dir, err = datadir.Open(data); err != nil {
		return nil, stores{}, ofStored(data, err)
	}
	p.own(p.dir.Close)
	if err := recovery.Newer(ctx, p.dir); err != nil {
		return nil, stores{}, stored{err}
	}
	if err := o.log.attach(data); err != nil {
		logger.WarnContext(ctx, "choir logs won't have what is logged now", "error", err)
	}
	p.own(o.log.close)
	// The damage is looked for before anything is opened, for the parts repair themselves
	// by truncating.
	report, err := look(ctx, p.dir, logger)
	if err != nil {
		return nil, stores{}, stored{err}
	}
	report.Failed = failed
	if err := report.AccountsRefusal(); err != nil {
		return nil, stores{}, stored{fault.Wrap("up", err)}
	}
	s, err := p.stores(report)
	if err != nil {
		return nil, stores{}, stored{err}
	}
	p.keys = s.keys
	return report, s, nil
}

// openDriver opens the driver of this machine's boxes, and returns the PATH in a box.
func (p *plane) openDriver(ctx context.Context, logger *slog.Logger) (*local.Driver, string, error) {
	guest, err := image.Path(p.dir.Path("cache"))
	if err != nil {
		return nil, "", stored{err}
	}
	path, shown := boxes.Programs(os.Getenv("PATH"), p.cfg.Runtime)
	driver, err := local.New(ctx, local.Options{Guest: guest, Dir: p.dir.Path("cache", "boxes"), Shared: p.dir.Path("cache"), ReadOnly: shown, CAFile: p.cfg.Egress.CAFile, Logger: logger})
	if err != nil {
		return nil, "", err
	}
	p.own(driver.Close)
	return driver, path, nil
}

// openFleet opens the computers and gives each an owner.
func (p *plane) openFleet(ctx context.Context, o fleet.Options) (err error) {
	o.Restart = func(r fleet.Restart) {
		select {
		case p.restart <- r:
		default: // a restart has been requested already
		}
	}
	if p.fleet, err = fleet.New(o); err != nil {
		return err
	}
	p.own(p.fleet.Close)
	if err := p.fleet.Open(ctx); err != nil {
		return stored{err}
	}
	if err := p.adopt(ctx); err != nil {
		return stored{err}
	}
	return nil
}

// look finds out what of the data directory is damaged, and prepares what is whole for
// opening.
func look(ctx context.Context, dir *datadir.Dir, logger *slog.Logger) (*recovery.Report, error) {
	report, err := recovery.FinishAndInspect(ctx, dir)
	if err != nil {
		return nil, err
	}
	split, err := recovery.Split(ctx, dir, report, logger)
	if err != nil {
		report.Unfinished[""] = err // the console has to open to show it
	} else if split {
		if report, err = recovery.Inspect(ctx, dir); err != nil {
			return nil, err
		}
	}
	if !report.Usable() {
		return report, nil
	}
	return report, recovery.Arrange(dir, report)
}

// appends is how much clients may store in the log.
func appends(b config.Budget) quota.Limits {
	return quota.Limits{
		SessionEvents: b.SessionEvents, SessionBytes: int64(b.SessionMB) << 20,
		ComputerEvents: b.ComputerEvents, ComputerBytes: int64(b.ComputerMB) << 20,
		DayEvents: b.DayEvents, DayBytes: int64(b.DayMB) << 20,
	}
}

// stores are the directories that the bus and the vault work in.
type stores struct{ nats, keys, blobs string }

// stores returns the directories to open, those of the data directory when what they hold
// may be opened. If it may not, empty ones are used instead, so that the console opens and
// says so; they are removed at the next start.
func (p *plane) stores(report *recovery.Report) (stores, error) {
	standin := p.dir.Path("cache", "standin")
	if err := os.RemoveAll(standin); err != nil {
		return stores{}, fault.Wrap("up", err)
	}
	if report.Usable() {
		return stores{p.dir.Path("nats"), p.dir.Path("keys"), p.dir.Path("blobs")}, p.dir.Complete()
	}
	s := stores{filepath.Join(standin, "nats"), filepath.Join(standin, "keys"), filepath.Join(standin, "blobs")}
	if !slices.ContainsFunc(report.Shared, func(d bus.Damage) bool { return strings.HasPrefix(d.File, "keys") }) {
		s.keys = p.dir.Path("keys") // the keys are whole, so whoever is signed in stays so
	}
	return s, fault.Wrap("up", errors.Join(os.MkdirAll(s.nats, 0o700), os.MkdirAll(s.keys, 0o700)))
}

// adopt gives every computer an owner.
func (p *plane) adopt(ctx context.Context) error {
	owner, err := p.identity.Owner(ctx)
	if err != nil {
		return err
	}
	computers, err := p.fleet.List(ctx)
	if err != nil {
		return err
	}
	for _, c := range computers {
		if _, err := p.identity.Adopt(ctx, c.ID, owner.ID, c.Name); err != nil {
			return err
		}
	}
	return nil
}

// announce makes the link and token that `choir up` prints, and tells other
// programs of this user where the control plane is. given is the token that this
// process printed before it started anew, which stays the same.
func (p *plane) announce(ctx context.Context, given string) (upLine, error) {
	owner, err := p.identity.Owner(ctx)
	if err != nil {
		return upLine{}, err
	}
	link, _, err := p.identity.NewLink(ctx, owner.ID)
	if err != nil {
		return upLine{}, err
	}
	token, err := p.identity.MachineToken(ctx, filepath.Join(p.keys, "api-token"), given)
	if err != nil {
		return upLine{}, err
	}
	// Nobody was told of what is new before this, so it needs to be on disk only now.
	if err := p.identity.Settle(ctx); err != nil {
		return upLine{}, err
	}
	if err := p.dir.Commit(); err != nil {
		return upLine{}, err
	}
	line := upLine{URL: p.server.ConsoleURL(), ClaimURL: p.server.ClaimURL(link, owner.Claimed), Claimed: owner.Claimed, Token: token, PID: os.Getpid(), Data: p.cfg.Server.Data}
	if err := client.WriteRuntime(p.cfg.Server.Data, client.Runtime{URL: line.URL, Token: token, PID: line.PID, Process: process.Self()}); err != nil {
		return upLine{}, err
	}
	return line, nil
}

func (p *plane) own(end func() error) { p.opened = append(p.opened, end) }

// Close ends every part, the last opened first.
func (p *plane) Close() error {
	var errs []error
	for i := len(p.opened) - 1; i >= 0; i-- {
		errs = append(errs, p.opened[i]())
	}
	p.opened = nil
	return errors.Join(errs...)
}
