package verify

import (
	"context"
	"slices"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/lockfile"
)

// Bench runs the parts of a verification, each in a fresh copy of a tree in which nothing
// has run before.
type Bench interface {
	// GatherFacts gathers the facts of the base and of the change around paths.
	GatherFacts(ctx context.Context, paths []string) (base, change Facts, err error)
	// Restored gathers the facts of the change with some paths restored from the base.
	Restored(ctx context.Context, paths, restore []string) (Facts, error)
	// Run runs a check on the base, or on the change with some paths restored from the
	// base.
	Run(ctx context.Context, c Check, base bool, restore []string) Ran
	// Install installs the packages that locks of that tree name, for the checks that are
	// run on it from then on. of says whose locks they are.
	Install(ctx context.Context, locks []Lock, of contract.LockOf, base bool, restore []string) []contract.Installation
}

// Lock is a project's lock file whose packages are not installed.
type Lock struct {
	Dir  string
	Tool lockfile.Tool
}

// wanted lists the locks of f's projects whose packages are not installed in the live tree.
func wanted(f, live Facts) []Lock {
	var out []Lock
	for _, p := range f.Projects {
		if p.Dir == ShellDir || strings.HasPrefix(p.Dir, ShellDir+"/") {
			continue // the host provides these
		}
		for _, t := range p.Locks {
			if !live.has(p.Dir, t) {
				out = append(out, Lock{p.Dir, t})
			}
		}
	}
	return out
}

// has reports whether a tool's packages are installed in a project's folder.
func (f Facts) has(dir string, t lockfile.Tool) bool {
	return slices.ContainsFunc(f.Projects, func(p Project) bool { return p.Dir == dir && slices.Contains(p.Live, t) })
}

// stale lists the locks that a dependency may belong to which a check lacks: those of the
// check's project for which the live tree's packages were used.
func stale(f Facts, dir string) []Lock {
	var out []Lock
	for _, p := range f.Projects {
		if p.Dir != dir || p.Dir == ShellDir {
			continue
		}
		for _, t := range p.Locks {
			if slices.Contains(p.Live, t) {
				out = append(out, Lock{p.Dir, t})
			}
		}
	}
	return out
}

// relocked reports whether a task changed a file that dependencies are installed from.
func relocked(guards []Guard) bool {
	return slices.ContainsFunc(guards, func(g Guard) bool { return g.Kind == GuardManifest || g.Kind == GuardConfig })
}

// Request is a change to verify.
type Request struct {
	Spec    contract.VerifySpec
	Tree    string // of the change
	Changes []contract.Change
	Words   string // what the user said
	// Installed lists ignored folders that the task put something into.
	Installed []string
	Left      []LeftBehind
}

// Collect gathers the evidence on a change. The base decides which checks there are, and
// what they are run with.
func Collect(ctx context.Context, b Bench, r Request) (Evidence, error) {
	c := &collector{bench: b, request: r, of: contract.LockOfBase, mayChange: true}
	e := &c.evidence
	*e = Evidence{Profile: r.Spec.Profile, Tree: r.Tree, Words: r.Words, Installed: r.Installed, Left: r.Left}
	if e.Profile != contract.VerifyNone {
		if err := c.look(ctx); err != nil {
			return *e, err
		}
	}
	e.Obeyed = Obeyed(e.Base, e.Facts, r.Changes)
	plan, cut := Plan(c.held, e.Profile)
	if len(plan) > 0 {
		c.install(ctx, wanted(c.held, c.held), false, c.restore)
	}
	e.Held = c.run(ctx, plan, cut, c.restore)
	if len(e.Guards) > 0 {
		plan, cut = Plan(e.Facts, e.Profile)
		if relocked(e.Guards) {
			c.of, c.mayChange = contract.LockOfChange, granted(e.Guards, e.Words) || defence.Off(defence.LockBase)
			if c.mayChange {
				c.install(ctx, wanted(e.Facts, e.Facts), false, nil)
			}
		}
		e.After = c.run(ctx, plan, cut, nil)
	}
	e.Sent = c.run(ctx, Commands(r.Spec), false, nil)
	before := e.compare()
	c.of = contract.LockOfBase
	if len(before) > 0 {
		c.install(ctx, wanted(e.Base, c.held), true, nil)
	}
	for _, check := range before {
		e.Before = append(e.Before, b.Run(ctx, check, true, nil))
	}
	if found := e.found(r.Changes); len(found) > 0 && !defence.Off(defence.CheckFound) {
		if err := c.judgeAgain(ctx, found); err != nil {
			return *e, err
		}
	}
	return *e, nil
}

