package verify_test

import (
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/associate/verify"
)

var project = verify.Facts{Projects: []verify.Project{{Dir: "p", Manifests: []string{"package.json"}, RunFiles: []string{"p/scripts/check.sh"}}}}

// ran is a check of project p with its runner's counts and its exit code.
func ran(passed, failed, skipped, code int) verify.Ran {
	runner := verify.NodeTest
	if passed+failed+skipped == 0 {
		runner = verify.ExitCode
	}
	return verify.Ran{Check: verify.Check{Name: "npm run test (p)", Group: "p"}, Command: contract.Command{ExitCode: code},
		Count: verify.Count{Runner: runner, Passed: passed, Failed: failed, Skipped: skipped}}
}

// named adds the names of the tests that ran to a check's count.
func named(r verify.Ran, tests ...string) verify.Ran {
	r.Count.Tests = tests
	return r
}

// of sets a check's command.
func of(r verify.Ran, argv ...string) verify.Ran {
	r.Check.Argv = argv
	return r
}

func says(code int, stderr string) verify.Ran {
	r := ran(0, 0, 0, code)
	r.Command.Stderr = stderr
	return r
}

func changes(paths ...string) []contract.Change {
	var out []contract.Change
	for _, p := range paths {
		op := contract.ChangeModified
		switch p[0] {
		case '+':
			op, p = contract.ChangeAdded, p[1:]
		case '-':
			op, p = contract.ChangeDeleted, p[1:]
		}
		out = append(out, contract.Change{Path: p, Op: op})
	}
	return out
}

// noModule is the output of go test for a module that is in no cache, without a network.
const noModule = `{"Action":"build-output","Output":"x.go:3:8: golang.org/x/text@v0.14.0: Get \"https://proxy.golang.org/golang.org/x/text/@v/v0.14.0.zip\": dial tcp: lookup proxy.golang.org: network is unreachable\n"}`

