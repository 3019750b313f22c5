package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// treeFiles is the size of the tree that checkpoints are measured on.
const treeFiles = 10_000

// checkpoints makes checkpoints of a tree of which one file changed, in turns
// with git on an equal tree with the same durability.
func checkpoints(ctx context.Context, e *env) (_ []Result, err error) {
	if _, err := exec.LookPath("git"); err != nil {
		return nil, missingError{"git is not installed"}
	}
	g, err := openGround(ctx, e)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	files := e.size(treeFiles, 100)
	raw := filepath.Join(e.dir, "raw")
	for _, root := range []string{g.live, raw} {
		for i := range files {
			if err := write(root, name(i), fmt.Sprintf("file %d\n%0200d\n", i, i)); err != nil {
				return nil, err
			}
		}
	}
	mounts := []sandbox.Mount{g.tree()}
	for _, dir := range []string{"snapshots", "uppers"} {
		source := filepath.Join(e.dir, dir)
		if err := os.MkdirAll(source, 0o755); err != nil {
			return nil, err
		}
		mounts = append(mounts, sandbox.Mount{Source: source, Target: "/" + dir, Mode: sandbox.ReadWrite})
	}
	box, _, err := g.box(ctx, contract.BoxKeeper, mounts...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, box.Kill()) }()
	keeper := wire.NewClient(box.Tether().Transport())
	checkpoint := func(message string) error {
		return keeper.Call(ctx, "checkpoint", wire.CheckpointRequest{Note: wire.Note{Kind: "manual", Message: message}}, nil)
	}
	git := func(args ...string) error { return runGit(ctx, raw, args...) }
	// The second of each finds every file as it was, and remembers that.
	if err := errors.Join(checkpoint("all"), git("init", "-q"), git("add", "-A"), git("commit", "-qm", "all")); err != nil {
		return nil, err
	}
	change := func(i int) error {
		text := fmt.Sprintf("change %d\n", i)
		n := name(i * 37 % files)
		return errors.Join(write(g.live, n, text), write(raw, n, text))
	}
	var ours, theirs times
	commit := func() error { return errors.Join(git("add", "-A"), git("commit", "-qm", "x")) }
	for i := range e.rounds(20, 8, 8*time.Second) {
		if err := change(i); err != nil {
			return nil, err
		}
		keep := func() error { return checkpoint(fmt.Sprint(i)) }
		a, b, fa, fb := &ours, &theirs, keep, commit
		if i%2 == 1 {
			a, b, fa, fb = b, a, fb, fa
		}
		if err := errors.Join(a.timed(fa), b.timed(fb)); err != nil {
			return nil, err
		}
		if i < 2 && !e.Tiny {
			ours, theirs = nil, nil
		}
	}
	return []Result{{ID: "checkpoint", What: fmt.Sprintf("checkpoint, %d files, one changed", files), Ours: ours.ms(), Raw: theirs.ms(),
		RawWhat: "git add -A && git commit with core.fsync=all on an equal tree", Ratio: over(ours.p50(), theirs.p50()), Target: atMost(ofRatio, 1, "×"),
		Note: "The keeper's engine in its box, asked over the tether. The event that names the checkpoint is an append more (see there)." + fastest(ours, theirs)}}, nil
}

func name(i int) string { return fmt.Sprintf("workspace/d%02d/e%d/f%d.txt", i/100, i/10%10, i) }

func write(root, name, text string) error {
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

func runGit(ctx context.Context, dir string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", append([]string{"-c", "core.fsync=all", "-c", "core.fsyncMethod=fsync", "-c", "gc.auto=0",
		"-c", "maintenance.auto=false", "-c", "user.name=b", "-c", "user.email=b@example.invalid"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("git %s: %w: %s", args[0], err, oneLine(string(out)))
	}
	return nil
}
