package verify

import (
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"choir.dev/choiros/contract"
)

// Check is one thing to run in a verify box of its own: Argv in Cwd, or, when
// Theme is set, the built-in check of that theme file.
type Check struct {
	Name     string
	Argv     []string
	Cwd      string // relative to the workspace's root; "." is the root
	Theme    string
	TimeoutS int
	Runner   Runner
	// Group is the folder of the outermost project that the check is about: at least one of
	// a group's checks must count tests.
	Group string
	// Enough says that the check needs no number of tests, because the host itself defines
	// it, as it does for the desktop and the theme.
	Enough bool
}

// OfShell says whether a check may need the desktop's dependencies: it runs in the
// desktop's source or above it. A check of syntax needs none.
func (c Check) OfShell() bool {
	switch {
	case c.Theme != "", c.Group == noProject:
		return false
	}
	return c.Cwd == "." || c.Cwd == ShellDir || strings.HasPrefix(c.Cwd, ShellDir+"/")
}

// maxChecks bounds one verification.
const maxChecks = 24

const (
	quick = 180
	long  = 600
)

// Commands are the checks that a task's sender adds. They can make a verification fail and
// never make it pass.
func Commands(spec contract.VerifySpec) []Check {
	var out []Check
	for i, argv := range spec.Commands {
		out = append(out, Check{Name: fmt.Sprintf("the sender's command %d", i+1), Argv: argv, Cwd: ".", TimeoutS: long, Runner: ExitCode})
	}
	return out
}

// Plan lists the checks that the changed paths need: the tests of every project that they
// belong to, whatever the profile; a wider profile adds to them. cut says that there would
// have been more.
func Plan(f Facts, profile contract.VerifyProfile) (out []Check, cut bool) {
	if profile == contract.VerifyNone {
		return nil, false
	}
	if f.Theme {
		out = append(out, Check{Name: "theme", Theme: contract.ThemePath, TimeoutS: quick, Group: contract.ThemePath, Enough: true, Runner: ExitCode})
	}
	var rest []Check // less useful than tests
	for _, p := range f.Projects {
		found, more := p.tests(), p.more(profile)
		if p.Dir == ShellDir {
			found, more = shell(p), nil
		}
		for _, list := range [][]Check{found, more} {
			for i := range list {
				list[i].Cwd, list[i].Group = p.Dir, group(f, p.Dir)
				if list[i].Runner == Python && p.PyRoot != "" {
					list[i].Cwd = p.PyRoot
				}
				if list[i].Runner == "" {
					list[i].Runner = ExitCode
				}
				if p.Dir != "." {
					list[i].Name += " (" + p.Dir + ")"
				}
			}
		}
		out, rest = append(out, found...), append(rest, more...)
	}
	out = append(append(out, rest...), loose(f.Loose)...)
	if len(out) > maxChecks {
		return out[:maxChecks], true
	}
	return out, f.Cut
}

// group is the outermost project that a project lies in.
func group(f Facts, dir string) string {
	for _, p := range f.Projects {
		if p.Dir == "." || p.Dir == dir || strings.HasPrefix(dir, p.Dir+"/") {
			return p.Dir // projects are sorted, so the first is the outermost
		}
	}
	return dir
}

func (p Project) has(manifest string) bool { return slices.Contains(p.Manifests, manifest) }

func (p Project) script(name string, timeout int) []Check {
	if p.Scripts[name] == "" {
		return nil
	}
	return []Check{{Name: "npm run " + name, Argv: []string{"npm", "run", "--silent", name}, TimeoutS: timeout}}
}

func (p Project) target(name string, timeout int) []Check {
	if !slices.Contains(p.Targets, name) {
		return nil
	}
	return []Check{{Name: "make " + name, Argv: []string{"make", "--silent", name}, TimeoutS: timeout}}
}

// shell checks the desktop: it type-checks and builds, whatever the profile.
func shell(p Project) []Check {
	out := p.script("typecheck", quick)
	if len(out) == 0 && p.TSConfig {
		out = []Check{{Name: "tsc", Argv: []string{"node_modules/.bin/tsc", "--noEmit"}, TimeoutS: quick}}
	}
	out = append(out, p.script("build", long)...)
	for i := range out {
		out[i].Enough = len(out) > 1
	}
	return out
}

func firstOf(options ...[]Check) []Check {
	for _, o := range options {
		if len(o) > 0 {
			return o
		}
	}
	return nil
}

// appendable matches a script whose last command is a runner that accepts more arguments at
// its end.
var appendable = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile("(?:^|&&|;)\\s*(?:npx\\s+)?(?:\\S*/)?(vitest|jest)(?:\\s[^|&;<>()$`]*)?$")
})

