package verify

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"sort"
	"strings"
	"sync"
	"syscall"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/lockfile"
)

// ShellDir is the desktop's source, relative to the workspace's root.
const ShellDir = "choiros"

// Limits of Gather.
const (
	maxPaths     = 5000
	maxPathBytes = 900 << 10
	maxProjects  = 20
	maxManifest  = 1 << 20
	maxRunFiles  = 200
)

// Project is one project that the touched paths belong to. Dir is relative to the
// workspace's root, "." for the root itself. A path in a project inside another one belongs
// to both: a manifest further in must not hide the tests further out.
type Project struct {
	Dir       string            `json:"dir"`
	Manifests []string          `json:"manifests"`           // names found in Dir
	Scripts   map[string]string `json:"scripts,omitempty"`   // package.json
	Targets   []string          `json:"targets,omitempty"`   // Makefile, those that matter
	TSConfig  bool              `json:"tsconfig,omitempty"`  // tsconfig.json is there
	Pytest    bool              `json:"pytest,omitempty"`    // configured for pytest
	PyTests   bool              `json:"py_tests,omitempty"`  // has Python files that are named like tests
	Python    string            `json:"python,omitempty"`    // interpreter of its own, relative to PyRoot
	PyRoot    string            `json:"py_root,omitempty"`   // where its Python tests are run
	PyPath    []string          `json:"py_path,omitempty"`   // further folders, relative to the root, that its tests import from
	RunFiles  []string          `json:"run_files,omitempty"` // files that its scripts and targets name, relative to the root
	Refs      []string          `json:"refs,omitempty"`      // what its manifests name outside of it
	Present   []string          `json:"present,omitempty"`   // the touched files that are there, relative to Dir
	Locks     []lockfile.Tool   `json:"locks,omitempty"`     // whose lock files are in Dir
	Live      []lockfile.Tool   `json:"live,omitempty"`      // whose packages are there, installed by the user or in the tree
}

// Facts is what Gather found.
type Facts struct {
	Projects []Project `json:"projects"`
	Loose    []string  `json:"loose,omitempty"` // touched files that exist and are in no project
	// Within holds the hashes of the tests that touched files of code have at their end.
	Within map[string]string `json:"within,omitempty"`
	Bare   []string          `json:"bare,omitempty"`  // touched files that git would obey, in a folder that looks to git like a bare repository
	Theme  bool              `json:"theme,omitempty"` // the theme was touched and is there
	Cut    bool              `json:"cut,omitempty"`   // there was more than could be examined
}

