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
)

// ThemePath is the theme's file, relative to the workspace's root.
const ThemePath = "artifacts/system/theme.json"

// ShellDir is the desktop's source, relative to the workspace's root.
const ShellDir = "choiros"

// Limits of Gather.
const (
	maxPaths    = 5000
	maxProjects = 20
	maxManifest = 1 << 20
)

// Project is one project that the touched paths belong to. Dir is relative to
// the workspace's root, "." for the root itself.
type Project struct {
	Dir       string            `json:"dir"`
	Manifests []string          `json:"manifests"`           // names found in Dir
	Scripts   map[string]string `json:"scripts,omitempty"`   // package.json
	Targets   []string          `json:"targets,omitempty"`   // Makefile, those that matter
	TSConfig  bool              `json:"tsconfig,omitempty"`  // tsconfig.json is there
	Pytest    bool              `json:"pytest,omitempty"`    // configured for pytest
	TestsDir  bool              `json:"tests_dir,omitempty"` // tests/ or test/ is there
	Touched   []string          `json:"touched"`             // relative to Dir; removed files too
}

// Facts is what Gather found.
type Facts struct {
	Projects []Project `json:"projects"`
	Loose    []string  `json:"loose,omitempty"` // touched, there, and in no project
	Theme    bool      `json:"theme,omitempty"` // the theme was touched and is there
	Cut      bool      `json:"cut,omitempty"`   // more than could be looked at
}

var manifests = []string{"package.json", "go.mod", "Cargo.toml", "pyproject.toml", "setup.py", "pytest.ini", "tox.ini", "conftest.py", "Makefile"}

var wantedTargets = []string{"test", "check", "lint", "build"}

var makeTarget = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^([A-Za-z0-9_.-]+)\s*:(?:[^=]|$)`) })

// Gather looks at the tree around paths, which are relative to root.
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
		if p == ThemePath {
			f.Theme = exists(root, p)
			continue
		}
		dir := nearest(root, path.Dir(p))
		if dir == "" {
			if exists(root, p) {
				f.Loose = append(f.Loose, p)
			}
			continue
		}
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
		pr.Touched = append(pr.Touched, rel)
	}
	for _, p := range found {
		sort.Strings(p.Touched)
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

// nearest returns the closest folder from dir upwards that has a manifest, or "".
func nearest(root *os.Root, dir string) string {
	for {
		for _, m := range manifests {
			if exists(root, path.Join(dir, m)) {
				return dir
			}
		}
		if dir == "." {
			return ""
		}
		dir = path.Dir(dir)
	}
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
	for _, d := range []string{"tests", "test"} {
		if info, err := root.Stat(path.Join(dir, d)); err == nil && info.IsDir() {
			p.TestsDir = true
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
	}
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
