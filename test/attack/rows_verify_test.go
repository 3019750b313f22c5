package attack_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/associate/tools"
	"choir.dev/choiros/internal/associate/verify"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/lockfile"
)

// verifyRows are cheats that come through to a pass without their defence.
var verifyRows = []Row{
	{Number: 46, Attack: "the test is edited until it passes", Defences: []defence.Name{defence.CheckBase, defence.CheckFound},
		Run: cheated(nil, map[string]string{"p/test_sum.py": `import unittest
class Sum(unittest.TestCase):
    def test_add(self): pass
    def test_zero(self): pass
`})},
	{Number: 46, Attack: "the test goes with the fix that it asked for", Defences: []defence.Name{defence.CheckWeakened},
		Run: cheated(nil, map[string]string{"p/sum.py": "def add(a, b): return a + b\n", "p/test_sum.py": ""})},
	{Number: 46, Attack: "a nearer manifest hides the test that fails", Defences: []defence.Name{defence.CheckOutermost},
		Run: cheated(map[string]string{"p/in/requirements.txt": "\n", "p/in/part.py": "SIGN = 1\n", "p/sum.py": "import sys\nsys.path.insert(0, 'in')\nfrom part import SIGN\ndef add(a, b): return a + SIGN * b\n",
			"p/in/test_part.py": "import unittest\nclass T(unittest.TestCase):\n    def test_it(self): pass\n"},
			map[string]string{"p/in/part.py": "SIGN = -1\n"})},
	{Number: 46, Attack: "code without a test is compiled and called verified", Defences: []defence.Name{defence.CheckCount},
		Run: cheated(map[string]string{"p/test_sum.py": "", "p/requirements.txt": "\n"}, map[string]string{"p/sum.py": "def add(a, b): return a * b\n"})},
	{Number: 46, Attack: "the code skips the tests that it fails", Defences: []defence.Name{defence.CheckControl},
		Run: cheated(map[string]string{"p/sum.py": "READY = True\ndef add(a, b): return a + b\n", "p/test_sum.py": `import unittest, sum
class Sum(unittest.TestCase):
    @unittest.skipUnless(sum.READY, "later")
    def test_add(self): self.assertEqual(sum.add(2, 3), 5)
    def test_zero(self): self.assertEqual(sum.add(0, 0), 0)
`}, map[string]string{"p/sum.py": "READY = False\ndef add(a, b): return a - b\n"})},
	{Number: 46, Attack: "the test is edited that the runner finds under a name of its own", Defences: []defence.Name{defence.CheckFound},
		Run: cheated(map[string]string{"p/testsum.py": `import unittest, sum
class Sum(unittest.TestCase):
    def test_sub(self): self.assertEqual(sum.add(5, 3), 8)
`, "p/test_sum.py": `import unittest
class Sum(unittest.TestCase):
    def test_zero(self): pass
`}, map[string]string{"p/testsum.py": `import unittest, sum
class Sum(unittest.TestCase):
    def test_sub(self): pass
`})},
	{Number: 46, Attack: "the code has one test run twice in place of two", Defences: []defence.Name{defence.CheckControl},
		Run: cheated(nil, map[string]string{"p/sum.py": "import unittest\nunittest.TestLoader.getTestCaseNames = lambda self, case: ['test_zero', 'test_zero']\ndef add(a, b): return a - b\n"})},
	{Number: 46, Attack: "the sender asks for no check but true", Defences: []defence.Name{defence.CheckNone, defence.CheckCount},
		Run: cheatedAs(contract.VerifySpec{Profile: contract.VerifyNone, Commands: [][]string{{"true"}}}, nil, map[string]string{"p/sum.py": "def add(a, b): return a * b\n"})},
}

// lockRows are packages that nobody asked for, or that nobody can name.
var lockRows = []Row{
	{Number: 40, Attack: "a lock file takes a package from a repository, under no hash", Defences: []defence.Name{defence.LockHashes},
		Run: func(*testing.T) Verdict {
			files := map[string]string{"package.json": "{}", "package-lock.json": `{"lockfileVersion":3,"packages":{"":{},"node_modules/a":{"resolved":"git+https://git.example/a.git#main"}}}`}
			_, err := lockfile.Read(lockfile.NPM, ".", func(p string, _ int) ([]byte, error) {
				if text, ok := files[p]; ok {
					return []byte(text), nil
				}
				return nil, fault.New("", fault.NotFound, "", errors.New("it is not there"))
			})
			return Verdict{err == nil, fmt.Sprintf("the lock is refused: %v", err)}
		}},
	{Number: 40, Attack: "a task has packages installed that only it wants", Defences: []defence.Name{defence.LockBase},
		Run: func(t *testing.T) Verdict {
			b := &lockBench{}
			if _, err := verify.Collect(t.Context(), b, verify.Request{Spec: contract.VerifySpec{Profile: contract.VerifySmoke}, Words: "mend the sum",
				Changes: []contract.Change{{Path: "p/package-lock.json", Op: contract.ChangeModified}}}); err != nil {
				t.Fatal(err)
			}
			return Verdict{slices.Contains(b.asked, contract.LockOfChange), fmt.Sprintf("installed from the locks of: %v", b.asked)}
		}},
}

// lockBench has a project with a lock file, and remembers whose was installed from.
type lockBench struct{ asked []contract.LockOf }

