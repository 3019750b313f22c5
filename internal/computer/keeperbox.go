package computer

import (
	"context"

	"choir.dev/choiros/internal/computer/commands"
	"choir.dev/choiros/internal/computer/consistency"
	"choir.dev/choiros/internal/computer/fork"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/newfile"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/shell"
	"choir.dev/choiros/internal/workspace"
)

// seedWorkspace makes a computer's tree unless there is one. It ensures that everything of
// a new computer is on disk before its first event: its tree, its state, and their names.
func (c *Computer) seedWorkspace(ctx context.Context) error {
	const op = "computer.seedWorkspace"
	there, err := c.boxes.Volumes().Exists(ctx, sandbox.Live(""))
	switch {
	case err != nil:
		return fault.Wrap(op, err)
	case !there:
		return shell.Seed(ctx, c.boxes.Volumes(), c.machine.Source)
	case c.log.Last() == 0: // the tree was renamed into place, but a crash may have come before the sync
		return fault.Wrap(op, newfile.Sync(c.path()))
	}
	return nil
}

// openWorkspace opens the workspace on the keeper.
func (c *Computer) openWorkspace(ctx context.Context) error {
	if err := c.seedWorkspace(ctx); err != nil {
		return err
	}
	unseen, err := commands.LeftUnseen(ctx, c.state)
	if err != nil {
		return err
	}
	forked, err := fork.Read(c.path())
	if err != nil {
		return err
	}
	git := c.machine.Config.Git
	c.workspace, err = workspace.Open(ctx, workspace.Options{
		CID: c.cid, Keeper: c.keeper, Log: c.log, Volumes: c.boxes.Volumes(), Seq: c.mirror.Seq,
		AutoTasks: git.AutoCommitThreshold, AutoInterval: git.AutoCommitEvery(), KeptTrees: git.KeptTrees, KeptFor: git.KeptFor(), Unseen: unseen, Whole: forked != nil, Logger: c.logger,
	})
	if err != nil {
		return consistency.OfOpening(err)
	}
	c.keeper.Recover(c.workspace.Recover)
	c.mirror.Attach(c.workspace)
	return nil
}
