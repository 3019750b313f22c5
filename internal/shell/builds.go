package shell

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sync/atomic"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/sandbox"
)

// Bounds of one build of the desktop.
const (
	buildWall  = 3 * time.Minute
	buildBytes = 256 << 20
	buildFiles = 5000
	buildsKept = 8
)

// builds makes and keeps builds of the shell, one folder per git tree of choiros/. The kept
// build of the current shell is painted first, and is served whenever there is no live
// page.
type builds struct {
	shell *Shell
	want  chan struct{}
	busy  atomic.Bool // a build is being made, or it is being checked whether one is needed
}

// changed says that the shell may have changed.
func (b *builds) changed() {
	select {
	case b.want <- struct{}{}:
	default:
	}
}

// run makes builds when they are needed, until ctx ends.
func (b *builds) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.want:
		}
		b.busy.Store(true)
		err := b.ensure(ctx)
		b.busy.Store(false)
		if err != nil && ctx.Err() == nil {
			b.shell.logger.Warn("the desktop could not be built", "error", err)
		}
	}
}

// ensure builds the shell of the newest checkpoint that is verified or that a
// restore brought back, unless its build is kept.
func (b *builds) ensure(ctx context.Context) error {
	if err := b.shell.state.CaughtUp(ctx, b.shell.log); err != nil {
		return err
	}
	checkpoints, err := b.shell.state.Checkpoints(ctx, 0, 50)
	if err != nil {
		return err
	}
	for _, k := range checkpoints {
		if k.Verified != contract.VerificationPass && k.Kind != contract.CheckpointRestore {
			continue
		}
		tree, err := b.shell.workspace.ObjectID(ctx, k.Commit, "choiros")
		if err != nil {
			return err
		}
		if kept, err := b.shell.opts.Volumes.Exists(ctx, build(tree)); kept || err != nil {
			return err
		}
		return b.build(ctx, k.Commit, tree)
	}
	return nil
}

// BuildsDir is the cache in which a computer keeps builds of its shell.
const BuildsDir = "builds"

// build is the kept build of a tree of the shell.
func build(tree string) sandbox.Volume { return sandbox.Cache(BuildsDir + "/" + tree) }

// build builds choiros/ of a commit in a box without network, on a throwaway copy, and
// keeps the result.
func (b *builds) build(ctx context.Context, commit, tree string) error {
	const op = "shell.build"
	start := time.Now()
	ctx, cancel := awake.WithTimeout(ctx, buildWall)
	defer cancel()
	modules, err := b.shell.Modules(ctx)
	if err != nil {
		return err
	}
	snapshot, release, err := b.shell.opts.Snapshot(ctx, commit)
	if err != nil {
		return err
	}
	defer release()
	id := "build-" + tree[:12]
	out := sandbox.Output(id)
	if err := errors.Join(b.shell.opts.Volumes.Discard(ctx, out), b.shell.opts.Volumes.Make(ctx, out)); err != nil {
		return fault.Wrap(op, err)
	}
	defer func() {
		if err := b.shell.opts.Volumes.Discard(context.WithoutCancel(ctx), out); err != nil {
			b.shell.logger.Warn("what a build left could not be moved aside", "volume", out.String(), "error", err)
		}
	}()
	limits := b.shell.opts.Limits()
	limits.DiskBytes, limits.DiskInodes, limits.Counted, limits.WallTime = buildBytes, buildFiles, []sandbox.Volume{out}, buildWall
	box, err := b.shell.opts.Box(ctx, sandbox.BoxSpec{
		ID: id, Kind: contract.BoxVerify, Root: "/computer/choiros",
		Mounts: []sandbox.Mount{
			{Target: "/computer", Mode: sandbox.Overlay, Lower: snapshot},
			{Source: modules, Target: "/computer/choiros/node_modules", Mode: sandbox.ReadOnly},
			{Source: out, Target: "/out", Mode: sandbox.ReadWrite},
		},
		Limits: limits,
	})
	if err != nil {
		return err
	}
	defer box.Kill() //nolint:errcheck // killed below where it matters
	_, stderr, exit, err := guest.NewClient(box.Tether().Transport()).Output(ctx, 8<<10, "node", "node_modules/vite/bin/vite.js", "build", "--configLoader", "runner", "--outDir", "/out", "--emptyOutDir")
	if err == nil && exit.Code != 0 {
		err = fmt.Errorf("vite build ended with code %d: %s", exit.Code, contract.Clip(string(stderr), 2000))
	}
	if err = errors.Join(err, box.Kill()); err != nil {
		return fault.Wrap(op, err)
	}
	files, bytes, err := b.keep(ctx, out, tree)
	if err != nil {
		return fault.Wrap(op, err)
	}
	_, err = b.shell.log.Append(ctx, contract.Draft{
		ID: contract.DeriveID(tree, "build"), Actor: contract.System(), Type: "desktop.built", Subject: "build/" + tree,
		Data: contract.DesktopBuilt{Commit: commit, Tree: tree, Files: files, Bytes: bytes, DurationMS: time.Since(start).Milliseconds()},
	})
	if err != nil {
		return err
	}
	return b.sweep(ctx)
}

