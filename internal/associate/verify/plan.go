package verify

import (
	"fmt"
	"path"
	"slices"
	"strings"

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
	// Changed names the manifest that defines the check when the task changed
	// it: a pass then says less, and the verification says so.
	Changed string
}

// maxChecks bounds one verification.
const maxChecks = 12

const (
	quick = 180
	long  = 600
)

// Plan lists the checks a task needs: the commands its sender gave, then what
// the profile finds. An empty plan means the outcome stays unknown.
func Plan(f Facts, spec contract.VerifySpec) []Check {
	var out []Check
	for i, argv := range spec.Commands {
		out = append(out, Check{Name: fmt.Sprintf("command %d", i+1), Argv: argv, Cwd: ".", TimeoutS: long})
	}
	if spec.Profile == contract.VerifyNone {
		return out
	}
	if f.Theme {
		out = append(out, Check{Name: "theme", Theme: ThemePath, TimeoutS: quick})
	}
	for _, p := range f.Projects {
		var found []Check
		switch {
		case p.Dir == ShellDir:
			found = shell(p)
		case spec.Profile == contract.VerifySmoke:
			found = smoke(p)
		case spec.Profile == contract.VerifyStandard:
			found = standard(p)
		default:
			found = strict(p)
		}
		for i := range found {
			found[i].Cwd = p.Dir
			if p.Dir != "." {
				found[i].Name += " (" + p.Dir + ")"
			}
		}
		out = append(out, found...)
	}
	if len(f.Loose) > 0 {
		out = append(out, loose(f.Loose)...)
	}
	if len(out) > maxChecks {
		out = out[:maxChecks]
	}
	return out
}

func (p Project) has(manifest string) bool { return slices.Contains(p.Manifests, manifest) }

func (p Project) changed(manifest string) string {
	if slices.Contains(p.Touched, manifest) {
		return path.Join(p.Dir, manifest)
	}
	return ""
}

func (p Project) script(name string, timeout int) []Check {
	if p.Scripts[name] == "" {
		return nil
	}
	return []Check{{Name: "npm run " + name, Argv: []string{"npm", "run", "--silent", name}, TimeoutS: timeout, Changed: p.changed("package.json")}}
}

func (p Project) target(name string, timeout int) []Check {
	if !slices.Contains(p.Targets, name) {
		return nil
	}
	return []Check{{Name: "make " + name, Argv: []string{"make", "--silent", name}, TimeoutS: timeout, Changed: p.changed("Makefile")}}
}

// shell checks the desktop: it type-checks and builds, whatever the profile.
func shell(p Project) []Check {
	out := p.script("typecheck", quick)
	if len(out) == 0 && p.TSConfig {
		out = []Check{{Name: "tsc", Argv: []string{"node_modules/.bin/tsc", "--noEmit"}, TimeoutS: quick, Changed: p.changed("tsconfig.json")}}
	}
	return append(out, p.script("build", long)...)
}

func firstOf(options ...[]Check) []Check {
	for _, o := range options {
		if len(o) > 0 {
			return o
		}
	}
	return nil
}

// smoke is the project's fastest check that says something about the change.
func smoke(p Project) []Check {
	var out []Check
	if p.has("package.json") {
		out = append(out, firstOf(p.script("typecheck", quick), p.script("test", quick), p.script("check", quick), p.script("build", long))...)
	}
	if p.has("go.mod") {
		if pkgs := p.goPackages(); len(pkgs) > 0 {
			out = append(out, Check{Name: "go test", Argv: append([]string{"go", "test"}, pkgs...), TimeoutS: long, Changed: p.changed("go.mod")})
		}
	}
	if p.has("Cargo.toml") {
		out = append(out, Check{Name: "cargo check", Argv: []string{"cargo", "check", "--quiet", "--offline"}, TimeoutS: long, Changed: p.changed("Cargo.toml")})
	}
	out = append(out, p.python()...)
	if len(out) == 0 {
		out = firstOf(p.target("check", quick), p.target("test", long), p.target("build", long))
	}
	return out
}

