package verify

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/lazy"
)

// GuardKind says why a changed path influences how the change itself is judged.
type GuardKind string

// What can judge a change.
const (
	GuardTest     GuardKind = "test"     // a test, or what tests read
	GuardManifest GuardKind = "manifest" // says which checks there are, and what the project consists of
	GuardConfig   GuardKind = "config"   // of a runner, compiler or linter
	GuardScript   GuardKind = "script"   // a check's script names it
	GuardTool     GuardKind = "tool"     // would be run or read in place of a tool or dependency
)

// Guard is a changed path that judges the change: the checks run with the base's version of
// it, and the result says so.
type Guard struct {
	Path string
	Kind GuardKind
	Op   contract.ChangeOp
	// Within says that only the tests in the file judge the change: the file's code is part
	// of what is judged.
	Within bool
}

// Said describes the guard in words.
func (g Guard) Said() string {
	what := map[GuardKind]string{GuardTest: "test", GuardManifest: "manifest", GuardConfig: "configuration", GuardScript: "check script", GuardTool: "tool or dependency"}[g.Kind]
	did := map[contract.ChangeOp]string{contract.ChangeAdded: "added", contract.ChangeDeleted: "deleted"}[g.Op]
	if did == "" {
		did = "changed"
	}
	if g.Within {
		return "the task changed the tests in " + g.Path
	}
	return fmt.Sprintf("the task %s the %s %s", did, what, g.Path)
}

// Guards picks from a task's changes those that judge it. base is what Gather found in the
// base around them, change what it found in the change.
func Guards(base, change Facts, changes []contract.Change) []Guard {
	if defence.Off(defence.CheckBase) {
		return nil
	}
	scripts := map[string]bool{}
	for _, p := range base.Projects {
		for _, f := range p.RunFiles {
			scripts[f] = true
		}
	}
	var out []Guard
	for _, c := range changes {
		if hidden(c.Path) {
			continue
		}
		kind := guardKind(c.Path)
		if kind == "" && scripts[c.Path] {
			kind = GuardScript
		}
		tests := base.Within[c.Path]
		switch {
		case kind != "":
			out = append(out, Guard{Path: c.Path, Kind: kind, Op: c.Op})
		case tests != "" && tests != change.Within[c.Path] && c.Op != contract.ChangeDeleted:
			out = append(out, Guard{Path: c.Path, Kind: GuardTest, Op: c.Op, Within: true})
		}
	}
	return out
}

// found picks from a task's changes, besides the known guards, the files in which the
// base's runner found tests, and those with tests that it added.
func (e Evidence) found(changes []contract.Change) []Guard {
	var out []Guard
	for _, c := range changes {
		has := func(r Ran) bool { return slices.Contains(r.Count.Files, c.Path) }
		known := slices.ContainsFunc(e.Guards, func(g Guard) bool { return g.Path == c.Path })
		if !known && (slices.ContainsFunc(e.Before, has) || c.Op == contract.ChangeAdded && slices.ContainsFunc(e.Held, has)) {
			out = append(out, Guard{Path: c.Path, Kind: GuardTest, Op: c.Op})
		}
	}
	return out
}

var (
	// hookDirs are what projects usually call the folder that their configuration names for
	// git's hooks. It may have any name, so hookNames, the files that git looks for there,
	// count anywhere.
	hookDirs  = []string{".husky", ".githooks"}
	hookNames = []string{"applypatch-msg", "pre-applypatch", "post-applypatch", "pre-commit", "pre-merge-commit", "prepare-commit-msg", "commit-msg", "post-commit",
		"pre-rebase", "post-checkout", "post-merge", "pre-push", "post-rewrite", "pre-receive", "post-receive", "post-update", "proc-receive", "push-to-checkout",
		"reference-transaction", "pre-auto-gc", "post-index-change", "sendemail-validate", "fsmonitor-watchman"}
	// hookLists are configurations that tell a tool which commands to run as hooks.
	hookLists = []string{"lefthook.yml", "lefthook.yaml", ".lefthook.yml", ".lefthook.yaml", "lefthook-local.yml", ".pre-commit-config.yaml", ".overcommit.yml", ".huskyrc", ".huskyrc.json"}
)

