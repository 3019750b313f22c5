package computer

import (
	"context"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer/commands"
	"choir.dev/choiros/internal/computer/effects"
	"choir.dev/choiros/internal/computer/facts"
	"choir.dev/choiros/internal/computer/files"
	"choir.dev/choiros/internal/computer/fork"
	"choir.dev/choiros/internal/computer/gitserve"
	"choir.dev/choiros/internal/computer/history"
	"choir.dev/choiros/internal/computer/proposals"
	"choir.dev/choiros/internal/computer/sources"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

// Methods implements control.Computer: the declared methods that the computer answers.
func (c *Computer) Methods() rpc.Table { return c.methods }

func (c *Computer) bindMethods() rpc.Table {
	t := rpc.Table{}
	history.Bind(t, c, func(ctx context.Context) (string, error) {
		f, err := c.Frame(ctx)
		return f.Desktop.LastGood, err
	})
	c.Past.Bind(t)
	c.Files.Bind(t)
	c.Commands.Bind(t)
	c.Actions.Bind(t)
	c.servers.Bind(t)
	c.upkeep.Bind(t)
	proposals.Proposals{Log: c.log, State: c.state, Documents: c.documents}.Bind(t)
	facts.Facts{Log: c.log, State: c.state, Memory: c.memory}.Bind(t)
	effects.Effects{CID: c.cid, Log: c.log, State: c.state, Blobs: func() effects.Blobs { return c.machine.Blobs }, Act: c.Act}.Bind(t)
	sources.Sources{CID: c.cid, Log: c.log, State: c.state, Blobs: func() sources.Blobs { return c.machine.Blobs }}.Bind(t)
	rpc.Bind(t, rpc.RunUndo, func(ctx context.Context, who rpc.Caller, in rpc.UndoRunRequest) (view.Restored, error) {
		return c.Restore(ctx, view.RestoreRequest{Run: in.Run, DryRun: in.Body.DryRun, By: who.Actor})
	})
	c.parts.Bind(t, c.Health)
	return t
}

// openAsked makes the parts that answer methods about files and documents.
func (c *Computer) openAsked() {
	c.History = history.New(history.Options{
		CID: c.cid, Log: c.log, State: c.state, Workspace: c.workspace, Documents: c.documents, Mirror: c.mirror, Shell: c.shell, Memory: c.memory,
	})
	c.Files = files.New(files.Options{
		Log: c.log, Workspace: c.workspace, Mirror: c.mirror, Boxes: c.boxes, Changed: c.shell.Changed,
		Reserve: c.machine.Reserve, AddMB: c.machine.Config.Storage.AddMB, Free: c.machine.Dir.Free, Logger: c.logger,
	})
	c.Server = gitserve.New(gitserve.Options{
		Boxes: c.boxes, Workspace: c.workspace, Mirror: c.mirror, Changed: c.shell.Changed, Append: c.log.Append, Room: c.machine.Reserve.Check,
		PushBytes: int64(c.machine.Config.Storage.AddMB) << 20, Logger: c.logger,
	})
	c.Commands = commands.New(commands.Options{
		Log: c.log, Workspace: c.workspace, Mirror: c.mirror, Boxes: c.boxes, Mounts: c.mounts, Shell: c.shell,
		Reserve: c.machine.Reserve, Secrets: c.machine.Secrets, Getenv: c.machine.Getenv, Keys: c.machine.Gateway.KeyNames(), Awake: c.ctx, Logger: c.logger,
	})
}

// Fork makes the beginning of another computer in dir, which must exist and be empty, from
// a checkpoint of this one; if checkpoint is empty, one is made of the current state.
func (c *Computer) Fork(ctx context.Context, by contract.Actor, cid contract.CID, dir, name, checkpoint string) error {
	return fork.Source{
		CID: c.cid, Log: c.log, State: c.state, Workspace: c.workspace, Boxes: c.boxes, Now: c.History.Checkpoint,
		Snapshot: c.mounts.Snapshot, Driver: c.machine.Driver, Free: c.machine.Dir.Free, Logger: c.logger,
	}.Take(ctx, by, cid, dir, name, checkpoint)
}
