package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"choir.dev/choiros/bench/report"
	"choir.dev/choiros/internal/view"
)

// treeSizes are the numbers of files in the trees in which costs are measured.
var treeSizes = []int{1_000, 10_000, 100_000}

// inTree holds how long a user's acts took in a tree of one size.
type inTree struct {
	files                                     int
	prompt, watched, command, checkpoint, git sample
	look                                      time.Duration   // reading the metadata of every file once, on all processors
	rows                                      []report.Result // checkpoints
}

// trees measures the same acts in computers with few and with many files.
func trees(ctx context.Context, e *env) ([]report.Result, error) {
	if _, err := exec.LookPath("git"); err != nil {
		return nil, missingError{"git is not installed"}
	}
	sizes := treeSizes
	if e.Tiny {
		sizes = []int{10, 20}
	}
	var out []report.Result
	var seen []inTree
	for _, files := range sizes {
		t, err := e.tree(ctx, files)
		if err != nil {
			return out, fmt.Errorf("%d files: %w", files, err)
		}
		seen = append(seen, t)
		for _, c := range []struct {
			name string
			s    sample
		}{{"prompt", t.prompt}, {"prompt beside a terminal", t.watched}, {"choir exec -- true", t.command}, {"checkpoint", t.checkpoint}, {"git add, commit", t.git}} {
			e.plot(curveFiles, c.name, files, c.s.p50())
		}
		if files > treeSizes[0] {
			out = append(out, t.rows...)
		}
	}
	few, many := seen[0], seen[len(seen)-1]
	against := func(id, what string, ours, raw sample, target float64) report.Result {
		return ours.tell(report.Result{ID: id, What: fmt.Sprintf("%s, %d files against %d", what, many.files, few.files), Raw: raw.ms(),
			RawWhat: fmt.Sprintf("the same with %d files", few.files), Ratio: over(ours.p50(), raw.p50()), Target: report.AtMost(report.OfRatio, target, "×")})
	}
	prompt := against("tree-prompt", "whole prompt, no open writer", many.prompt, few.prompt, 1.5)
	prompt.Note = rehearsed
	look := many.prompt.p50() + many.look
	watched := many.watched.tell(report.Result{ID: "tree-prompt-watched", What: fmt.Sprintf("whole prompt beside an open terminal, %d files", many.files), Raw: millis(look),
		RawWhat: fmt.Sprintf("the same without the terminal, and one lstat of every file on all processors (%s)", millis(many.look)),
		Ratio:   over(many.watched.p50(), look), Target: report.AtMost(report.OfRatio, 1, "×"), Note: "The terminal is a command of the user's that goes on: somebody who may write at any time."})
	command := against("tree-exec", "choir exec -- true", many.command, few.command, 2)
	return append([]report.Result{prompt, watched, command}, out...), nil
}

// tree measures in one computer with so many files.
func (e *env) tree(ctx context.Context, files int) (t inTree, err error) {
	t.files = files
	inner := *e
	if inner.dir, err = os.MkdirTemp(e.dir, "tree"); err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(inner.dir)) }()
	w, err := inner.openWorld(ctx)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if err := errors.Join(w.fill(ctx, files), e.quiet(ctx, w.PID)); err != nil {
		return t, err
	}
	least := max(2, min(8, 20_000/files))
	prompt := act{What: "prompt", Tries: 12, Least: least, Do: func(ctx context.Context, _ int) error { return w.prompt(ctx) }}
	if _, t.prompt, err = w.measure(ctx, prompt); err != nil {
		return t, err
	}
	if _, t.command, err = w.measure(ctx, act{What: "choir exec", Tries: 15, Least: least, Do: w.commandTrue}); err != nil {
		return t, err
	}
	if err := w.checkpoints(ctx, &t, least); err != nil {
		return t, err
	}
	if t.look, err = lookAtAll(filepath.Join(inner.dir, "raw")); err != nil {
		return t, err
	}
	done, err := w.open(ctx)
	if err != nil {
		return t, err
	}
	_, t.watched, err = w.measure(ctx, prompt)
	return t, errors.Join(err, done())
}

// open starts a command of the user's that keeps the live tree open for writing until done
// is called.
func (w *world) open(ctx context.Context) (done func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	started, ended := make(chan struct{}), make(chan error, 1)
	go func() { // ends when it is cancelled, which done waits for
		_, err := w.api.Exec(ctx, view.ExecRequest{Argv: []string{"sleep", "3600"}}, view.ExecIO{Started: func(string, uint64) { close(started) }})
		ended <- err
	}()
	select {
	case <-started:
		return func() error { cancel(); <-ended; return nil }, nil
	case err := <-ended:
		cancel()
		return nil, errors.Join(err, errors.New("the terminal ended"))
	}
}

// checkpoints makes checkpoints through the API of a tree in which one file changed,
// alternating with git on an equal tree with the same durability.
func (w *world) checkpoints(ctx context.Context, t *inTree, least int) error {
	raw := filepath.Join(w.env.dir, "raw")
	for i := range t.files {
		if err := write(raw, name(i), fileText(i)); err != nil {
			return err
		}
	}
	git := func(args ...string) error { return runGit(ctx, raw, args...) }
	// The second one finds every file unchanged, and git's index remembers that.
	if err := errors.Join(git("init", "-q"), git("add", "-A"), git("commit", "-qm", "all")); err != nil {
		return err
	}
	change := func(ctx context.Context, i int) error {
		text, n := fmt.Sprintf("change %d\n", i), name((i+2)*37%t.files)
		_, err := w.api.Put(ctx, view.Put{Path: n}, bytes.NewReader([]byte(text)))
		return errors.Join(err, write(raw, n, text))
	}
	if err := change(ctx, -1); err != nil {
		return err
	}
	var commits sample
	r, ours, err := w.measure(ctx, act{ID: fmt.Sprint("checkpoint-", t.files), What: fmt.Sprintf("checkpoint, %d files, one changed", t.files), Tries: 15, Least: least + 1,
		Target: report.AtMost(report.OfRatio, 0.7, "×"), RawWhat: "git add -A && git commit with core.fsync=all on an equal tree",
		Do: func(ctx context.Context, i int) error {
			done, err := w.api.Checkpoint(ctx, fmt.Sprint("change ", i))
			if err == nil && !done.Created {
				err = errors.New("there was nothing to keep")
			}
			return err
		},
		Raw: func(context.Context, int) error {
			return commits.timed(func() error { return errors.Join(git("add", "-A"), git("commit", "-qm", "x")) })
		},
		Between: change})
	t.checkpoint, t.git = ours, commits
	t.rows = []report.Result{r}
	return err
}

// lookAtAll is how long it takes to read the metadata of every file once, on all
// processors.
func lookAtAll(root string) (time.Duration, error) {
	at := time.Now()
	var g errgroup.Group
	g.SetLimit(runtime.NumCPU())
	tops, err := filepath.Glob(filepath.Join(root, "workspace", "*"))
	if err != nil {
		return 0, err
	}
	for _, top := range tops {
		g.Go(func() error {
			return filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
				if err != nil {
					return err
				}
				_, err = os.Lstat(path)
				return err
			})
		})
	}
	err = g.Wait()
	return time.Since(at), err
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
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", append([]string{"-c", "core.fsync=all", "-c", "core.fsyncMethod=fsync", "-c", "gc.auto=0",
		"-c", "maintenance.auto=false", "-c", "user.name=b", "-c", "user.email=b@example.invalid"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("git %s: %w: %s", args[0], err, report.OneLine(strings.TrimSpace(string(out))))
	}
	return nil
}
