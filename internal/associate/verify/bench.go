package verify

import (
	"context"
	"slices"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/lockfile"
)

// Bench runs what a verification needs, each time in a fresh copy of a tree in
// which nothing of it has run before.
type Bench interface {
	// Look gathers what the base and the change have around paths.
	Look(ctx context.Context, paths []string) (base, change Facts, err error)
	// Restored gathers what the change has, with some paths as the base has them.
	Restored(ctx context.Context, paths, restore []string) (Facts, error)
	// Run runs a check on the base, or on the change with some paths as the base
	// has them.
	Run(ctx context.Context, c Check, base bool, restore []string) Ran
	// Install makes what locks of that tree name available to the checks that are
	// run on it from then on. of says whose they are.
	Install(ctx context.Context, locks []Lock, of contract.LockOf, base bool, restore []string) []contract.Installation
}

// Lock is a project's lock file whose packages are not there.
type Lock struct {
	Dir  string
	Tool lockfile.Tool
}

// wanted lists the locks of f's projects whose packages are not live.
func wanted(f, live Facts) []Lock {
	var out []Lock
	for _, p := range f.Projects {
		if p.Dir == ShellDir || strings.HasPrefix(p.Dir, ShellDir+"/") {
			continue // the host's own are there
		}
		for _, t := range p.Locks {
			if !live.has(p.Dir, t) {
				out = append(out, Lock{p.Dir, t})
			}
		}
	}
	return out
}

// has reports whether a tool's packages are in a project's folder.
func (f Facts) has(dir string, t lockfile.Tool) bool {
	return slices.ContainsFunc(f.Projects, func(p Project) bool { return p.Dir == dir && slices.Contains(p.Live, t) })
}

// stale lists the locks of the project that a check is run in, where live
// packages were used, to which what the check lacks may belong.
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

// relocked reports whether a task changed what dependencies are installed from.
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
	Left      []Left
}

// Collect gathers the evidence on a change. What checks there are, and with
// what they run, is decided by what the base has.
func Collect(ctx context.Context, b Bench, r Request) (Evidence, error) {
	e := Evidence{Profile: r.Spec.Profile, Tree: r.Tree, Words: r.Words, Installed: r.Installed, Left: r.Left}
	var held Facts
	var restore, paths []string
	if e.Profile != contract.VerifyNone {
		paths = []string{}
		size := 0
		for _, c := range r.Changes {
			if c.PathBase64 != "" || len(paths) == maxPaths || len(c.Path) >= 4096 || size > maxPathBytes {
				e.Cut = true
				continue
			}
			paths, size = append(paths, c.Path), size+len(c.Path)+8
		}
		var err error
		if e.Base, e.Facts, err = b.Look(ctx, paths); err != nil {
			return e, err
		}
		held, e.Guards = e.Facts, Guards(e.Base, e.Facts, r.Changes)
		for _, g := range e.Guards {
			restore = append(restore, g.Path)
		}
		if len(restore) > 0 {
			if held, err = b.Restored(ctx, paths, restore); err != nil {
				return e, err
			}
		}
	}
	e.Obeyed = Obeyed(e.Base, e.Facts, r.Changes)
	install := func(locks []Lock, of contract.LockOf, base bool, restore []string) bool {
		if len(locks) == 0 {
			return false
		}
		got := b.Install(ctx, locks, of, base, restore)
		for _, i := range got {
			if !slices.ContainsFunc(e.Locked, func(k contract.Installation) bool {
				return k.Lock == i.Lock && k.Of == i.Of && k.Key == i.Key && k.Problem == i.Problem
			}) {
				e.Locked = append(e.Locked, i)
			}
		}
		return slices.ContainsFunc(got, func(i contract.Installation) bool { return i.Problem == "" })
	}
	// What the task wants installed is installed only if changing that is what
	// the user asked for; else its checks have what the base's locks say.
	of, mayChange := contract.LockOfBase, true
	run := func(plan []Check, cut bool, restore []string) []Ran {
		e.Cut = e.Cut || cut
		var out []Ran
		for _, c := range plan {
			got := b.Run(ctx, c, false, restore)
			if mayChange && got.missing() != "" && install(stale(held, c.Cwd), of, false, restore) {
				got = b.Run(ctx, c, false, restore) // what is live is not what the lock says
			}
			out = append(out, got)
			if got.Failed() || ctx.Err() != nil {
				break // one failure decides, the rest would only cost time
			}
		}
		return out
	}
	plan, cut := Plan(held, e.Profile)
	if len(plan) > 0 {
		install(wanted(held, held), of, false, restore)
	}
	e.Held = run(plan, cut, restore)
	if len(e.Guards) > 0 {
		plan, cut = Plan(e.Facts, e.Profile)
		if relocked(e.Guards) {
			if of, mayChange = contract.LockOfChange, granted(e.Guards, e.Words) || defence.Off(defence.LockBase); mayChange {
				install(wanted(e.Facts, e.Facts), of, false, nil)
			}
		}
		e.After = run(plan, cut, nil)
	}
	e.Sent = run(Commands(r.Spec), false, nil)
	before := e.compare()
	if len(before) > 0 {
		install(wanted(e.Base, held), contract.LockOfBase, true, nil)
	}
	for _, c := range before {
		e.Before = append(e.Before, b.Run(ctx, c, true, nil))
	}
	// Tests are not only what is called so: what the base's runner found tests in
	// judges as well, and is put back like the rest.
	if found := e.found(r.Changes); len(found) > 0 && !defence.Off(defence.CheckFound) {
		if len(e.Guards) == 0 {
			e.After = e.Held // nothing was put back
		}
		e.Guards = append(e.Guards, found...)
		for _, g := range found {
			restore = append(restore, g.Path)
		}
		var err error
		if held, err = b.Restored(ctx, paths, restore); err != nil {
			return e, err
		}
		of, mayChange = contract.LockOfBase, true
		plan, cut = Plan(held, e.Profile)
		install(wanted(held, held), of, false, restore)
		e.Held = run(plan, cut, restore)
	}
	return e, nil
}
