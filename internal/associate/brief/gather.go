package brief

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"choir.dev/choiros/internal/associate/verify"
	"choir.dev/choiros/internal/awake"
)

// Options say what to look at. Git and Version run a command in the box and return what it
// wrote; an error means that nothing is said.
type Options struct {
	Root *os.Root
	// About is the goal or prompt: projects that it names come first.
	About string
	// Git runs git in a folder of the tree, with configuration that runs nothing a tree says.
	Git func(ctx context.Context, dir string, args ...string) (string, error)
	// Version runs a program with an argument; nil leaves the programs out.
	Version func(ctx context.Context, argv ...string) (string, error)
	// Within bounds the whole; what is not found by then is left out.
	Within time.Duration
}

// Bounds of Gather.
const (
	maxFolders  = 60
	maxEntries  = 40 // of one folder
	maxVisited  = 400
	maxRead     = 2000 // entries read of one folder
	maxDepth    = 5
	maxListed   = 8 // projects
	maxGit      = 3 // projects whose repository is asked
	maxGuides   = 12
	maxGuide    = 8 << 10
	maxGuidance = 24 << 10
)

// skipped are folders that say nothing of a tree.
var skipped = []string{"node_modules", "vendor", "dist", "build", "target", "__pycache__", "venv", ".venv", ".git", ".cache", ".tox", ".mypy_cache", ".pytest_cache", ".next", ".gradle", ".idea", ".vscode"}

var markers = []string{"go.mod", "package.json", "pyproject.toml", "setup.py", "requirements.txt", "Cargo.toml", "Makefile", "pom.xml", "build.gradle", "CMakeLists.txt", "Gemfile", "composer.json", ".git"}

var guides = []string{"AGENTS.md", "CLAUDE.md"}

// Gather looks at a tree. It returns what it found in time.
func Gather(ctx context.Context, o Options) Brief {
	if o.Within <= 0 {
		o.Within = 2 * time.Second
	}
	ctx, cancel := awake.WithTimeout(ctx, o.Within)
	defer cancel()
	b := Brief{Platform: runtime.GOOS + "/" + runtime.GOARCH + " " + release()}
	var programs sync.WaitGroup
	if o.Version != nil {
		programs.Go(func() { b.Programs = versions(ctx, o.Version) })
	}
	s := survey{root: o.Root, about: strings.ToLower(o.About)}
	s.visit(ctx)
	b.Tree, b.TreeCut, b.Guidance = s.folders, s.cut, s.guidance()
	dirs := s.ranked()
	b.More = max(0, len(dirs)-maxListed)
	dirs = dirs[:min(len(dirs), maxListed)]
	b.Projects = s.describe(dirs)
	asked := 0
	for i, d := range dirs {
		if !s.repositories[d] || o.Git == nil || asked == maxGit {
			continue
		}
		asked++
		b.Projects[i].Status, _ = o.Git(ctx, d, "status", "--porcelain=v1", "--branch", "--no-renames")
		b.Projects[i].Log, _ = o.Git(ctx, d, "log", "-n", "8", "--date=short", "--format=%h %ad %s")
		b.Projects[i].Status, b.Projects[i].Log = clip(b.Projects[i].Status, 2000), clip(b.Projects[i].Log, 2000)
	}
	programs.Wait()
	return b
}

type survey struct {
	root         *os.Root
	about        string
	folders      []Folder
	cut          bool
	projects     []string
	repositories map[string]bool
	files        []string // of guidance, in the order in which they were met
}

// visit lists the tree, the upper folders first.
func (s *survey) visit(ctx context.Context) {
	s.repositories = map[string]bool{}
	type place struct {
		dir   string
		depth int
	}
	queue := []place{{".", 0}}
	for n := 0; len(queue) > 0; n++ {
		if n == maxVisited || ctx.Err() != nil {
			s.cut = true
			return
		}
		at := queue[0]
		queue = queue[1:]
		entries, more := list(s.root, at.dir)
		f := Folder{Path: at.dir, More: more}
		var below []place
		project := false
		for _, e := range entries {
			name, full := e.Name(), path.Join(at.dir, e.Name())
			switch {
			case slices.Contains(markers, name) && at.dir != ".":
				project = true
				s.repositories[at.dir] = s.repositories[at.dir] || name == ".git"
			case slices.Contains(guides, name), name == "SKILL.md":
				s.files = append(s.files, full)
			}
			if name == ".git" {
				continue
			}
			if e.IsDir() {
				name += "/"
				if !slices.Contains(skipped, e.Name()) && at.depth < maxDepth {
					below = append(below, place{full, at.depth + 1})
				}
			}
			if len(f.Entries) < maxEntries {
				f.Entries = append(f.Entries, valid(name))
			} else {
				f.More++
			}
		}
		if project {
			s.projects = append(s.projects, at.dir)
		}
		if len(s.folders) < maxFolders {
			f.Path = valid(f.Path)
			s.folders = append(s.folders, f)
		} else {
			s.cut = true
		}
		queue = append(queue, below...)
	}
}