func TestJudge(t *testing.T) {
	one := func(r verify.Ran) []verify.Ran { return []verify.Ran{r} }
	good, bad := one(ran(3, 0, 0, 0)), one(ran(2, 1, 0, 1))
	for name, c := range map[string]struct {
		profile             contract.VerifyProfile
		changes             []contract.Change
		words               string
		held, after, before []verify.Ran
		sent                []verify.Ran
		cut                 bool
		want                contract.VerificationStatus
		says                string
	}{
		"an honest fix":                        {changes: changes("p/a.js"), held: good, before: bad, want: "pass"},
		"an honest fix with a new test":        {changes: changes("p/a.js", "+p/b.test.js"), held: good, after: one(ran(4, 0, 0, 0)), before: bad, want: "pass", says: "the task added the test p/b.test.js"},
		"a manifest changed, and all is well":  {changes: changes("p/a.js", "p/package.json"), held: good, after: good, before: good, want: "pass", says: "the task changed the manifest p/package.json"},
		"a failing test":                       {changes: changes("p/a.js"), held: bad, want: "fail", says: "exit code 1"},
		"a failure that the script swallowed":  {changes: changes("p/a.js"), held: one(ran(2, 1, 0, 0)), want: "fail"},
		"no check":                             {changes: changes("p/a.js"), want: "unknown", says: "no check was found for p"},
		"a command that is not there":          {changes: changes("p/a.js"), held: one(ran(0, 0, 0, 127)), want: "unknown", says: "could not be run"},
		"a box that failed":                    {changes: changes("p/a.js"), held: one(ran(0, 0, 0, -1)), want: "unknown", says: "could not be run"},
		"killed":                               {changes: changes("p/a.js"), held: one(ran(0, 0, 0, 137)), want: "fail"},
		"none":                                 {profile: "none", sent: one(says(0, "")), want: "unknown", says: "no verification was asked for"},
		"none, and a command that fails":       {profile: "none", sent: one(says(1, "")), want: "fail", says: "exit code 1"},
		"the sender's command adds":            {changes: changes("p/a.js"), held: good, before: good, sent: one(says(1, "")), want: "fail"},
		"the sender's command replaces no":     {changes: changes("p/a.js"), held: one(says(0, "")), sent: one(says(0, "")), want: "unknown", says: "no number of tests"},
		"an exit code only":                    {changes: changes("p/a.js"), held: one(says(0, "")), want: "unknown", says: "gave an exit code and no number of tests"},
		"all skipped":                          {changes: changes("p/a.js"), held: one(ran(0, 0, 3, 0)), before: good, want: "unknown", says: "no number of tests"},
		"fewer ran than before":                {changes: changes("p/a.js"), held: one(ran(1, 0, 0, 0)), before: bad, want: "unknown", says: "ran 1 tests; before the change it ran 3"},
		"edited tests that the code needs":     {changes: changes("p/a.test.js"), held: bad, after: good, want: "unknown", says: "passes only with what the task itself changed"},
		"edited tests beside a fix":            {changes: changes("p/a.js", "p/a.test.js"), held: good, after: good, before: bad, want: "pass", says: "the task changed the test p/a.test.js"},
		"edited tests that are fewer":          {changes: changes("p/a.js", "p/a.test.js"), held: good, after: one(ran(1, 0, 0, 0)), before: bad, want: "unknown", says: "ran 1 tests"},
		"skipped tests":                        {changes: changes("p/a.js", "p/a.test.js"), held: good, after: one(ran(3, 0, 1, 0)), before: good, want: "unknown", says: "skips 1 tests"},
		"deleted tests":                        {changes: changes("p/a.js", "-p/a.test.js"), held: good, after: good, before: good, want: "unknown", says: "the task deleted the test p/a.test.js"},
		"a fake tool":                          {changes: changes("+p/node_modules/.bin/node"), held: good, after: good, before: good, want: "unknown", says: "tool or dependency p/node_modules/.bin/node"},
		"a module that hides python's":         {changes: changes("+p/unittest.py"), held: good, after: good, before: good, want: "unknown", says: "p/unittest.py"},
		"a manifest that says what to run":     {changes: changes("p/package.json"), held: bad, after: one(says(0, "")), want: "unknown", says: "with what the base judges by"},
		"asked for, yet without tests":         {changes: changes("p/package.json"), words: "set test in package.json", held: bad, after: one(says(0, "")), want: "unknown"},
		"asked for":                            {changes: changes("p/package.json"), words: "set test in package.json", held: one(ran(2, 1, 0, 1)), after: good, before: bad, want: "pass", says: "what the user asked to change decides here"},
		"a test's name is no leave to edit it": {changes: changes("p/a.test.js"), words: "make a.test.js pass", held: bad, after: good, want: "unknown"},
		"a check's script":                     {changes: changes("p/scripts/check.sh"), held: bad, after: good, want: "unknown", says: "check script p/scripts/check.sh"},
		"tests of the task's own only":         {changes: changes("p/a.js", "+p/a.test.js"), held: one(says(0, "")), after: one(ran(2, 0, 0, 0)), want: "unknown", says: "the 2 tests that passed are the task's own"},
		"a new test that fails":                {changes: changes("p/a.js", "+p/a.test.js"), held: good, after: bad, before: good, want: "fail"},
		"a dependency only the task had":       {changes: changes("p/a.js"), held: one(says(1, "Error: Cannot find module 'left-pad'")), before: bad, want: "fail", says: "missing: Cannot find module 'left-pad'"},
		"a dependency that the base lacks":     {changes: changes("p/a.js"), held: one(says(1, "Cannot find module 'x'")), before: one(says(1, "Cannot find module 'x'")), want: "unknown", says: "a dependency is missing here"},
		"a dependency that a manifest adds":    {changes: changes("p/a.js", "p/package.json"), held: one(says(1, "Cannot find module 'x'")), after: one(says(1, "Cannot find module 'x'")), want: "unknown", says: "install it in the live project"},
		"a Go module that is not there":        {changes: changes("p/a.go"), held: one(of(says(1, noModule), "go", "test")), before: one(says(1, noModule)), want: "unknown", says: "missing: golang.org/x/text@v0.14.0; install what the lock file names in the live project, such as by choir exec with go mod vendor, and"},
		"a Go module, no proxy":                {changes: changes("p/a.go"), held: one(of(says(1, "x.go:3:8: module lookup disabled by GOPROXY=off"), "go", "test")), before: one(says(1, "x.go:3:8: module lookup disabled by GOPROXY=off")), want: "unknown", says: "go mod vendor"},
		"a package of Python's":                {changes: changes("p/a.py"), held: one(of(says(1, "No module named 'x'"), ".venv/bin/python3")), before: one(says(1, "No module named 'x'")), want: "unknown", says: "'x'; install what its requirements name in the live project, such as by choir exec with python3 -m venv"},
		"pytest is not there":                  {changes: changes("p/a.py"), held: one(of(says(127, "pytest, which this project is configured for, is not installed here"), "python3")), want: "unknown", says: "could not be run, missing: pytest"},
		"another test in one's place":          {changes: changes("p/a.js"), held: one(named(ran(2, 0, 0, 0), "a", "c")), before: one(named(ran(1, 1, 0, 1), "a", "b")), want: "unknown", says: "1 tests that npm run test (p) ran before the change did not run on it: b"},
		"one test twice":                       {changes: changes("p/a.js"), held: one(named(ran(2, 0, 0, 0), "a")), before: one(named(ran(2, 0, 0, 0), "a", "b")), want: "unknown", says: "did not run on it: b"},
		"more tests than can be told apart":    {changes: changes("p/a.js"), held: good, before: one(named(ran(2, 0, 0, 0), "a", "b")), want: "unknown", says: "more tests than can be told apart"},
		"one test more":                        {changes: changes("p/a.js"), held: one(named(ran(3, 0, 0, 0), "a", "b", "c")), before: one(named(ran(1, 1, 0, 1), "a", "b")), want: "pass"},
		"asked for, and other tests":           {changes: changes("p/package.json"), words: "leave package.json alone", held: bad, after: one(named(ran(2, 0, 0, 0), "c", "d")), before: one(named(ran(1, 1, 0, 1), "a", "b")), want: "unknown", says: "did not run on it: a, b"},
		"git's hooks":                          {changes: changes("p/a.js", "p/.git/", "+p/.git/hooks/pre-commit"), words: "mend the config", held: good, before: good, want: "unknown", says: "the task changed how git behaves there: p/.git/hooks/pre-commit"},
		"git's configuration":                  {changes: changes("p/a.js", "p/.git/", "p/.git/config"), words: "mend the config", held: good, before: good, want: "unknown", says: "nobody asked for a change of how git behaves there: p/.git/config"},
		"a repository led elsewhere":           {changes: changes("p/a.js", "+p/.git"), held: good, before: good, want: "unknown", says: "git behaves there: p/.git"},
		"a bare repository's configuration":    {changes: changes("p/a.js", "p/bare/config"), held: good, before: good, want: "unknown", says: "git behaves there: p/bare/config"},
		"hooks in a folder of the project":     {changes: changes("p/a.js", "p/.husky/pre-push"), held: good, before: good, want: "unknown", says: "git behaves there: p/.husky/pre-push"},
		"a hook that was asked for":            {changes: changes("p/a.js", "p/.git/", "+p/.git/hooks/pre-commit"), words: "add a hook that runs the tests", held: good, before: good, want: "pass", says: "the task changed how git behaves there: p/.git/hooks/pre-commit"},
		"a hook asked for by its name":         {changes: changes("p/a.js", "+p/.git/hooks/pre-commit"), words: "run the tests in pre-commit", held: good, before: good, want: "pass"},
		"a hook that is none of git's":         {changes: changes("p/a.js", "+p/.git/hooks/pre-commit"), words: "mend the useTheme hook", held: good, before: good, want: "unknown", says: "git behaves there: p/.git/hooks/pre-commit"},
		"a hook was asked for, and more came":  {changes: changes("p/a.js", "p/.git/config"), words: "add a hook that runs the tests", held: good, before: good, want: "unknown", says: "git behaves there: p/.git/config"},
		"a name that begins like it":           {changes: changes("p/a.js", "+p/.git"), words: "add dist to .gitignore", held: good, before: good, want: "unknown", says: "git behaves there: p/.git"},
		"a word that is its name":              {changes: changes("p/a.js", "p/.git/info/attributes"), words: "mend how attributes are read", held: good, before: good, want: "unknown", says: "git behaves there: p/.git/info/attributes"},
		"a hook in a folder of any name":       {changes: changes("p/a.js", "p/tools/on/pre-push"), held: good, before: good, want: "unknown", says: "git behaves there: p/tools/on/pre-push"},
		"what hooks run is written in a file":  {changes: changes("p/a.js", "+p/lefthook.yml"), held: good, before: good, want: "unknown", says: "git behaves there: p/lefthook.yml"},
		"a configuration that may be included": {changes: changes("p/a.js", "p/.gitconfig"), held: good, before: good, want: "unknown", says: "git behaves there: p/.gitconfig"},
		"git's configuration was asked for":    {changes: changes("p/a.js", "p/.git/config"), words: "set a git config for rebases", held: good, before: good, want: "pass"},
		"hooks of a tool, asked for":           {changes: changes("p/a.js", "+p/lefthook.yml"), words: "add lefthook.yml with the tests", held: good, before: good, want: "pass"},
		"a plugin of the tests' runner":        {changes: changes("p/a.js", "+p/x.egg-info/entry_points.txt", "+p/y.dist-info/entry_points.txt"), held: good, after: good, before: good, want: "unknown", says: "p/x.egg-info/entry_points.txt"},
		"a commit in a repository":             {changes: changes("p/a.js", "p/.git/"), held: good, before: good, want: "pass"},
		"not all was looked at":                {changes: changes("p/a.js"), held: good, before: good, cut: true, want: "unknown", says: "only a part"},
	} {
		t.Run(name, func(t *testing.T) {
			e := verify.Evidence{Profile: c.profile, Tree: "t", Base: project, Facts: project, Words: c.words, Held: c.held, After: c.after, Before: c.before, Sent: c.sent, Cut: c.cut}
			e.Obeyed = verify.Obeyed(e.Base, verify.Facts{Bare: []string{"p/bare/config"}}, c.changes)
			if c.profile == "" {
				e.Profile = contract.VerifyStandard
			}
			e.Guards = verify.Guards(e.Base, e.Base, c.changes)
			v := verify.Judge(e)
			if v.Status != c.want {
				t.Errorf("%s: %s; want %s", v.Status, v.Reason, c.want)
			}
			if words := v.Reason + "\n" + strings.Join(v.Said, "\n"); !strings.Contains(words, c.says) || v.Status != "pass" && v.Reason == "" {
				t.Errorf("it says %q; want %q", words, c.says)
			}
			if (len(c.after) > 0) != (len(e.Guards) > 0) {
				t.Errorf("the case has %d guards and %d checks after", len(e.Guards), len(c.after))
			}
		})
	}
}

