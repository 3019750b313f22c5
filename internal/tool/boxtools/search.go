package boxtools

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"sort"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/harness"
)

// skipped are the names of folders with files that tools made or fetched.
var skipped = map[string]bool{
	".git": true, "node_modules": true, ".venv": true, "venv": true, "__pycache__": true, "target": true,
	"dist": true, "build": true, ".cache": true, ".vite": true, ".next": true, "vendor": true,
}

const searchTime = 30 * time.Second

var errEnough = errors.New("enough")

// walk visits regular files below p, bounded in entries and time. It returns
// why it stopped early, or "".
func (b *Box) walk(ctx context.Context, root *os.Root, p string, visit func(name string) error) (string, error) {
	ctx, cancel := awake.WithTimeout(ctx, searchTime)
	defer cancel()
	n := 0
	err := fs.WalkDir(root.FS(), p, func(name string, d fs.DirEntry, err error) error {
		if n++; n > maxVisited {
			return errEnough
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		switch {
		case err != nil && name == p:
			return err
		case err != nil: // unreadable or removed: the rest still counts
			return nil
		case d.IsDir() && name != p && skipped[d.Name()]:
			return fs.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		return visit(name)
	})
	switch {
	case errors.Is(err, errEnough) && n > maxVisited:
		return fmt.Sprintf("(stopped after %d entries; narrow it with path)", maxVisited), nil
	case errors.Is(err, errEnough):
		return "(there are more; narrow the search)", nil
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("(stopped after %s; narrow it with path)", searchTime), nil
	}
	return "", err
}

type grepArgs struct {
	Pattern    string `json:"pattern"`
	Path       string `json:"path"`
	Glob       string `json:"glob"`
	IgnoreCase bool   `json:"ignore_case"`
}

func (b *Box) grep(ctx context.Context, a grepArgs) (Result, error) {
	if a.Path == "" {
		a.Path = "."
	}
	p, err := b.look(a.Path)
	if err != nil {
		return Result{}, err
	}
	if a.IgnoreCase {
		a.Pattern = "(?i)" + a.Pattern
	}
	re, err := regexp.Compile(a.Pattern)
	if err != nil {
		return Result{}, refuse("pattern: %v", err)
	}
	if a.Glob != "" && !doublestar.ValidatePattern(a.Glob) {
		return Result{}, refuse("glob: %q is not a valid pattern", harness.Clip(a.Glob, 200))
	}
	var out strings.Builder
	matches := 0
	why, err := b.walk(ctx, p.root, p.rel, func(rel string) error {
		name := rel
		if p.root != b.root {
			name = path.Join(strings.TrimSuffix(p.name, p.rel), rel) // a path by which it can be read
		}
		if a.Glob != "" && !globMatch(a.Glob, name) {
			return nil
		}
		f, info, err := b.open(place{p.root, rel, name})
		if err != nil {
			return nil // removed, or not readable for us
		}
		defer f.Close()
		if info.Size() > maxFile || (info.Size() > maxGrepFile && rel != p.rel) { // which file was named, is searched
			return nil
		}
		r := bufio.NewReaderSize(f, 64<<10)
		if head, _ := r.Peek(8 << 10); bytes.IndexByte(head, 0) >= 0 {
			return nil
		}
		sc := bufio.NewScanner(r)
		sc.Buffer(nil, maxFile+1)
		for line := 1; sc.Scan(); line++ {
			if !re.Match(sc.Bytes()) {
				continue
			}
			if matches++; matches > maxMatches || out.Len() > MaxOutput-1024 {
				return errEnough
			}
			fmt.Fprintf(&out, "%s:%d:%s\n", name, line, harness.Clip(strings.TrimRight(sc.Text(), "\r"), 300))
		}
		return nil
	})
	if err != nil {
		return Result{}, err
	}
	res := Result{OK: true, Truncated: why != ""}
	if out.Len() == 0 {
		out.WriteString("no match\n")
	}
	res.Output = out.String() + why
	return res, nil
}

type globArgs struct {
	Pattern string `json:"pattern"`
	Path    string `json:"path"`
}

func (b *Box) glob(ctx context.Context, a globArgs) (Result, error) {
	if a.Path == "" {
		a.Path = "."
	}
	p, err := b.clean(a.Path)
	if err != nil {
		return Result{}, err
	}
	if !doublestar.ValidatePattern(a.Pattern) {
		return Result{}, refuse("pattern: %q is not valid", harness.Clip(a.Pattern, 200))
	}
	var found []string
	size := 0
	why, err := b.walk(ctx, b.root, p, func(name string) error {
		rel := name
		if p != "." {
			rel = strings.TrimPrefix(name, p+"/")
		}
		if !globMatch(a.Pattern, rel) {
			return nil
		}
		if size += len(name) + 1; len(found) >= maxListed || size > MaxOutput-1024 {
			return errEnough
		}
		found = append(found, name)
		return nil
	})
	if err != nil {
		return Result{}, err
	}
	sort.Strings(found)
	if len(found) == 0 {
		found = []string{"no file matches"}
	}
	return Result{OK: true, Output: strings.Join(found, "\n") + "\n" + why, Truncated: why != ""}, nil
}

// globMatch matches the whole path, or the name alone when the pattern has no slash.
func globMatch(pattern, name string) bool {
	if !strings.Contains(pattern, "/") {
		return doublestar.MatchUnvalidated(pattern, path.Base(name))
	}
	return doublestar.MatchUnvalidated(pattern, name)
}

func sortEntries(entries []fs.DirEntry) {
	sort.Slice(entries, func(i, j int) bool { return entries[i].Name() < entries[j].Name() })
}
