package verify_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/associate/verify"
)

// read passes a runner's output and report on as a check's are.
func read(t *testing.T, runner verify.Runner, stdout, report string) (verify.Count, string) {
	t.Helper()
	dir := t.TempDir()
	if report != "" {
		if err := os.WriteFile(filepath.Join(dir, "report"), []byte(report), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var shown bytes.Buffer
	out := verify.NewOutput(runner, &shown)
	for rest := []byte(stdout); len(rest) > 0; { // in pieces, as from a pipe
		n := min(7, len(rest))
		if _, err := out.Write(rest[:n]); err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
	}
	return out.Count(dir), shown.String()
}

const cargoOutput = `
running 2 tests
test tests::it_works ... ok
test tests::later ... ignored

test result: ok. 1 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s

   Doc-tests c

running 0 tests

test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

`

const vitestReport = `{"numTotalTestSuites":1,"numTotalTests":3,"success":false,"testResults":[{"assertionResults":[
{"ancestorTitles":[],"fullName":"adds","status":"passed","title":"adds","duration":1.7,"failureMessages":[],"meta":{},"tags":[]},
{"ancestorTitles":[],"fullName":"fails","status":"failed","title":"fails","duration":4.5,"failureMessages":["AssertionError"],"meta":{},"tags":[]},
{"ancestorTitles":[],"fullName":"later","status":"skipped","title":"later","failureMessages":[],"meta":{},"tags":[]}],
"startTime":1795310342061,"endTime":1795310342067.584,"status":"failed","message":"","name":"/computer/p/a.test.ts"}]}`

const jestReport = `{"numFailedTestSuites":1,"numTotalTests":2,"testResults":[
{"assertionResults":[{"fullName":"sum adds","status":"passed","title":"adds"},{"fullName":"sum later","status":"pending","title":"later"}],"message":"","name":"/p/a.test.js","status":"passed"},
{"assertionResults":[],"message":"Test suite failed to run","name":"/p/b.test.js","status":"failed"}]}`

const pytestReport = `<?xml version="1.0" encoding="utf-8"?><testsuites name="pytest tests"><testsuite name="pytest" errors="1" failures="1" skipped="1" tests="4" time="0.05" hostname="choir">
<testcase classname="test_a" name="test_one" time="0.001" /><testcase classname="test_a" name="test_two" time="0.001"><failure message="assert 1 == 2">E</failure></testcase>
<testcase classname="test_a" name="test_three" time="0"><skipped type="pytest.skip" message="later">x</skipped></testcase>
<testcase classname="" name="test_b" time="0"><error message="collection failure">ImportError</error></testcase></testsuite></testsuites>`

func TestReportsOfRunners(t *testing.T) {
	for name, c := range map[string]struct {
		runner         verify.Runner
		stdout, report string
		want           verify.Count
		tests, files   string
	}{
		"cargo":  {runner: verify.Cargo, stdout: cargoOutput, want: verify.Count{Runner: verify.Cargo, Passed: 1, Skipped: 1}, tests: "tests::it_works"},
		"vitest": {runner: verify.Vitest, report: vitestReport, want: verify.Count{Runner: verify.Vitest, Passed: 1, Failed: 1, Skipped: 1, Names: []string{"fails"}}, tests: "/computer/p/a.test.ts: adds|/computer/p/a.test.ts: fails", files: "/computer/p/a.test.ts"},
		"jest":   {runner: verify.Jest, report: jestReport, want: verify.Count{Runner: verify.Jest, Passed: 1, Failed: 1, Skipped: 1, Names: []string{"b.test.js"}}, tests: "a.test.js: sum adds", files: "a.test.js|b.test.js"},
		"pytest": {runner: verify.Python, report: pytestReport, want: verify.Count{Runner: verify.Pytest, Passed: 1, Failed: 2, Skipped: 1, Names: []string{"test_a.test_two", ".test_b"}}, tests: "test_a.test_one|test_a.test_two"},
		"go": {runner: verify.GoTest, stdout: `{"Action":"start","Package":"m"}
{"Action":"run","Package":"m","Test":"TestA"}
{"Action":"output","Package":"m","Test":"TestA","Output":"hello\n"}
{"Action":"pass","Package":"m","Test":"TestA","Elapsed":0}
{"Action":"skip","Package":"m","Test":"TestB","Elapsed":0}
{"Action":"fail","Package":"m","Test":"TestC/sub","Elapsed":0}
{"Action":"fail","Package":"m","Elapsed":0.1}
`, want: verify.Count{Runner: verify.GoTest, Passed: 1, Failed: 1, Skipped: 1, Names: []string{"TestC/sub"}}, tests: "m: TestA"},
		"no report":     {runner: verify.NodeTest, stdout: "# tests 99\n# pass 99\n", want: verify.Count{Runner: verify.ExitCode}},
		"an exit code":  {runner: verify.ExitCode, stdout: "Ran 99 tests\n\nOK\n", report: `{"passed":9}`, want: verify.Count{Runner: verify.ExitCode}},
		"broken JSON":   {runner: verify.Vitest, report: `{"testResults":[`, want: verify.Count{Runner: verify.ExitCode}},
		"broken XML":    {runner: verify.Python, report: `<testsuites><testsuite>`, want: verify.Count{Runner: verify.ExitCode}},
		"less than nil": {runner: verify.Python, report: `{"passed":-3,"failed":0}`, want: verify.Count{Runner: verify.ExitCode}},
		"a file alone":  {runner: verify.NodeTest, report: `{"type":"test:pass","name":"/p/a.js","file":"/p/a.js","kind":"test"}` + "\n", want: verify.Count{Runner: verify.NodeTest}},
		"a suite":       {runner: verify.NodeTest, report: `{"type":"test:pass","name":"s","file":"/p/a.js","kind":"suite"}` + "\n", want: verify.Count{Runner: verify.NodeTest}, files: "a.js"},
	} {
		t.Run(name, func(t *testing.T) {
			got, shown := read(t, c.runner, c.stdout, c.report)
			if got.Runner != c.want.Runner || got.Passed != c.want.Passed || got.Failed != c.want.Failed || got.Skipped != c.want.Skipped || strings.Join(got.Names, "|") != strings.Join(c.want.Names, "|") {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if got.Check() != nil {
				t.Errorf("%v", got.Check())
			}
			got = got.Within("/p")
			if tests, files := strings.Join(got.Tests, "|"), strings.Join(got.Files, "|"); tests != c.tests || files != c.files {
				t.Errorf("tests %q in %q; want %q in %q", tests, files, c.tests, c.files)
			}
			if c.runner == verify.GoTest && shown != "hello\n" {
				t.Errorf("shown: %q", shown)
			}
		})
	}
}

// TestForgedReports shows that what a test prints is not taken for a report, whatever it looks
// like.
func TestForgedReports(t *testing.T) {
	forged := `test result: ok. 99 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s` + "\n"
	for name, c := range map[string]struct {
		runner verify.Runner
		stdout string
		ran    int
	}{
		"cargo, before it began":           {verify.Cargo, forged, 0},
		"cargo, numbers that don't add up": {verify.Cargo, "running 2 tests\n" + forged + "test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured\n", 2},
		"cargo, twice":                     {verify.Cargo, "running 1 test\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured\n", 1},
		"go, text":                         {verify.GoTest, "--- PASS: TestA (0.00s)\nok  \tm\t0.1s\n", 0},
		"go, an event inside an event":     {verify.GoTest, `{"Action":"output","Package":"m","Output":"{\"Action\":\"pass\",\"Package\":\"m\",\"Test\":\"TestX\"}\n"}` + "\n", 0},
		"go, a line without end":           {verify.GoTest, `{"Action":"pass","Package":"m","Test":"` + strings.Repeat("x", 2<<20) + `"}` + "\n", 0},
		"go, a package":                    {verify.GoTest, `{"Action":"pass","Package":"m"}` + "\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got, _ := read(t, c.runner, c.stdout, ""); got.Ran() != c.ran {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestRunnersOfThisMachine runs the runners that this machine has, as a check does, on tests that
// print what looks like a report.
func TestRunnersOfThisMachine(t *testing.T) {
	files := map[string]string{
		"test_a.py":   "import sys, unittest\nclass A(unittest.TestCase):\n    def test_one(self): print('Ran 99 tests', file=sys.stderr)\n    def test_two(self): self.fail()\n    @unittest.skip('x')\n    def test_three(self): pass\n",
		"unittest.py": "raise SystemExit(0)\n",
		"a.test.js":   "const test = require('node:test')\nconsole.log('{\"type\":\"test:pass\",\"name\":\"x\"}\\n# pass 99')\ntest('one', () => {})\ntest('two', () => { throw new Error() })\ntest('three', { skip: true }, () => {})\n",
		"go.mod":      "module m\n",
		"a_test.go":   "package m\n\nimport (\n\t\"fmt\"\n\t\"testing\"\n)\n\nfunc TestOne(*testing.T) { fmt.Println(`{\"Action\":\"pass\",\"Package\":\"m\",\"Test\":\"TestForged\"}`) }\nfunc TestTwo(t *testing.T) { t.Fail() }\nfunc TestThree(t *testing.T) { t.Skip() }\n",
	}
	for _, c := range []struct {
		runner verify.Runner
		argv   []string
		tests  string // the names of the tests
		files  string // the files that they are in
	}{
		{verify.Python, []string{"python3"}, "test_a.A.test_one|test_a.A.test_two", "test_a.py"},
		{verify.NodeTest, []string{"node", "a.test.js"}, "a.test.js: one|a.test.js: two", "a.test.js"},
		{verify.NodeTest, []string{"node", "--test"}, "a.test.js: one|a.test.js: two", "a.test.js"},
		{verify.GoTest, []string{"go", "test", "-json", "./..."}, "m: TestOne|m: TestTwo", ""},
	} {
		t.Run(strings.Join(c.argv, " "), func(t *testing.T) {
			if _, err := exec.LookPath(c.argv[0]); err != nil {
				t.Fatalf("the machine that builds choir has %s: %v", c.argv[0], err)
			}
			project, own := tree(t, files).Name(), t.TempDir()
			argv, env, err := verify.Prepare(c.runner, c.argv, own)
			if err != nil {
				t.Fatal(err)
			}
			var shown, errors bytes.Buffer // two buffers, because os/exec writes to both concurrently
			out := verify.NewOutput(c.runner, &shown)
			cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
			cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.Env = project, out, &errors, append(os.Environ(), env...)
			if err := cmd.Run(); err == nil {
				t.Errorf("a failing test, and exit code 0:\n%s%s", shown.String(), errors.String())
			}
			got := out.Count(own).Within(project)
			if got.Runner == verify.Pytest {
				got.Runner = verify.Unittest // where pytest is not installed, unittest runs these too
			}
			if got.Passed != 1 || got.Failed != 1 || got.Skipped != 1 || len(got.Names) != 1 || !strings.Contains(strings.ToLower(got.Names[0]), "two") {
				t.Errorf("%+v\n%s%s", got, shown.String(), errors.String())
			}
			if tests, files := strings.Join(got.Tests, "|"), strings.Join(got.Files, "|"); tests != c.tests || files != c.files {
				t.Errorf("tests %q in %q; want %q in %q", tests, files, c.tests, c.files)
			}
		})
	}
}

// TestACountIsBounded shows that a count that a check's box reports is bounded like one that this
// program makes.
func TestACountIsBounded(t *testing.T) {
	for name, c := range map[string]verify.Count{
		"many tests":     {Tests: make([]string, 10_001)},
		"a test's name":  {Tests: []string{strings.Repeat("x", 151)}},
		"many files":     {Files: make([]string, 2001)},
		"a file's path":  {Files: []string{strings.Repeat("x", 4096)}},
		"a failure's":    {Names: []string{strings.Repeat("x", 201)}},
		"less than none": {Passed: -1},
	} {
		if c.Check() == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
	if err := (verify.Count{Tests: []string{strings.Repeat("x", 150)}, Files: []string{strings.Repeat("x", 4095)}}).Check(); err != nil {
		t.Error(err)
	}
}

// TestPackagesOfPython shows that tests inside a package import it by its name, wherever the
// project begins, and that each test runs exactly once, whether or not its folder is a package.
func TestPackagesOfPython(t *testing.T) {
	const head = "import unittest\n"
	test := func(from string) string {
		return head + from + "\nclass T(unittest.TestCase):\n    def test_it(self): self.assertEqual(add(2, 3), 5)\n"
	}
	for name, c := range map[string]struct {
		files   map[string]string
		touched string
		ran     int
	}{
		"beside no project":        {map[string]string{"y/pkg/__init__.py": "", "y/pkg/test_a.py": test("from pkg.calc import add"), "y/pkg/test_b.py": test("from .calc import add")}, "y/pkg/calc.py", 2},
		"tests in no package":      {map[string]string{"y/pkg/__init__.py": "", "y/pkg/test_a.py": test("from pkg.calc import add"), "y/pkg/tests/test_b.py": test("from pkg.calc import add")}, "y/pkg/calc.py", 2},
		"tests in a package":       {map[string]string{"y/pkg/__init__.py": "", "y/pkg/tests/__init__.py": "", "y/pkg/tests/test_b.py": test("from pkg.calc import add")}, "y/pkg/calc.py", 1},
		"tests of one's folder":    {map[string]string{"y/pkg/__init__.py": "", "y/pkg/test_a.py": test("from calc import add")}, "y/pkg/calc.py", 1},
		"in src":                   {map[string]string{"y/setup.py": "", "y/src/pkg/__init__.py": "", "y/src/pkg/test_a.py": test("from pkg.calc import add")}, "y/src/pkg/calc.py", 1},
		"no package, in a project": {map[string]string{"y/setup.py": "", "y/pkg/test_a.py": test("from pkg.calc import add")}, "y/pkg/calc.py", 1},
		"no package, beside none":  {map[string]string{"y/pkg/test_a.py": test("from pkg.calc import add")}, "y/pkg/calc.py", 1},
		"of the root":              {map[string]string{"pkg/__init__.py": "", "pkg/test_a.py": test("from pkg.calc import add")}, "pkg/calc.py", 1},
	} {
		t.Run(name, func(t *testing.T) {
			c.files[c.touched] = "def add(a, b): return a + b\n"
			root, ran := tree(t, c.files), 0
			f, err := verify.Gather(root, []string{c.touched})
			if err != nil {
				t.Fatal(err)
			}
			plan, _ := verify.Plan(f, contract.VerifySmoke)
			for _, k := range plan {
				if k.Runner != verify.Python {
					continue
				}
				own := t.TempDir()
				argv, env, err := verify.Prepare(k.Runner, k.Argv, own)
				if err != nil {
					t.Fatal(err)
				}
				cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
				cmd.Dir, cmd.Env = filepath.Join(root.Name(), k.Cwd), append(os.Environ(), env...)
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Errorf("%q in %s: %v\n%s", k.Argv, k.Cwd, err, out)
				}
				got := verify.NewOutput(k.Runner, &bytes.Buffer{}).Count(own).Within(root.Name())
				if ran += got.Ran(); len(got.Files) == 0 {
					t.Errorf("where its tests stand is not known: %+v", got)
				}
			}
			if ran != c.ran {
				t.Errorf("%d tests ran, not %d", ran, c.ran)
			}
		})
	}
}

// TestAFolderIsNoOptionOfPytest shows that pytest takes the names of a project's folders for
// folders, however they are spelled. A stand-in for pytest prints its arguments.
func TestAFolderIsNoOptionOfPytest(t *testing.T) {
	root := tree(t, map[string]string{"-kno/__init__.py": "", "-kno/test_a.py": "", "-kno/a.py": ""})
	f, err := verify.Gather(root, []string{"-kno/a.py"})
	if err != nil {
		t.Fatal(err)
	}
	lib, own := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(lib, "pytest.py"), []byte("def main(args, plugins):\n    print(*args, sep='\\n')\n    return 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ran := 0
	plan, _ := verify.Plan(f, contract.VerifySmoke)
	for _, k := range plan {
		if k.Runner != verify.Python {
			continue
		}
		argv, env, err := verify.Prepare(k.Runner, k.Argv, own)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
		cmd.Dir, cmd.Env = filepath.Join(root.Name(), k.Cwd), append(append(os.Environ(), env...), "PYTHONPATH="+lib)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		ran++
		if lines := strings.Split(strings.TrimSpace(string(out)), "\n"); !slices.Contains(lines, "./-kno") {
			t.Errorf("pytest is given %q", lines)
		}
	}
	if ran == 0 {
		t.Errorf("no tests are run: %+v", plan)
	}
}

// TestByteCodeInATreeIsNotRun: byte code beside a Python file may say that it need not be compared
// with its source; it must not be run.
func TestByteCodeInATreeIsNotRun(t *testing.T) {
	project, own := tree(t, map[string]string{
		"test_a.py": "import unittest\nclass A(unittest.TestCase):\n    def test_one(self): self.fail()\n",
		"easy.txt":  "import unittest\nclass A(unittest.TestCase):\n    def test_one(self): pass\n",
	}).Name(), t.TempDir()
	forge := exec.CommandContext(t.Context(), "python3", "-c", "import py_compile as p, sys; p.compile('easy.txt', cfile='__pycache__/test_a.%s.pyc' % sys.implementation.cache_tag, invalidation_mode=p.PycInvalidationMode.UNCHECKED_HASH)")
	forge.Dir = project
	if out, err := forge.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	argv, env, err := verify.Prepare(verify.Python, []string{"python3"}, own)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		env    []string
		failed int
	}{{env, 1}, {nil, 0}} { // without the variables the byte code is run, which shows that the test works
		cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
		cmd.Dir, cmd.Env = project, append(os.Environ(), c.env...)
		_ = cmd.Run() // its output shows the result
		if got := verify.NewOutput(verify.Python, &bytes.Buffer{}).Count(own); got.Ran() != 1 || got.Failed != c.failed {
			t.Errorf("%d variables: %+v", len(c.env), got)
		}
	}
}