// tests are the project's own tests, in the form in which their runner counts them.
func (p Project) tests() []Check {
	var out []Check
	if p.has("package.json") {
		test := p.script("test", long)
		for i := range test {
			test[i].Runner = NodeTest
			if m := appendable().FindStringSubmatch(p.Scripts["test"]); m != nil {
				test[i].Runner = Runner(m[1])
			}
		}
		out = append(out, test...)
	}
	if p.has("go.mod") {
		out = append(out, Check{Name: "go test", Argv: []string{"go", "test", "-json", "./..."}, TimeoutS: long, Runner: GoTest})
	}
	if p.has("Cargo.toml") {
		out = append(out, Check{Name: "cargo test", Argv: []string{"cargo", "test", "--offline"}, TimeoutS: long, Runner: Cargo})
	}
	if p.PyTests || p.Pytest {
		python := "python3"
		if p.Python != "" {
			python = p.Python
		}
		c := Check{Name: "python tests", Argv: []string{python}, TimeoutS: long, Runner: Python}
		if p.Pytest {
			c.Argv, c.Name = append(c.Argv, "pytest"), "pytest"
		}
		if p.PyRoot != "" && p.PyRoot != p.Dir {
			c.Argv = append(c.Argv, "in:"+beneath(p.PyRoot, p.Dir))
		}
		for _, from := range p.PyPath {
			if rel, err := filepath.Rel(p.Dir, from); err == nil && p.PyRoot == p.Dir {
				c.Argv = append(c.Argv, "from:"+rel)
			} else if from != p.PyRoot {
				c.Argv = append(c.Argv, "from:"+beneath(p.PyRoot, from))
			}
		}
		out = append(out, c)
	}
	return firstOf(out, p.target("test", long))
}

// more is what a profile adds to the tests: the exit codes count, but replace no test.
func (p Project) more(profile contract.VerifyProfile) []Check {
	var out []Check
	node := p.has("package.json")
	strict := profile == contract.VerifyStrict
	if node {
		out = append(out, p.script("typecheck", long)...)
		if len(out) == 0 {
			out = append(out, p.script("check", long)...)
		}
	}
	if node && (strict || len(out) == 0 && p.Scripts["test"] == "") {
		out = append(out, p.script("build", long)...)
	}
	if node && strict {
		out = append(out, p.script("lint", long)...)
	}
	if p.has("go.mod") && strict {
		out = append(out, Check{Name: "go vet", Argv: []string{"go", "vet", "./..."}, TimeoutS: long},
			Check{Name: "go build", Argv: []string{"go", "build", "./..."}, TimeoutS: long})
	}
	if p.has("Cargo.toml") && strict {
		out = append(out, Check{Name: "cargo build", Argv: []string{"cargo", "build", "--quiet", "--offline"}, TimeoutS: long})
	}
	if p.isPython() {
		out = append(out, syntax(p.touchedPython())...)
	}
	if !node && !p.has("go.mod") && !p.has("Cargo.toml") {
		switch {
		case strict:
			out = append(append(append(out, p.target("check", long)...), p.target("lint", long)...), p.target("build", long)...)
		case !slices.Contains(p.Targets, "test"):
			out = append(out, firstOf(p.target("check", long), p.target("build", long))...)
		}
	}
	return out
}

func (p Project) isPython() bool {
	return p.PyTests || slices.ContainsFunc(p.Manifests, func(m string) bool { return slices.Contains(pythonManifests, m) })
}

func (p Project) touchedPython() []string {
	var out []string
	for _, t := range p.Present {
		if path.Ext(t) == ".py" {
			out = append(out, t)
		}
	}
	return out
}

// noProject is the group of files that belong to no project.
const noProject = "files of no project"

func loose(files []string) []Check {
	out := syntax(files)
	for i := range out {
		out[i].Group = noProject
	}
	return out
}

// compiles checks the syntax of Python files and writes none.
const compiles = "import sys\nfor f in sys.argv[1:]:\n    compile(open(f, 'rb').read(), f, 'exec')\n"

// syntax checks that files can be parsed, not that they do what they should.
func syntax(files []string) []Check {
	by := map[string][]string{}
	for _, f := range files {
		arg := "./" + f
		switch path.Ext(f) {
		case ".sh", ".bash":
			by["bash"] = append(by["bash"], arg)
		case ".py":
			by["python"] = append(by["python"], arg)
		case ".js", ".mjs", ".cjs":
			by["node"] = append(by["node"], arg)
		}
	}
	var out []Check
	if l := by["bash"]; len(l) > 0 && len(l) <= 200 {
		// The shell parses one file at a time, so it loops over its arguments.
		out = append(out, Check{Name: "bash -n", Argv: append([]string{"bash", "-c", `for f in "$@"; do bash -n "$f" || exit 1; done`, "check"}, l...), TimeoutS: quick, Cwd: ".", Runner: ExitCode})
	}
	if l := by["python"]; len(l) > 0 && len(l) <= 200 {
		out = append(out, Check{Name: "python syntax", Argv: append([]string{"python3", "-c", compiles}, l...), TimeoutS: quick, Cwd: ".", Runner: ExitCode})
	}
	if l := by["node"]; len(l) > 0 && len(l) <= 200 {
		out = append(out, Check{Name: "node --check", Argv: append([]string{"bash", "-c", `for f in "$@"; do node --check "$f" || exit 1; done`, "check"}, l...), TimeoutS: quick, Cwd: ".", Runner: ExitCode})
	}
	return out
}