func TestProjectsThatWereTouchedAllNeedTests(t *testing.T) {
	f := verify.Facts{Projects: []verify.Project{{Dir: "p", Manifests: []string{"package.json"}}, {Dir: "q", Manifests: []string{"package.json"}}}}
	v := verify.Judge(verify.Evidence{Profile: "smoke", Facts: f, Held: []verify.Ran{ran(3, 0, 0, 0)}, Before: []verify.Ran{ran(3, 0, 0, 0)}})
	if v.Status != "unknown" || !strings.Contains(v.Reason, "no check was found for q") {
		t.Fatalf("%+v", v)
	}
}

// TestAFileOfNoProjectIsNotVerified shows that a changed or removed file that belongs to no project
// counts as not verified, even beside a project whose tests pass. A file in a project's folder
// belongs to the project.
func TestAFileOfNoProjectIsNotVerified(t *testing.T) {
	for name, c := range map[string]struct {
		base, facts []string
		want        contract.VerificationStatus
	}{
		"none": {nil, nil, "pass"}, "added": {nil, []string{"deploy.rb"}, "unknown"}, "removed": {[]string{"deploy.rb"}, nil, "unknown"}, "in the project's folder": {[]string{"p/a.txt"}, []string{"p/a.txt"}, "pass"},
	} {
		base, facts := project, project
		base.Loose, facts.Loose = c.base, c.facts
		v := verify.Judge(verify.Evidence{Profile: "smoke", Base: base, Facts: facts, Held: []verify.Ran{ran(3, 0, 0, 0)}, Before: []verify.Ran{ran(3, 0, 0, 0)}})
		if v.Status != c.want || c.want != "pass" && !strings.Contains(v.Reason, "files of no project") {
			t.Errorf("%s: %s: %s", name, v.Status, v.Reason)
		}
	}
}