// list reads a folder, sorted, and says how many of its entries it left out, at least.
func list(root *os.Root, dir string) (entries []fs.DirEntry, more int) {
	f, err := root.Open(dir)
	if err != nil {
		return nil, 0 // removed, or not for us
	}
	defer f.Close()
	entries, err = f.ReadDir(maxRead)
	if err == nil {
		if rest, err := f.ReadDir(1); err == nil && len(rest) > 0 {
			more = 1
		}
	}
	sort.Slice(entries, func(i, j int) bool { return entries[i].Name() < entries[j].Name() })
	return entries, more
}

// ranked returns the projects, those that the goal names first, then those of the user.
func (s *survey) ranked() []string {
	rank := func(dir string) int {
		base := strings.ToLower(path.Base(dir))
		switch {
		case strings.Contains(s.about, strings.ToLower(dir)):
			return 0
		case len(base) > 2 && strings.Contains(s.about, base):
			return 1
		case strings.HasPrefix(dir, "workspace/"):
			return 2
		}
		return 3
	}
	out := slices.Clone(s.projects)
	sort.SliceStable(out, func(i, j int) bool { return rank(out[i]) < rank(out[j]) })
	return out
}

func (s *survey) describe(dirs []string) []Project {
	out := make([]Project, len(dirs))
	var touched []string
	for i, d := range dirs {
		out[i].Dir = valid(d)
		for _, m := range markers {
			if _, err := s.root.Lstat(path.Join(d, m)); err == nil && m != ".git" {
				out[i].Manifests = append(out[i].Manifests, m)
				touched = append(touched, path.Join(d, m))
			}
		}
	}
	facts, err := verify.Gather(s.root, touched)
	if err != nil {
		return out
	}
	checks, _ := verify.Plan(facts, "strict")
	for i, d := range dirs {
		for _, c := range checks {
			if c.Cwd == d && len(c.Argv) > 0 {
				out[i].Commands = append(out[i].Commands, clip(strings.Join(c.Argv, " "), 200))
			}
		}
		for _, p := range facts.Projects {
			if p.Dir != d {
				continue
			}
			for name, script := range p.Scripts {
				out[i].Scripts = append(out[i].Scripts, clip(name+": "+script, 200))
			}
			sort.Strings(out[i].Scripts)
			for _, t := range p.Targets {
				out[i].Targets = append(out[i].Targets, clip(t, 100))
			}
		}
	}
	return out
}

// guidance reads what files tell agents: whole files of the projects, and of skills the
// head that says what they are for.
func (s *survey) guidance() []Guidance {
	var out []Guidance
	left := maxGuidance
	for _, p := range s.files {
		if len(out) == maxGuides || left <= 0 {
			break
		}
		most := min(maxGuide, left)
		if path.Base(p) == "SKILL.md" {
			most = min(600, left)
		}
		text, cut, err := head(s.root, p, most)
		if err != nil || strings.TrimSpace(text) == "" {
			continue
		}
		left -= len(text)
		out = append(out, Guidance{Path: valid(p), Text: text, Cut: cut})
	}
	return out
}

// head reads the beginning of a file of text. Pipes, devices and links are not followed.
func head(root *os.Root, p string, most int) (text string, cut bool, err error) {
	if info, err := root.Lstat(p); err != nil || !info.Mode().IsRegular() {
		return "", false, errors.New("not a file")
	}
	f, err := root.Open(p)
	if err != nil {
		return "", false, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	if err != nil || bytes.IndexByte(b, 0) >= 0 {
		return "", false, errors.New("not text")
	}
	return clip(string(b), most), len(b) > most, nil
}

func clip(s string, most int) string {
	if len(s) > most {
		s = s[:most]
	}
	return valid(s)
}

func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
