package verify_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/associate/verify"
	"choir.dev/choiros/internal/lockfile"
)

// lockBench is a project with a lock file. It records what it was asked for; if lacks is set, its
// checks pass only once something was installed.
type lockBench struct {
	live  []lockfile.Tool
	lacks bool
	fails bool // whether every installation fails
	asked []string
}

func (b *lockBench) facts() verify.Facts {
	return verify.Facts{Projects: []verify.Project{
		{Dir: verify.ShellDir, Manifests: []string{"package.json"}, Scripts: map[string]string{"typecheck": "tsc", "build": "vite build"}, Locks: []lockfile.Tool{lockfile.NPM}},
		{Dir: "p", Manifests: []string{"package.json"}, Scripts: map[string]string{"test": "node test.js"}, Locks: []lockfile.Tool{lockfile.NPM}, Live: b.live},
	}}
}

func (b *lockBench) GatherFacts(context.Context, []string) (base, change verify.Facts, err error) {
	base = b.facts()
	base.Projects[1].Live = nil // ignored folders do not belong to the base
	return base, b.facts(), nil
}

func (b *lockBench) Restored(context.Context, []string, []string) (verify.Facts, error) {
	return b.facts(), nil
}

func (b *lockBench) Run(_ context.Context, c verify.Check, _ bool, _ []string) verify.Ran {
	if b.lacks && c.Cwd == "p" && len(b.asked) == 0 {
		return verify.Ran{Check: c, Command: contract.Command{ExitCode: 1, Stderr: "Error: Cannot find module 'a'"}}
	}
	return verify.Ran{Check: c, Count: verify.Count{Runner: verify.NodeTest, Passed: 2}}
}

func (b *lockBench) Install(_ context.Context, locks []verify.Lock, of contract.LockOf, base bool, restore []string) []contract.Installation {
	i := contract.Installation{Tool: string(lockfile.NPM), Lock: "p/package-lock.json", Of: of, Key: "npm-1"}
	for _, l := range locks {
		b.asked = append(b.asked, fmt.Sprintf("%s of %s, on the base %v, restored %d", l.Dir, of, base, len(restore)))
	}
	if b.fails {
		i.Problem = "there is no network"
	}
	return []contract.Installation{i}
}

// TestWhichLocksAreInstalledFrom shows that the base's lock files are installed from, once for each
// tree, unless the live tree has what they name and nothing is missing; the change's only when
// asked for.
func TestWhichLocksAreInstalledFrom(t *testing.T) {
	npm := []lockfile.Tool{lockfile.NPM}
	const held, after, before = "p of base, on the base false, restored 0", "p of change, on the base false, restored 0", "p of base, on the base true, restored 0"
	for name, c := range map[string]struct {
		bench   lockBench
		changed string
		words   string
		want    []string
		status  contract.VerificationStatus
	}{
		"nothing is live":                {lockBench{}, "p/a.js", "", []string{held, before}, "pass"},
		"what it names is live":          {lockBench{live: npm}, "p/a.js", "", nil, "pass"},
		"what is live is not enough":     {lockBench{live: npm, lacks: true}, "p/a.js", "", []string{held}, "pass"},
		"a lock of the task's":           {lockBench{}, "p/package-lock.json", "mend it", []string{"p of base, on the base false, restored 1", before}, "pass"},
		"a lock that was asked for":      {lockBench{}, "p/package-lock.json", "add a to package.json", []string{"p of base, on the base false, restored 1", after, before}, "pass"},
		"nothing can be installed":       {lockBench{fails: true}, "p/a.js", "", []string{held, before}, "unknown"},
		"nothing to install, no network": {lockBench{live: npm, fails: true}, "p/a.js", "", nil, "pass"},
	} {
		b := c.bench
		e, err := verify.Collect(t.Context(), &b, verify.Request{Spec: contract.VerifySpec{Profile: contract.VerifySmoke}, Words: c.words, Changes: changes(c.changed)})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(b.asked, c.want) {
			t.Errorf("%s: asked for %q; want %q", name, b.asked, c.want)
		}
		if v := verify.Judge(e); v.Status != c.status {
			t.Errorf("%s: %s: %s", name, v.Status, v.Reason)
		}
	}
}
