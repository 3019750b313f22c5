package eval

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Bounds of a repository and of what is taken from a tree.
const (
	maxFiles = 5000
	maxBytes = 64 << 20
)

// File is a file of a Tree.
type File struct {
	Data       []byte
	Executable bool
}

// Tree is files by their paths, with slashes.
type Tree map[string]File

// ReadTree reads a folder; one that is not there is empty. Links are not followed, and .git is left
// out.
func ReadTree(dir string) (Tree, error) {
	out := Tree{}
	total := 0
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			if p == dir && errors.Is(err, fs.ErrNotExist) {
				return fs.SkipAll
			}
			return err
		}
		if e.IsDir() && e.Name() == ".git" {
			return fs.SkipDir
		}
		if !e.Type().IsRegular() {
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if total += int(info.Size()); total > maxBytes || len(out) >= maxFiles {
			return fmt.Errorf("%s has more than %d files or %d bytes", dir, maxFiles, maxBytes)
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, p)
		out[filepath.ToSlash(name)] = File{b, info.Mode()&0o100 != 0}
		return err
	})
	return out, err
}

// Over returns the tree with the files of others over it.
func (t Tree) Over(others ...Tree) Tree {
	out := maps.Clone(t)
	for _, o := range others {
		maps.Copy(out, o)
	}
	return out
}

// Write writes the tree into a folder.
func (t Tree) Write(dir string) error {
	for _, name := range slices.Sorted(maps.Keys(t)) {
		p := filepath.Join(dir, filepath.FromSlash(name))
		mode := fs.FileMode(0o644)
		if t[name].Executable {
			mode = 0o755
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, t[name].Data, mode)); err != nil {
			return err
		}
	}
	return nil
}

// Tar writes the tree as an archive.
func (t Tree) Tar(w io.Writer) error {
	out := tar.NewWriter(w)
	for _, name := range slices.Sorted(maps.Keys(t)) {
		mode := int64(0o644)
		if t[name].Executable {
			mode = 0o755
		}
		if err := out.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(t[name].Data)), Typeflag: tar.TypeReg}); err != nil {
			return err
		}
		if _, err := out.Write(t[name].Data); err != nil {
			return err
		}
	}
	return out.Close()
}

// match reports whether a path fits a pattern: as path.Match, of the whole path where the pattern
// has a slash and else of its last part. A pattern that ends in /** takes all beneath a folder.
func match(pattern, name string) (bool, error) {
	if dir, ok := strings.CutSuffix(pattern, "/**"); ok {
		_, err := path.Match(dir, "")
		return strings.HasPrefix(name, dir+"/"), err
	}
	if !strings.Contains(pattern, "/") {
		name = path.Base(name)
	}
	return path.Match(pattern, name)
}

func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := match(p, name)
		return err == nil && ok
	})
}

// Judged is the tree that is checked: the repository, what of the task's tree it may submit, and
// the hidden files. What the task removed and may submit is removed.
func (c Check) Judged(repository, left, hidden Tree) Tree {
	mine := func(name string) bool { return matches(c.Submit, name) && !matches(c.Fixed, name) }
	out := Tree{}
	for name, f := range repository {
		if !mine(name) {
			out[name] = f
		}
	}
	for name, f := range left {
		if mine(name) {
			out[name] = f
		}
	}
	return out.Over(hidden)
}

// Passed reports whether a check that ended with code and said something passed.
func (c Check) Passed(code int, said string) bool {
	return code == 0 && (c.Says == "" || regexp.MustCompile(c.Says).MatchString(said))
}

// Repository is the task's repository as it begins.
func (t Task) Repository() (Tree, error) {
	if t.Bundle == "" {
		return ReadTree(filepath.Join(t.Dir, "repo"))
	}
	dir, err := os.MkdirTemp("", "choir-eval-bundle-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := t.clone(dir); err != nil {
		return nil, err
	}
	return ReadTree(filepath.Join(dir, Project))
}

// clone makes the repository's folder, with its history, in dir.
func (t Task) clone(dir string) error {
	project := filepath.Join(dir, Project)
	if t.Bundle != "" {
		return git(dir, "clone", "-q", filepath.Join(t.Dir, t.Bundle), project)
	}
	files, err := t.Repository()
	if err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(project, 0o755), files.Write(project)); err != nil || len(t.History) == 0 {
		return err
	}
	if err := errors.Join(git(project, "init", "-q", "-b", "main"), git(project, "add", "-A")); err != nil {
		return err
	}
	for _, message := range t.History {
		if err := git(project, "commit", "-q", "--allow-empty", "-m", message); err != nil {
			return err
		}
	}
	return nil
}

// git runs git without anybody's configuration.
func git(dir string, args ...string) error {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	date := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Format(time.RFC3339)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=Author", "GIT_AUTHOR_EMAIL=author@example.test",
		"GIT_COMMITTER_NAME=Author", "GIT_COMMITTER_EMAIL=author@example.test", "GIT_AUTHOR_DATE=" + date, "GIT_COMMITTER_DATE=" + date}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("git %s: %w: %s", args[0], err, out)
	}
	return nil
}
