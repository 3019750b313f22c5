package task

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/associate/verify"
	"choir.dev/choiros/internal/dispatch/loops"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/dispatch/summary"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/harness"
	story "choir.dev/choiros/internal/run"
	"choir.dev/choiros/internal/tool/boxtools"
)

// verify runs the checks on a merged tree, each in a box of its own. They are judged by their exit codes
// and by how many tests their runners report.
func (a *attempt) verify(ctx context.Context, m *ports.Merged) contract.Verification {
	if a.ofDocument(m.Changes) {
		return a.verifyDocument(ctx, m)
	}
	b := &bench{attempt: a, merged: *m}
	defer b.release()
	e, err := verify.Collect(ctx, b, verify.Request{Spec: a.task.Verify, Tree: m.Tree, Changes: m.Changes, Installed: m.Installed, Left: summary.LeftBehind(m.Left), Words: a.words()})
	if err != nil {
		e.Cut = true
		e.Notes = append(e.Notes, "what to check could not be found out: "+summary.OneLine(fault.Text(err), 500))
		return verify.Judge(e)
	}
	m.Scope = e.Scope()
	if summary.TouchesShell(m.Changes) && e.Profile != contract.VerifyNone && verify.Judge(e).Status == contract.VerificationPass {
		a.render(ctx, *m, &e)
	}
	return verify.Judge(e)
}

// render lets a browser open the desktop, as one more check.
func (a *attempt) render(ctx context.Context, m ports.Merged, e *verify.Evidence) {
	if a.host.Render == nil {
		e.Notes = append(e.Notes, "the desktop was not rendered, only type-checked and built")
		return
	}
	cmd, err := a.host.Render.Render(ctx, a.overlay, m.Commit)
	if err != nil {
		cmd = contract.Command{Argv: []string{"render"}, ExitCode: -1, Stderr: summary.OneLine(fault.Told(err), 1000)}
	}
	e.Sent = append(e.Sent, verify.Ran{Check: verify.Check{Name: "renders"}, Command: bound(cmd), Count: verify.Count{Runner: verify.ExitCode}})
}

// words returns what the user wrote to this run.
func (a *attempt) words() string {
	var words []string
	a.run.Story(func(s *story.Run) { words = append([]string{s.Prompt.Text}, s.Steering...) })
	return strings.Join(words, "\n")
}

// bench runs checks in verify boxes.
type bench struct {
	attempt   *attempt
	merged    ports.Merged
	installed [3][]ports.Dependencies // indexed by the verification's trees, see tree
}

// tree returns the index of one of a verification's trees: 0 is the change with the base's files that
// judge it, 1 the change as it is, and 2 the base.
func (b *bench) tree(base bool, restore []string) int {
	switch {
	case base:
		return 2
	case len(restore) > 0:
		return 0
	}
	return 1
}

// Install implements verify.Bench.
func (b *bench) Install(ctx context.Context, locks []verify.Lock, of contract.LockOf, base bool, restore []string) []contract.Installation {
	if b.attempt.host.Install == nil || ctx.Err() != nil {
		return nil
	}
	r := ports.LockRequest{Run: b.attempt.ref.Run, Task: b.attempt.ref.Task, Overlay: b.attempt.overlay, Commit: b.merged.Commit, Restored: restore, Of: of, Locks: locks}
	at := b.tree(base, restore)
	if base {
		r.Commit = b.attempt.now.Base
	}
	got, said := b.attempt.host.Install.Install(ctx, r)
	if got != nil {
		b.installed[at] = append(b.installed[at], got)
	}
	return said
}

// dependencies returns the packages for checks on a tree: those that its own lock files name, or, if none
// were installed for it, those of tree 0.
func (b *bench) dependencies(base bool, restore []string) []ports.Dependencies {
	if own := b.installed[b.tree(base, restore)]; len(own) > 0 {
		return own
	}
	return b.installed[0]
}

func (b *bench) release() {
	for _, list := range b.installed {
		for _, d := range list {
			d.Release()
		}
	}
}

// GatherFacts implements verify.Bench. If the files' names tell everything, as for a text that belongs to no
// project, it opens no box.
func (b *bench) GatherFacts(ctx context.Context, paths []string) (base, change verify.Facts, err error) {
	if names, ok := verify.Plain(paths); ok {
		there, err := b.attempt.host.Workspace.Contains(ctx, []string{b.attempt.now.Base, b.merged.Commit}, paths, names)
		if err != nil {
			return base, change, err
		}
		if len(there) == 2 {
			return verify.Loose(paths, there[0]), verify.Loose(paths, there[1]), nil
		}
	}
	err = b.attempt.inVerifyBox(ctx, ports.BoxRequest{Commit: b.merged.Commit}, func(box ports.Box) error {
		if base, err = b.attempt.facts(ctx, box, map[string]any{"paths": paths, "base": true}); err != nil {
			return err
		}
		change, err = b.attempt.facts(ctx, box, map[string]any{"paths": paths})
		return err
	})
	return base, change, err
}