func TestGuards(t *testing.T) {
	for path, want := range map[string]verify.GuardKind{
		"p/src/a.js": "", "p/README.md": "", "p/a.go": "", "p/latest.js": "", "p/contest/a.js": "", "p/attest.py": "", "p/protest_x.py": "",
		"p/a.test.ts": "test", "p/a.spec.tsx": "test", "p/test.js": "test", "p/x_test.go": "test", "p/test_x.py": "test", "p/conftest.py": "test", "p/tests/helper.py": "test",
		"p/testdata/in.txt": "test", "p/__snapshots__/a.snap": "test", "tests": "test",
		"p/package.json": "manifest", "p/package-lock.json": "manifest", "p/src/package.json": "manifest", "p/go.mod": "manifest", "p/GNUmakefile": "manifest", "p/requirements-dev.txt": "manifest",
		"p/vitest.config.ts": "config", "p/tsconfig.base.json": "config", "p/.npmrc": "config", "p/pytest.ini": "config", "p/.cargo/config.toml": "config", "p/ava.config.mjs": "config", "p/.nycrc.json": "config", "p/src/config.js": "", "p/app.config/a.js": "",
		"p/scripts/check.sh": "script", "p/node_modules/.bin/node": "tool", "p/vendor/x/y.go": "tool", "p/sitecustomize.py": "tool", "p/__pycache__/sum.cpython-311.pyc": "tool", "p/test_sum.cpython-311-x86_64-linux-gnu.so": "tool", "p/sum.so": "", "p/sum.v2_test.js": "test", "p/unittest/__init__.py": "tool", "p/x.pth": "tool",
	} {
		got := verify.GuardKind("")
		if g := verify.Guards(project, project, changes(path)); len(g) == 1 {
			got = g[0].Kind
		}
		if got != want {
			t.Errorf("%s: %q; want %q", path, got, want)
		}
	}
}