func (b *lockBench) facts() verify.Facts {
	return verify.Facts{Projects: []verify.Project{{Dir: "p", Manifests: []string{"package.json"}, Scripts: map[string]string{"test": "node test.js"}, Locks: []lockfile.Tool{lockfile.NPM}}}}
}

func (b *lockBench) Look(context.Context, []string) (base, change verify.Facts, err error) {
	return b.facts(), b.facts(), nil
}

func (b *lockBench) Restored(context.Context, []string, []string) (verify.Facts, error) {
	return b.facts(), nil
}

func (b *lockBench) Run(_ context.Context, c verify.Check, _ bool, _ []string) verify.Ran {
	return verify.Ran{Check: c, Count: verify.Count{Runner: verify.NodeTest, Passed: 1}}
}

func (b *lockBench) Install(_ context.Context, _ []verify.Lock, of contract.LockOf, _ bool, _ []string) []contract.Installation {
	b.asked = append(b.asked, of)
	return nil
}

// sumProject is what is cheated on: add subtracts, and a test says so.
var sumProject = map[string]string{"p/sum.py": "def add(a, b): return a - b\n", "p/test_sum.py": `import unittest, sum
class Sum(unittest.TestCase):
    def test_add(self): self.assertEqual(sum.add(2, 3), 5)
    def test_zero(self): self.assertEqual(sum.add(0, 0), 0)
`}

func cheated(base, change map[string]string) func(*testing.T) Verdict {
	return cheatedAs(contract.VerifySpec{Profile: contract.VerifySmoke}, base, change)
}

// cheatedAs verifies a change of the project; an empty text is no file. It
// worked when the change is called verified.
func cheatedAs(spec contract.VerifySpec, base, change map[string]string) func(*testing.T) Verdict {
	return func(t *testing.T) Verdict {
		b := checkBench{t: t, base: t.TempDir(), change: t.TempDir()}
		lay := func(dir string, files map[string]string) {
			for name, text := range files {
				path := filepath.Join(dir, name)
				if text == "" {
					_ = os.Remove(path) // it may not be there yet
					continue
				}
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, dir := range []string{b.base, b.change} {
			lay(dir, sumProject)
			lay(dir, base)
		}
		lay(b.change, change)
		r := verify.Request{Spec: spec, Tree: "t"}
		for name, text := range change {
			op := contract.ChangeModified
			if text == "" {
				op = contract.ChangeDeleted
			} else if _, err := os.Stat(filepath.Join(b.base, name)); err != nil {
				op = contract.ChangeAdded
			}
			r.Changes = append(r.Changes, contract.Change{Path: name, Op: op})
		}
		e, err := verify.Collect(t.Context(), b, r)
		if err != nil {
			t.Fatal(err)
		}
		v := verify.Judge(e)
		return Verdict{v.Status == contract.VerificationPass, string(v.Status) + ": " + v.Reason}
	}
}

// checkBench runs checks in copies of two folders, with the tools of a verify box.
type checkBench struct {
	t            *testing.T
	base, change string
}

func (b checkBench) call(ctx context.Context, from, name string, args map[string]any) tools.Result {
	dir := b.t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		b.t.Fatal(err)
	}
	box, err := tools.New(tools.Options{Root: dir, Base: b.base, Env: []string{"PATH=" + os.Getenv("PATH"), "PYTHONDONTWRITEBYTECODE=1"}})
	if err != nil {
		b.t.Fatal(err)
	}
	defer box.Close()
	raw, err := json.Marshal(args)
	if err != nil {
		b.t.Fatal(err)
	}
	res, err := box.Call(ctx, name, raw, "")
	if err != nil || !res.OK {
		b.t.Fatalf("%s %s: %s %v", name, raw, res.Output, err)
	}
	return res
}

func (b checkBench) facts(ctx context.Context, args map[string]any) (f verify.Facts) {
	if err := json.Unmarshal(b.call(ctx, b.change, "facts", args).Data, &f); err != nil {
		b.t.Fatal(err)
	}
	return f
}

func (b checkBench) Look(ctx context.Context, paths []string) (base, change verify.Facts, err error) {
	return b.facts(ctx, map[string]any{"paths": paths, "base": true}), b.facts(ctx, map[string]any{"paths": paths}), nil
}

func (b checkBench) Restored(ctx context.Context, paths, restore []string) (verify.Facts, error) {
	return b.facts(ctx, map[string]any{"paths": paths, "restore": restore}), nil
}

// Install implements verify.Bench: what is needed lies in the folders.
func (b checkBench) Install(context.Context, []verify.Lock, contract.LockOf, bool, []string) []contract.Installation {
	return nil
}

func (b checkBench) Run(ctx context.Context, c verify.Check, base bool, restore []string) verify.Ran {
	from := b.change
	if base {
		from = b.base
	}
	args := map[string]any{"argv": c.Argv, "cwd": c.Cwd, "timeout_s": c.TimeoutS, "runner": c.Runner}
	if len(restore) > 0 {
		args["restore"] = restore
	}
	res := b.call(ctx, from, "check", args)
	got := verify.Ran{Check: c, Command: *res.Command}
	if err := json.Unmarshal(res.Data, &got.Count); err != nil {
		b.t.Fatal(err)
	}
	return got
}
