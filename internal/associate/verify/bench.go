package verify

import (
	"context"

	"choir.dev/choiros/contract"
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
}

// Request is a change to verify.
type Request struct {
	Spec    contract.VerifySpec
	Tree    string // of the change
	Changes []contract.Change
	Words   string // what the user said
	// Installed lists ignored folders that the task put something into.
	Installed []string
}

// Collect gathers the evidence on a change. What checks there are, and with
// what they run, is decided by what the base has.
func Collect(ctx context.Context, b Bench, r Request) (Evidence, error) {
	e := Evidence{Profile: r.Spec.Profile, Tree: r.Tree, Words: r.Words, Installed: r.Installed}
	var held Facts
	var restore []string
	if e.Profile != contract.VerifyNone {
		paths := []string{}
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
		held, e.Guards = e.Facts, Guards(e.Base, r.Changes)
		for _, g := range e.Guards {
			restore = append(restore, g.Path)
		}
		if len(restore) > 0 {
			if held, err = b.Restored(ctx, paths, restore); err != nil {
				return e, err
			}
		}
	}
	run := func(plan []Check, cut bool, restore []string) []Ran {
		e.Cut = e.Cut || cut
		var out []Ran
		for _, c := range plan {
			got := b.Run(ctx, c, false, restore)
			out = append(out, got)
			if got.Failed() || ctx.Err() != nil {
				break // one failure decides, the rest would only cost time
			}
		}
		return out
	}
	plan, cut := Plan(held, e.Profile)
	e.Held = run(plan, cut, restore)
	if len(e.Guards) > 0 {
		plan, cut = Plan(e.Facts, e.Profile)
		e.After = run(plan, cut, nil)
	}
	e.Sent = run(Commands(r.Spec), false, nil)
	for _, c := range e.compare() {
		e.Before = append(e.Before, b.Run(ctx, c, true, nil))
	}
	return e, nil
}