// isHook reports whether git runs a path, or runs what it says.
func isHook(p string) bool {
	dirs, name := strings.Split(path.Dir(p), "/"), path.Base(p)
	return slices.Contains(hookNames, name) || slices.Contains(hookLists, name) || slices.ContainsFunc(dirs, func(d string) bool { return slices.Contains(hookDirs, d) }) ||
		slices.Contains(dirs, ".git") && slices.Contains(dirs, "hooks")
}

// Obeyed lists what a task changed of what git runs or obeys: of a repository's
// own data, which its change names when it is that (a folder's ends in a slash);
// of a bare repository; hooks, wherever they lie; and a configuration that another
// may include.
func Obeyed(base, change Facts, changes []contract.Change) []string {
	var out []string
	for _, c := range changes {
		parts := strings.Split(c.Path, "/")
		name := parts[len(parts)-1]
		in := name != "" && slices.Contains(parts, ".git")
		if in || name != "" && isHook(c.Path) || name == ".gitconfig" || slices.Contains(base.Bare, c.Path) || slices.Contains(change.Bare, c.Path) {
			out = append(out, c.Path)
		}
	}
	return out
}

var (
	aboutGit = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)\.git/|\.gitconfig\b|\bgit[ -](?:config|init|clone|remote|submodule|worktree)|\b(?:submodule|worktree)s?\b`)
	})
	aboutHooks = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)\b(?:hook|husky)s?\b`) })
	// otherHooks are those of a program's code.
	otherHooks = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`\buse[A-Z]|(?i:\b(?:react|custom|state|effect|web|lifecycle)[ -]hooks?\b|\breact\b)`)
	})
	aboutGitsHooks = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)\b(?:git|commit|push|merge|checkout|rebase)['’]?s?[ -]hooks?\b|\bhusky\b`)
	})
)

// unasked is the first path that git runs or obeys and whose change the user's
// words do not ask for: hooks by their name or as what they are, all else as
// what is git's.
func (e Evidence) unasked() string {
	if aboutGit().MatchString(e.Words) {
		return ""
	}
	hooks := aboutGitsHooks().MatchString(e.Words) || aboutHooks().MatchString(e.Words) && !otherHooks().MatchString(e.Words)
	for _, p := range e.Obeyed {
		if !isHook(p) || !hooks && !hasWord(e.Words, path.Base(p)) {
			return p
		}
	}
	return ""
}

// hasWord reports whether a text names a file, and not one whose name is longer.
func hasWord(text, name string) bool {
	part := func(c byte) bool {
		return c == '-' || c == '_' || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z'
	}
	for at := 0; ; {
		i := strings.Index(text[at:], name)
		if i < 0 {
			return false
		}
		at += i
		end := at + len(name)
		if (at == 0 || !part(text[at-1]) && text[at-1] != '.') && (end == len(text) || !part(text[end])) {
			return true
		}
		at++
	}
}

var (
	testDirs = []string{"test", "tests", "__tests__", "spec", "specs", "e2e", "testdata", "fixtures", "__snapshots__", "__mocks__"}
	toolDirs = []string{"node_modules", ".venv", "venv", "vendor", "site-packages", ".yarn", ".pnp"}

	manifestNames = []string{"package.json", "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "pnpm-workspace.yaml",
		"go.mod", "go.sum", "go.work", "go.work.sum", "Cargo.toml", "Cargo.lock", "build.rs",
		"pyproject.toml", "setup.py", "setup.cfg", "Pipfile", "Pipfile.lock", "poetry.lock", "uv.lock",
		"Makefile", "makefile", "GNUmakefile", "justfile", "Justfile", "Taskfile.yml"}
	configNames = []string{"pytest.ini", ".pytest.ini", "tox.ini", "noxfile.py", ".coveragerc", ".npmrc", ".yarnrc", ".yarnrc.yml", ".env", ".env.test",
		".node-version", ".nvmrc", ".tool-versions", ".python-version", "clippy.toml", "biome.json", "deno.json", "bunfig.toml",
		"rust-toolchain", "rust-toolchain.toml", "mypy.ini", "ruff.toml", ".flake8", ".golangci.yml"}
	configPrefixes = []string{"jest.", "vitest.", "vite.config.", "babel.config.", "eslint.config.", "tsconfig", ".eslintrc", ".mocharc", ".babelrc", ".swcrc", "playwright.config.", "karma.conf"}
	// configLike is the pattern of most other tools' configuration files.
	configLike = lazy.Regexp(`^(?:[A-Za-z0-9_-]+\.config\.(?:js|mjs|cjs|ts|mts|cts|json)|\.[a-z-]+rc(?:\.(?:js|mjs|cjs|json|json5|ya?ml|toml))?)$`)
	// Python prefers these in the working folder over its own.
	shadows = []string{"unittest", "pytest", "_pytest", "sitecustomize", "usercustomize"}
	// metadata are the suffixes by which Python recognises installed packages.
	metadata = []string{".egg-info", ".dist-info", ".egg", ".egg-link"}
	compiled = []string{".so", ".pyd", ".pyc", ".pyo"}
)