// collector gathers the evidence on one change.
type collector struct {
	bench    Bench
	request  Request
	evidence Evidence

	held           Facts    // of the change, with the files that judge it restored
	restore, paths []string // restore: what is restored; paths: what changed, as far as it is examined
	// The task's own locks are installed only if changing them is what the user asked for;
	// otherwise the checks have the packages of the base's locks.
	of        contract.LockOf
	mayChange bool
}

// look gathers the facts of the base and the change, and which of the changes judge the
// change itself.
func (c *collector) look(ctx context.Context) (err error) {
	e := &c.evidence
	c.paths = []string{}
	size := 0
	for _, ch := range c.request.Changes {
		if ch.PathBase64 != "" || len(c.paths) == maxPaths || len(ch.Path) >= 4096 || size > maxPathBytes {
			e.Cut = true
			continue
		}
		c.paths, size = append(c.paths, ch.Path), size+len(ch.Path)+8
	}
	if e.Base, e.Facts, err = c.bench.GatherFacts(ctx, c.paths); err != nil {
		return err
	}
	c.held, e.Guards = e.Facts, Guards(e.Base, e.Facts, c.request.Changes)
	return c.putBack(ctx, e.Guards)
}

// putBack restores the files that judge the change from the base.
func (c *collector) putBack(ctx context.Context, guards []Guard) (err error) {
	for _, g := range guards {
		c.restore = append(c.restore, g.Path)
	}
	if len(guards) > 0 {
		c.held, err = c.bench.Restored(ctx, c.paths, c.restore)
	}
	return err
}

// install installs the packages of locks and says whether any were installed.
func (c *collector) install(ctx context.Context, locks []Lock, base bool, restore []string) bool {
	if len(locks) == 0 {
		return false
	}
	got := c.bench.Install(ctx, locks, c.of, base, restore)
	for _, i := range got {
		if !slices.ContainsFunc(c.evidence.Locked, func(k contract.Installation) bool {
			return k.Lock == i.Lock && k.Of == i.Of && k.Key == i.Key && k.Problem == i.Problem
		}) {
			c.evidence.Locked = append(c.evidence.Locked, i)
		}
	}
	return slices.ContainsFunc(got, func(i contract.Installation) bool { return i.Problem == "" })
}

// run runs checks until one fails.
func (c *collector) run(ctx context.Context, plan []Check, cut bool, restore []string) []Ran {
	c.evidence.Cut = c.evidence.Cut || cut
	var out []Ran
	for _, check := range plan {
		got := c.bench.Run(ctx, check, false, restore)
		if c.mayChange && got.missing() != "" && c.install(ctx, stale(c.held, check.Cwd), false, restore) {
			got = c.bench.Run(ctx, check, false, restore) // the live packages are not those of the lock
		}
		out = append(out, got)
		if got.Failed() || ctx.Err() != nil {
			break // one failure decides, so the rest would only cost time
		}
	}
	return out
}

// judgeAgain runs the checks once more with further files restored. Names don't show all
// tests: the files in which the base's runner found tests judge the change as well.
func (c *collector) judgeAgain(ctx context.Context, found []Guard) error {
	e := &c.evidence
	if len(e.Guards) == 0 {
		e.After = e.Held // nothing was restored
	}
	e.Guards = append(e.Guards, found...)
	if err := c.putBack(ctx, found); err != nil {
		return err
	}
	c.of, c.mayChange = contract.LockOfBase, true
	plan, cut := Plan(c.held, e.Profile)
	c.install(ctx, wanted(c.held, c.held), false, c.restore)
	e.Held = c.run(ctx, plan, cut, c.restore)
	return nil
}