// keep moves the result of a build to where builds are kept, if it contains only what it
// may.
func (b *builds) keep(ctx context.Context, dist sandbox.Volume, tree string) (files int, bytes int64, err error) {
	left, err := b.shell.opts.Volumes.Files(ctx, dist)
	if err != nil {
		return 0, 0, err
	}
	if files, bytes, err = measure(left); err != nil {
		return 0, 0, err
	}
	return files, bytes, b.shell.opts.Volumes.Keep(ctx, dist, build(tree))
}

// measure counts a build's files and bytes. Untrusted code wrote it, so only folders and
// regular files are accepted.
func measure(left fs.FS) (files int, bytes int64, err error) {
	err = fs.WalkDir(left, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if !d.Type().IsRegular() {
			return fmt.Errorf("the build left %.200q, which is not a regular file", path.Base(name))
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if files, bytes = files+1, bytes+info.Size(); files > buildFiles || bytes > buildBytes {
			return errors.New("the build is too large to keep")
		}
		return nil
	})
	if err == nil {
		_, err = fs.Stat(left, "index.html")
	}
	return files, bytes, err
}

// sweep drops all but the newest builds.
func (b *builds) sweep(ctx context.Context) error {
	kept, err := b.shell.state.Builds(ctx, buildsKept)
	if err != nil {
		return err
	}
	keep := map[string]bool{}
	for _, k := range kept {
		keep[k.Tree] = true
	}
	list, err := b.shell.opts.Volumes.List(ctx, sandbox.Cache(BuildsDir))
	if err != nil {
		return fault.Wrap("shell.builds", err)
	}
	var errs []error
	for _, e := range list {
		if len(kept) == buildsKept && !keep[e.Name] {
			errs = append(errs, b.shell.opts.Volumes.Discard(ctx, build(e.Name)))
		}
	}
	return errors.Join(errs...)
}

// Build is the kept build of the shell as checkpointed
// last, else the newest that is kept, else the base.
func (s *Shell) Build(ctx context.Context) (fs.FS, error) {
	tree, err := s.workspace.ObjectID(ctx, "", "choiros")
	if err == nil {
		if f, err := s.opts.Volumes.Files(ctx, build(tree)); err == nil {
			return f, nil
		}
	} else if !fault.Is(err, fault.NotFound) {
		return nil, err
	}
	kept, err := s.state.Builds(ctx, buildsKept)
	if err != nil {
		return nil, err
	}
	for _, k := range kept {
		if f, err := s.opts.Volumes.Files(ctx, build(k.Tree)); err == nil {
			return f, nil
		}
	}
	return s.opts.Build, nil
}