// Restored implements verify.Bench.
func (b *bench) Restored(ctx context.Context, paths, restore []string) (facts verify.Facts, err error) {
	err = b.attempt.inVerifyBox(ctx, ports.BoxRequest{Commit: b.merged.Commit}, func(box ports.Box) error {
		facts, err = b.attempt.facts(ctx, box, map[string]any{"paths": paths, "restore": restore})
		return err
	})
	return facts, err
}

// Run implements verify.Bench.
func (b *bench) Run(ctx context.Context, c verify.Check, base bool, restore []string) verify.Ran {
	commit := b.merged.Commit
	if base {
		commit = b.attempt.now.Base
	}
	return b.attempt.check(ctx, commit, c, restore, b.dependencies(base, restore))
}

func (a *attempt) facts(ctx context.Context, b ports.Box, in map[string]any) (verify.Facts, error) {
	var facts verify.Facts
	args, err := json.Marshal(in)
	if err != nil {
		return facts, err
	}
	res, err := a.checkBox(ctx, b, boxtools.Facts, args)
	if err != nil {
		return facts, err
	}
	if !res.OK {
		return facts, errors.New(res.Output)
	}
	return facts, json.Unmarshal(res.Data, &facts)
}

func (a *attempt) check(ctx context.Context, commit string, c verify.Check, restore []string, deps []ports.Dependencies) verify.Ran {
	got := verify.Ran{Check: c, Command: contract.Command{Argv: c.Argv, ExitCode: -1}, Count: verify.Count{Runner: verify.ExitCode}}
	name, in := boxtools.Check, map[string]any{"argv": c.Argv, "cwd": c.Cwd, "timeout_s": c.TimeoutS, "runner": c.Runner, "restore": restore}
	if len(restore) == 0 {
		delete(in, "restore")
	}
	if c.Theme != "" {
		name, in = boxtools.CheckTheme, map[string]any{"path": c.Theme}
		got.Command.Argv = []string{"check-theme", c.Theme}
	}
	args, err := json.Marshal(in)
	if err == nil {
		err = a.inVerifyBox(ctx, ports.BoxRequest{Commit: commit, Go: c.Runner == verify.GoTest, Shell: c.OfShell(), Dependencies: deps}, func(b ports.Box) error {
			res, err := a.checkBox(ctx, b, name, args)
			switch {
			case err != nil:
				return err
			case c.Theme != "" && res.OK:
				got.Command.ExitCode = 0
			case c.Theme != "":
				got.Command.ExitCode, got.Command.Stderr = 1, res.Output
			case res.Command == nil: // the tree lacks the check's folder
				got.Command.Stderr = summary.OneLine(res.Output, 1000)
			default:
				got.Command = *res.Command
				if err := json.Unmarshal(res.Data, &got.Count); err != nil {
					return err
				}
				return got.Count.Check()
			}
			return nil
		})
	}
	if err != nil {
		got.Command.ExitCode, got.Command.Stderr = -1, summary.OneLine(fault.Told(err), 1000)
		got.Count, got.NotRun = verify.Count{Runner: verify.ExitCode}, true
	}
	got.Command = bound(got.Command)
	return got
}

// inVerifyBox calls f with a verification's box of its own. If the box dies during that, and not because
// it used up its resources, this says nothing about the tree, and f is called again with another box.
func (a *attempt) inVerifyBox(ctx context.Context, r ports.BoxRequest, f func(ports.Box) error) error {
	r.Kind, r.Run, r.Task, r.Overlay = contract.BoxVerify, a.ref.Run, a.ref.Task, a.overlay
	for try := 1; ; try++ {
		r.ID = loops.BoxID("v")
		box, err := a.host.Boxes.Open(ctx, r)
		if err != nil {
			return err
		}
		err = f(box)
		died := lost(err) && ctx.Err() == nil && endsWithin(box, endsAfter) && !fault.Is(box.Err(), fault.Exhausted)
		a.host.kill(a.ref.Run, box)
		if !died || try == loops.MaxOpenings {
			return err
		}
		a.host.Logger.Warn("a check's box died; it is made again in another", "task", a.ref.Task, "box", r.ID, "error", err)
	}
}

func bound(c contract.Command) contract.Command {
	const keep = 8 << 10
	c.Truncated = c.Truncated || len(c.Stdout) > keep || len(c.Stderr) > keep
	c.Stdout, c.Stderr = harness.Clip(c.Stdout, keep), harness.Clip(c.Stderr, keep)
	c.DurationMS = max(0, c.DurationMS)
	return c
}