// TestTestsInAFileOfCode: tests may be in the same file as the code that they test. The base's
// version of the tests is run against the change's version of the code.
func TestTestsInAFileOfCode(t *testing.T) {
	const code, tests = "pub fn add(a: i64, b: i64) -> i64 { a - b }\n", "#[cfg(test)]\nmod tests {\n    #[test]\n    fn adds() { assert_eq!(super::add(2, 3), 5); }\n}\n"
	easy := strings.Replace(tests, "5", "-1", 1)
	gather := func(files map[string]string) verify.Facts {
		files["p/Cargo.toml"] = "[package]\n"
		f, err := verify.Gather(tree(t, files), []string{"p/src/lib.rs", "p/tests/a.rs"})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	base := gather(map[string]string{"p/src/lib.rs": code + tests, "p/tests/a.rs": tests})
	for name, c := range map[string]struct {
		file string
		said string
	}{
		"only the code":        {strings.Replace(code, " - ", " + ", 1) + tests, ""},
		"an easier test":       {code + easy, "the task changed the tests in p/src/lib.rs"},
		"no test any more":     {code, "the task changed the tests in p/src/lib.rs"},
		"a test that is added": {code + tests + "\n#[test]\nfn more() {}\n", "the task changed the tests in p/src/lib.rs"},
	} {
		var said []string
		for _, g := range verify.Guards(base, gather(map[string]string{"p/src/lib.rs": c.file}), changes("p/src/lib.rs")) {
			said = append(said, g.Said())
		}
		if strings.Join(said, "; ") != c.said {
			t.Errorf("%s: %q", name, said)
		}
		got, ok := verify.Splice("p/src/lib.rs", []byte(code+tests), []byte(c.file))
		if want := strings.SplitAfter(c.file, "\n")[0] + "\n" + tests; !ok || string(got) != want {
			t.Errorf("%s: %v %q; want %q", name, ok, got, want)
		}
	}
	if _, ok := verify.Splice("p/tests/a.rs", []byte(tests), []byte(easy)); ok {
		t.Error("a file that is a test is put back whole")
	}
	if _, ok := verify.Splice("p/src/lib.rs", []byte(code), []byte(code+tests)); ok {
		t.Error("a base without tests has none to put back")
	}
}