var manifests = []string{"package.json", "go.mod", "Cargo.toml", "pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "pytest.ini", "tox.ini", "conftest.py", "Makefile"}

var pythonManifests = []string{"pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "pytest.ini", "tox.ini", "conftest.py"}

var wantedTargets = []string{"test", "check", "lint", "build"}

var makeTarget = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^([A-Za-z0-9_.-]+)\s*:(?:[^=]|$)`) })

// Gather examines the tree around paths, which are relative to root.
func Gather(root *os.Root, paths []string) (Facts, error) {
	var f Facts
	if len(paths) > maxPaths {
		paths, f.Cut = paths[:maxPaths], true
	}
	found := map[string]*Project{}
	for _, p := range paths {
		p = path.Clean(p)
		if p == "." || path.IsAbs(p) || p == ".." || strings.HasPrefix(p, "../") || hidden(p) {
			continue
		}
		if p == contract.ThemePath {
			f.Theme = exists(root, p)
			continue
		}
		if tests := within(root, p); tests != "" {
			if f.Within == nil {
				f.Within = map[string]string{}
			}
			f.Within[p] = tests
		}
		if bare(root, p) {
			f.Bare = append(f.Bare, p)
		}
		dirs := chain(root, p)
		if len(dirs) == 0 && exists(root, p) { // in no project: its syntax is checked, if it has one
			f.Loose = append(f.Loose, p)
		}
		for _, dir := range dirs {
			pr := found[dir]
			if pr == nil {
				if len(found) >= maxProjects {
					f.Cut = true
					continue
				}
				n, err := look(root, dir)
				if err != nil {
					return Facts{}, err
				}
				pr = &n
				found[dir] = pr
			}
			rel := p
			if dir != "." {
				rel = strings.TrimPrefix(p, dir+"/")
			}
			if exists(root, p) {
				pr.Present = append(pr.Present, rel)
			}
		}
	}
	for _, p := range found {
		sort.Strings(p.Present)
		f.Projects = append(f.Projects, *p)
	}
	sort.Slice(f.Projects, func(i, j int) bool { return f.Projects[i].Dir < f.Projects[j].Dir })
	sort.Strings(f.Loose)
	return f, nil
}

// hidden says whether a path is inside a repository's own data.
func hidden(p string) bool {
	return slices.Contains(strings.Split(p, "/"), ".git")
}

// bare reports whether git would run or obey a file because its folder looks to git like a
// repository.
func bare(root *os.Root, p string) bool {
	dir, name := path.Split(p)
	dir = path.Clean(dir)
	switch {
	case name == "config" || name == "config.worktree" || name == "HEAD":
	case path.Base(dir) == "hooks" && !strings.HasSuffix(name, ".sample"), path.Base(dir) == "info" && name == "attributes":
		dir = path.Dir(dir)
	default:
		return false
	}
	for _, d := range []string{"objects", "refs"} {
		if info, err := root.Stat(path.Join(dir, d)); err != nil || !info.IsDir() {
			return false
		}
	}
	_, err := root.Lstat(path.Join(dir, "HEAD"))
	return err == nil
}

// chain returns the folders of projects that contain a path, the nearest first.
func chain(root *os.Root, p string) []string {
	var out []string
	for dir := path.Dir(p); ; dir = path.Dir(dir) {
		is := path.Ext(p) == ".py" && pyTests(root, dir)
		for _, m := range manifests {
			is = is || exists(root, path.Join(dir, m))
		}
		if is {
			out = append(out, dir)
			if defence.Off(defence.CheckOutermost) {
				return out
			}
		}
		if dir == "." {
			return out
		}
	}
}

// pyTests reports whether a folder, or its tests folder, holds Python files that
// are named like tests.
func pyTests(root *os.Root, dir string) bool {
	for _, d := range []string{dir, path.Join(dir, "tests"), path.Join(dir, "test")} {
		f, err := root.OpenFile(d, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_DIRECTORY, 0)
		if err != nil {
			continue
		}
		names, _ := f.Readdirnames(5000) // what can't be listed has no tests
		f.Close()
		if slices.ContainsFunc(names, isPyTest) {
			return true
		}
	}
	return false
}

// pythonRoot is the folder in which the tests of a Python project are run, and the other
// folders that they import from. A package's tests import it by its name, so they are run
// in the project that it is a part of, or in the package's parent folder.
func pythonRoot(root *os.Root, dir string) (at string, from []string) {
	begins := func(d string) bool {
		return slices.ContainsFunc(pythonManifests, func(m string) bool { return m != "conftest.py" && exists(root, path.Join(d, m)) })
	}
	top := dir
	for top != "." && exists(root, path.Join(top, "__init__.py")) {
		top = path.Dir(top)
	}
	at = top
	for d := top; ; d = path.Dir(d) {
		if begins(d) {
			at = d
			break
		}
		if d == "." {
			break
		}
	}
	switch {
	case begins(dir):
		at = dir
	case top == dir && at != dir: // not a package, in a project
		from, at = append(from, at), dir
	case top == dir: // a package, in no project: it is imported from its parent folder
		top = path.Dir(dir)
	}
	if top != at && dir != "." && top != "." {
		from = append(from, top)
	}
	slices.Sort(from)
	return at, slices.Compact(from)
}

// beneath is the path of a subfolder's entry relative to a folder above it.
func beneath(dir, p string) string {
	if dir == "." {
		return p
	}
	return strings.TrimPrefix(p, dir+"/")
}

func isPyTest(name string) bool {
	return strings.HasSuffix(name, ".py") && (strings.HasPrefix(name, "test_") || strings.HasSuffix(name, "_test.py") || name == "tests.py")
}

func exists(root *os.Root, p string) bool {
	info, err := root.Stat(p)
	return err == nil && info.Mode().IsRegular()
}

func look(root *os.Root, dir string) (Project, error) {
	p := Project{Dir: dir}
	for _, m := range manifests {
		if exists(root, path.Join(dir, m)) {
			p.Manifests = append(p.Manifests, m)
		}
	}
	p.TSConfig = exists(root, path.Join(dir, "tsconfig.json"))
	for _, m := range append(p.Manifests, "go.work", "tsconfig.json", "Cargo.lock", "package-lock.json") {
		b, err := slurp(root, path.Join(dir, m))
		if err != nil {
			return Project{}, err
		}
		p.Refs = append(p.Refs, refs(root, dir, string(b))...)
	}
	slices.Sort(p.Refs)
	p.Refs = slices.Compact(p.Refs)
	p.Refs = p.Refs[:min(len(p.Refs), maxRunFiles)]
	p.PyTests = pyTests(root, dir)
	p.PyRoot, p.PyPath = pythonRoot(root, dir)
	for _, v := range []string{path.Join(dir, ".venv"), path.Join(dir, "venv"), path.Join(p.PyRoot, ".venv"), path.Join(p.PyRoot, "venv")} {
		v = path.Join(v, "bin/python3")
		if _, err := root.Lstat(v); err == nil && p.Python == "" {
			p.Python = beneath(p.PyRoot, v) // usually a link out of the tree
		}
	}
	if slices.Contains(p.Manifests, "package.json") {
		b, err := slurp(root, path.Join(dir, "package.json"))
		if err != nil {
			return Project{}, err
		}
		var pkg struct {
			Scripts map[string]string `json:"scripts"`
		}
		if json.Unmarshal(b, &pkg) == nil { // an invalid manifest has no scripts; its check is then unknown
			p.Scripts = map[string]string{}
			for _, s := range []string{"typecheck", "test", "build", "lint", "check"} {
				if v := strings.TrimSpace(pkg.Scripts[s]); v != "" && !strings.Contains(v, "no test specified") {
					p.Scripts[s] = v[:min(len(v), 500)]
				}
			}
			for _, v := range checking(pkg.Scripts) {
				p.RunFiles = append(p.RunFiles, named(root, dir, v)...)
			}
		}
	}
	if slices.Contains(p.Manifests, "Makefile") {
		b, err := slurp(root, path.Join(dir, "Makefile"))
		if err != nil {
			return Project{}, err
		}
		for _, m := range makeTarget().FindAllSubmatch(b, 2000) {
			if t := string(m[1]); slices.Contains(wantedTargets, t) && !slices.Contains(p.Targets, t) {
				p.Targets = append(p.Targets, t)
			}
		}
		p.RunFiles = append(p.RunFiles, named(root, dir, string(b))...)
	}
	p.RunFiles = append(p.RunFiles, sourced(root, dir, p.RunFiles)...)
	slices.Sort(p.RunFiles)
	p.RunFiles = slices.Compact(p.RunFiles)
	p.RunFiles = p.RunFiles[:min(len(p.RunFiles), maxRunFiles)]
	p.Locks, p.Live = locks(root, dir)
	p.Pytest = slices.Contains(p.Manifests, "pytest.ini") || slices.Contains(p.Manifests, "conftest.py")
	if !p.Pytest && slices.Contains(p.Manifests, "pyproject.toml") {
		b, err := slurp(root, path.Join(dir, "pyproject.toml"))
		if err != nil {
			return Project{}, err
		}
		p.Pytest = strings.Contains(string(b), "pytest")
	}
	return p, nil
}

// installed are the folders in which a tool's packages lie, in the project.
var installed = map[lockfile.Tool][]string{
	lockfile.NPM: {"node_modules"}, lockfile.Go: {"vendor"}, lockfile.Cargo: {"vendor"}, lockfile.Pip: {".venv", "venv"},
}

// locks says whose lock files a folder has, and whose packages.
func locks(root *os.Root, dir string) (locks, live []lockfile.Tool) {
	for _, t := range lockfile.Tools {
		if slices.ContainsFunc(lockfile.Names(t), func(n string) bool { return exists(root, path.Join(dir, n)) }) {
			locks = append(locks, t)
		}
		if slices.ContainsFunc(installed[t], func(n string) bool { return filled(root, path.Join(dir, n)) }) {
			live = append(live, t)
		}
	}
	return locks, live
}

// filled reports whether a folder has any entry.
func filled(root *os.Root, dir string) bool {
	f, err := root.OpenFile(dir, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_DIRECTORY, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	names, _ := f.Readdirnames(1) // what can't be listed has nothing that could be used
	return len(names) > 0
}

// refs lists what a manifest's text names outside of its folder, such as a module beside it
// or a script above it.
func refs(root *os.Root, dir, text string) []string {
	var out []string
	for _, w := range words(text) {
		i := strings.Index(w, "../")
		if i < 0 || len(out) == maxRunFiles {
			continue
		}
		p := path.Join(dir, w[i:])
		if p == "." || p == ".." || strings.HasPrefix(p, "../") {
			continue
		}
		if _, err := root.Lstat(p); err == nil {
			out = append(out, p)
		}
	}
	return out
}

func words(text string) []string {
	return strings.FieldsFunc(text[:min(len(text), 64<<10)], func(r rune) bool { return strings.ContainsRune(" \t\n;&|<>()'\"=,`", r) })
}

// named lists the files of the tree that a script's text names.
func named(root *os.Root, dir, text string) []string {
	var out []string
	for i, w := range words(text) {
		if i == 2000 || len(out) == maxRunFiles {
			break
		}
		p := path.Join(dir, w)
		if w == "" || len(w) > 300 || path.IsAbs(w) || p == ".." || strings.HasPrefix(p, "../") {
			continue
		}
		if exists(root, p) {
			out = append(out, p)
		}
	}
	return out
}

// checking are the scripts of a package that its checks run, and those that these run in
// turn. Scripts that start the program are code.
func checking(scripts map[string]string) []string {
	var out []string
	seen := map[string]bool{}
	next := []string{"typecheck", "test", "build", "lint", "check"}
	for len(next) > 0 {
		name := next[0]
		next = next[1:]
		text := scripts[name]
		if seen[name] || text == "" {
			continue
		}
		seen[name], out = true, append(out, text)
		next = append(next, "pre"+name, "post"+name)
		for _, w := range words(text) {
			next = append(next, called(scripts, w)...)
		}
	}
	return out
}

// called are the scripts that a word calls in the spellings of package managers and of
// tools that run several scripts: unit, npm:unit, unit:*, npm:unit:*.
func called(scripts map[string]string, word string) []string {
	if by, name, ok := strings.Cut(word, ":"); ok && slices.Contains([]string{"npm", "pnpm", "yarn", "bun", "node"}, by) {
		word = name
	}
	first, last := strings.Index(word, "*"), strings.LastIndex(word, "*")
	if first < 0 {
		return []string{word}
	}
	begins, ends := word[:first], word[last+1:]
	if begins == "" && ends == "" {
		return nil // usually file names
	}
	var out []string
	for name := range scripts {
		if strings.HasPrefix(name, begins) && strings.HasSuffix(name, ends) {
			out = append(out, name)
		}
	}
	return out
}

// sourced lists the shell scripts that a check's shell scripts name.
func sourced(root *os.Root, dir string, scripts []string) []string {
	var out []string
	for i := 0; i < len(scripts) && len(scripts) <= maxRunFiles; i++ {
		text, err := slurp(root, scripts[i])
		if err != nil || !isShell(scripts[i], text) {
			continue
		}
		for _, f := range append(named(root, dir, string(text)), named(root, path.Dir(scripts[i]), string(text))...) {
			if text, err := slurp(root, f); err == nil && isShell(f, text) && !slices.Contains(scripts, f) {
				scripts, out = append(slices.Clip(scripts), f), append(out, f)
			}
		}
	}
	return out
}

func isShell(name string, text []byte) bool {
	first, _, _ := strings.Cut(string(text[:min(len(text), 200)]), "\n")
	return path.Ext(name) == ".sh" || path.Ext(name) == ".bash" || strings.HasPrefix(first, "#!") && strings.Contains(first, "sh")
}

func slurp(root *os.Root, p string) ([]byte, error) {
	f, err := root.OpenFile(p, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxManifest))
}
