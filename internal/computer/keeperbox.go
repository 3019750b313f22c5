package computer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/shell"
	"choir.dev/choiros/internal/workspace"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// keeperBox keeps the keeper's box alive: it is opened when it is first needed
// and again when it died. What a call left half done when its box died is
// finished before the next call (see workspace.Recover).
type keeperBox struct {
	c *Computer

	mu     sync.Mutex // held while a box is opened
	box    sandbox.Box
	keeper wire.Keeper
	count  int
}

// current returns the keeper of the living box, opening one when there is none.
func (k *keeperBox) current(ctx context.Context) (wire.Keeper, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.box != nil {
		select {
		case <-k.box.Done():
			if k.c.ctx.Err() != nil {
				break
			}
			k.c.logger.Warn("the keeper's box ended; opening another", "error", k.box.Err())
		default:
			return k.keeper, nil
		}
	}
	if k.c.ctx.Err() != nil {
		return nil, fault.New("computer.keeper", fault.Unavailable, "The computer is going to sleep.", nil)
	}
	k.count++
	box, err := k.c.box(ctx, sandbox.BoxSpec{
		ID: fmt.Sprintf("keeper-%d", k.count), Kind: contract.BoxKeeper, Root: "/computer",
		Mounts: []sandbox.Mount{
			{Source: sandbox.Live(""), Target: "/computer", Mode: sandbox.ReadWrite},
			{Source: sandbox.Snapshot(""), Target: "/snapshots", Mode: sandbox.ReadWrite},
			{Source: sandbox.Written(""), Target: "/uppers", Mode: sandbox.ReadOnly},
		},
		Env:    wire.Limits{LargestFile: int64(k.c.machine.Config.Storage.LargeFileMB) << 20, ChunkBytes: int64(k.c.machine.Config.Storage.LargeFilesMB) << 20, Files: k.c.machine.Config.Storage.Files}.Env(),
		Lock:   sandbox.Live(""),
		Limits: sandbox.Limits{MemoryBytes: int64(k.c.machine.Config.Runtime.MemoryMB) << 20, Pids: k.c.machine.Config.Runtime.Pids},
	})
	if err != nil {
		return nil, err
	}
	k.box, k.keeper = box, wire.NewClient(box.Tether().Transport())
	if k.count > 1 && k.c.workspace != nil {
		// The engine rolls forward by itself; the events that belong to it are
		// appended by Recover, which waits for the call that found the box dead.
		k.c.once("the recovery of the workspace", k.c.workspace.Recover)
	}
	return k.keeper, nil
}

// Call implements wire.Keeper.
func (k *keeperBox) Call(ctx context.Context, verb string, req, reply any) error {
	in, err := k.current(ctx)
	if err != nil {
		return err
	}
	return k.explain(in.Call(ctx, verb, req, reply))
}

// explain adds why the box ended to the error of a call that it did not answer.
func (k *keeperBox) explain(err error) error {
	if !fault.Is(err, fault.Unavailable) {
		return err
	}
	k.mu.Lock()
	box := k.box
	k.mu.Unlock()
	if boxEnded(box) {
		return errors.Join(err, box.Err())
	}
	return err
}

// Stream implements wire.Keeper.
func (k *keeperBox) Stream(ctx context.Context, verb string, query any, body io.Reader) (*http.Response, error) {
	in, err := k.current(ctx)
	if err != nil {
		return nil, err
	}
	resp, err := in.Stream(ctx, verb, query, body)
	return resp, k.explain(err)
}

// seedWorkspace makes a new computer's tree, wholly on disk when it returns.
func (c *Computer) seedWorkspace(ctx context.Context) error {
	there, err := c.boxes.Volumes().Exists(ctx, sandbox.Live(""))
	if err != nil {
		return fault.Wrap("computer.seedWorkspace", err)
	}
	if there { // it got its name before somebody died, who knows how shortly
		return fault.Wrap("computer.seedWorkspace", datadir.SyncDir(c.path()))
	}
	return shell.Seed(c.path("workspace"), c.machine.Source)
}

// openWorkspace opens the tree behind the keeper.
func (c *Computer) openWorkspace(ctx context.Context) error {
	if err := c.seedWorkspace(ctx); err != nil {
		return err
	}
	git := c.machine.Config.Git
	var err error
	c.workspace, err = workspace.Open(ctx, workspace.Options{
		CID: c.cid, Keeper: c.keeper, Log: c.log, Volumes: c.boxes.Volumes(), Seq: c.mirror.Seq,
		AutoTasks: git.AutoCommitThreshold, AutoInterval: git.AutoCommitEvery(), Logger: c.logger,
	})
	if fault.Is(err, fault.Internal) {
		// What is not the disk's, the box's or the caller's is the tree's.
		err = fault.New("computer.openWorkspace", fault.Damaged, "Recover it: if the history can't be had, it begins anew with the files as they are, and the old one is kept aside.", ofHistory{fmt.Errorf("the files or their history can't be opened: %w", err)})
	}
	if err == nil {
		c.mirror.Attach(c.workspace)
	}
	return err
}

// snapshots counts who uses a commit's checkout, for the workspace does not.
type snapshots struct {
	mu   sync.Mutex
	uses map[string]int
}

// snapshot checks a commit out, in layers; release lets it go.
func (c *Computer) snapshot(ctx context.Context, commit string) (layers []sandbox.Volume, release func(), err error) {
	c.snaps.mu.Lock()
	defer c.snaps.mu.Unlock()
	if layers, err = c.workspace.Snapshot(ctx, commit); err != nil {
		return nil, nil, err
	}
	c.snaps.uses[commit]++
	return layers, sync.OnceFunc(func() {
		c.snaps.mu.Lock()
		defer c.snaps.mu.Unlock()
		if c.snaps.uses[commit]--; c.snaps.uses[commit] > 0 {
			return
		}
		delete(c.snaps.uses, commit)
		ctx, cancel := awake.WithTimeout(c.ctx, time.Minute)
		defer cancel()
		if err := c.workspace.Release(ctx, commit); err != nil && c.ctx.Err() == nil {
			c.logger.Warn("a snapshot could not be released", "commit", commit, "error", err)
		}
	}), nil
}