func guardKind(p string) GuardKind {
	parts := strings.Split(p, "/")
	name := parts[len(parts)-1]
	stem, _, _ := strings.Cut(name, ".")
	switch {
	case slices.ContainsFunc(parts, func(d string) bool { return slices.Contains(toolDirs, d) }):
		return GuardTool
	case slices.Contains(parts, "__pycache__"), slices.Contains(compiled, path.Ext(name)) && isTestName(stem+".py"):
		return GuardTool // Python prefers them to the source
	case slices.ContainsFunc(parts, func(d string) bool { return slices.Contains(metadata, path.Ext(d)) }):
		return GuardTool // names plugins, which pytest loads from the folders that it imports from
	case strings.HasSuffix(name, ".pth"), slices.Contains(shadows, stem) && (path.Ext(name) == ".py" || name == stem):
		return GuardTool
	case path.Ext(name) == ".py" && slices.ContainsFunc(parts[:len(parts)-1], func(d string) bool { return slices.Contains(shadows, d) }):
		return GuardTool
	case slices.Contains(manifestNames, name), strings.HasPrefix(name, "requirements") && strings.HasSuffix(name, ".txt"), strings.HasSuffix(name, ".mk"):
		return GuardManifest
	case slices.Contains(configNames, name), configLike().MatchString(name), slices.ContainsFunc(configPrefixes, func(pre string) bool { return strings.HasPrefix(name, pre) }),
		len(parts) > 1 && parts[len(parts)-2] == ".cargo":
		return GuardConfig
	case slices.ContainsFunc(parts, func(d string) bool { return slices.Contains(testDirs, d) }), isTestName(name):
		return GuardTest
	}
	return ""
}

// isTestName reports whether a file's name is that of a test by the convention of some
// language.
func isTestName(name string) bool {
	stem, rest, _ := strings.Cut(name, ".")
	last := strings.TrimSuffix(name, path.Ext(name))
	switch {
	case strings.HasSuffix(last, "_test"), strings.HasSuffix(last, "-test"):
		return true
	case name == "conftest.py", isPyTest(name), strings.HasSuffix(name, "_test.go"), strings.HasSuffix(stem, "_spec"), strings.HasSuffix(stem, "_test"), strings.HasSuffix(stem, "-test"):
		return true
	case slices.Contains([]string{"test", "tests", "spec"}, stem) && slices.Contains([]string{"js", "mjs", "cjs", "ts", "mts", "cts", "jsx", "tsx", "py", "sh", "rb", "rs"}, rest):
		return true
	}
	return strings.Contains(name, ".test.") || strings.Contains(name, ".spec.") || strings.HasPrefix(name, "test-") && rest != ""
}

// granted reports whether the user's own words name every one of the guards and none is a
// test: then changing them is the task.
func granted(guards []Guard, words string) bool {
	for _, g := range guards {
		if g.Kind != GuardManifest && g.Kind != GuardConfig || !asked(words, path.Base(g.Path)) {
			return false
		}
	}
	return true
}

// written are the lock files that a package manager writes according to a manifest: whoever
// asks for the manifest's change asks for theirs too.
var written = map[string]string{"package-lock.json": "package.json", "npm-shrinkwrap.json": "package.json", "go.sum": "go.mod", "Cargo.lock": "Cargo.toml"}

// asked reports whether the words name a file, or the manifest that it follows.
func asked(words, name string) bool {
	return strings.Contains(words, name) || written[name] != "" && strings.Contains(words, written[name])
}