// standard is the project's whole test command.
func standard(p Project) []Check {
	var out []Check
	if p.has("package.json") {
		out = append(out, p.script("test", long)...)
	}
	if p.has("go.mod") {
		out = append(out, Check{Name: "go test", Argv: []string{"go", "test", "./..."}, TimeoutS: long, Changed: p.changed("go.mod")})
	}
	if p.has("Cargo.toml") {
		out = append(out, Check{Name: "cargo test", Argv: []string{"cargo", "test", "--quiet", "--offline"}, TimeoutS: long, Changed: p.changed("Cargo.toml")})
	}
	out = append(out, p.python()...)
	if len(out) == 0 {
		out = p.target("test", long)
	}
	return firstOf(out, smoke(p))
}

// strict is tests, linter and build.
func strict(p Project) []Check {
	out := standard(p)
	if p.has("package.json") {
		for _, s := range []string{"typecheck", "lint", "build"} {
			out = append(out, p.script(s, long)...)
		}
	}
	if p.has("go.mod") {
		out = append(out, Check{Name: "go vet", Argv: []string{"go", "vet", "./..."}, TimeoutS: long},
			Check{Name: "go build", Argv: []string{"go", "build", "./..."}, TimeoutS: long})
	}
	if p.has("Cargo.toml") {
		out = append(out, Check{Name: "cargo build", Argv: []string{"cargo", "build", "--quiet", "--offline"}, TimeoutS: long})
	}
	if !p.has("package.json") && !p.has("go.mod") && !p.has("Cargo.toml") {
		out = append(append(out, p.target("lint", long)...), p.target("build", long)...)
	}
	return distinct(out)
}

func distinct(in []Check) []Check {
	seen := map[string]bool{}
	var out []Check
	for _, c := range in {
		if !seen[c.Name] {
			seen[c.Name] = true
			out = append(out, c)
		}
	}
	return out
}

func (p Project) goPackages() []string {
	var out []string
	for _, t := range p.Touched {
		if strings.HasSuffix(t, ".go") || strings.Contains(t, "testdata/") {
			dir, _, _ := strings.Cut(path.Dir(t)+"/", "testdata/")
			pkg := "./" + strings.TrimSuffix(dir, "/")
			if pkg == "./." {
				pkg = "."
			}
			if !slices.Contains(out, pkg) {
				out = append(out, pkg)
			}
		}
	}
	if len(out) > 20 || len(out) == 0 && (slices.Contains(p.Touched, "go.mod") || slices.Contains(p.Touched, "go.sum")) {
		return []string{"./..."}
	}
	slices.Sort(out)
	return out
}

func (p Project) python() []Check {
	if !p.has("pyproject.toml") && !p.has("setup.py") && !p.has("pytest.ini") && !p.has("tox.ini") && !p.has("conftest.py") {
		return nil
	}
	switch {
	case p.Pytest:
		return []Check{{Name: "pytest", Argv: []string{"python3", "-m", "pytest", "-q"}, TimeoutS: long, Changed: p.changed("pyproject.toml")}}
	case p.TestsDir:
		return []Check{{Name: "unittest", Argv: []string{"python3", "-m", "unittest", "discover", "-q"}, TimeoutS: long}}
	}
	return syntax(p.Touched)
}

// loose checks the syntax of files that belong to no project.
func loose(files []string) []Check {
	out := syntax(files)
	for i := range out {
		out[i].Cwd = "."
	}
	return out
}

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
		// One shell reads one file, so a small loop over the arguments.
		out = append(out, Check{Name: "bash -n", Argv: append([]string{"bash", "-c", `for f in "$@"; do bash -n "$f" || exit 1; done`, "check"}, l...), TimeoutS: quick})
	}
	if l := by["python"]; len(l) > 0 && len(l) <= 200 {
		out = append(out, Check{Name: "python syntax", Argv: append([]string{"python3", "-m", "py_compile"}, l...), TimeoutS: quick})
	}
	if l := by["node"]; len(l) > 0 && len(l) <= 200 {
		out = append(out, Check{Name: "node --check", Argv: append([]string{"bash", "-c", `for f in "$@"; do node --check "$f" || exit 1; done`, "check"}, l...), TimeoutS: quick})
	}
	return out
}
