package gitstore

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/journal"
)

// workDir holds the engine's own files, under .git.
const workDir = "choir"

// repoConfig is the repository's own configuration, for stock tools that open
// it; the keeper's own git is governed by what package git forces on it.
const repoConfig = `[core]
	repositoryformatversion = 0
	filemode = true
	bare = false
	fsmonitor = false
	symlinks = true
	quotePath = false
	protectNTFS = false
	fsync = all
[gc]
	auto = 0
[maintenance]
	auto = false
[receive]
	denyCurrentBranch = refuse
`

// infoAttributes outrank every .gitattributes of the tree, so that stock tools too keep
// bytes as they are. (The engine reads no attributes.)
const infoAttributes = "* -text -eol -ident -filter -working-tree-encoding -export-subst\n"

// File is the path of a file of .git.
func (s *Store) File(elem ...string) string {
	return filepath.Join(append([]string{s.gitDir}, elem...)...)
}

// Work is the path of one of the engine's own files, under .git/choir.
func (s *Store) Work(elem ...string) string {
	return s.File(append([]string{workDir}, elem...)...)
}

// Prepare makes the repository if there is none, and the folders in it that the engine
// relies on. It says whether the repository is new.
func (s *Store) Prepare(ctx context.Context) (fresh bool, err error) {
	st, err := os.Lstat(s.gitDir)
	fresh = errors.Is(err, fs.ErrNotExist)
	switch {
	case fresh:
	case err != nil:
		return false, err
	case !st.IsDir():
		return false, fault.New("", fault.Invalid, "Move the file .git out of the workspace's root; the computer keeps its history there.", errors.New(".git is not a directory"))
	}
	if !fresh {
		if fresh, err = s.unmake(); err != nil {
			return false, err
		}
	}
	if fresh {
		if err := s.initRepository(ctx); err != nil {
			return false, err
		}
	}
	for _, d := range gitDirs {
		if err := disk.PlainDir(filepath.Join(s.gitDir, d)); err != nil {
			return false, err
		}
	}
	return fresh, nil
}

// Own removes from .git what would make git look elsewhere, and writes the engine's
// configuration, attributes, branch and hooks.
func (s *Store) Own() error {
	for _, f := range []string{
		"objects/info/alternates", "objects/info/http-alternates", "objects/info/commit-graph", "info/grafts", "info/sparse-checkout",
		"shallow", "commondir", "config.worktree", "index.lock", "HEAD.lock", "packed-refs.lock", "config.lock",
	} {
		if err := os.RemoveAll(filepath.Join(s.gitDir, f)); err != nil {
			return err
		}
	}
	for name, content := range ownFiles {
		if err := disk.KeepFile(filepath.Join(s.gitDir, name), content); err != nil {
			return err
		}
	}
	return s.keepHooks()
}

// gitDirs are what .git has before it is used.
var gitDirs = []string{workDir, workDir + "/chunks", "info", "objects", "objects/info", "objects/pack", "hooks", "refs", "refs/heads", "refs/choir"}

// ownFiles are files of .git that are the engine's.
var ownFiles = map[string]string{"config": repoConfig, "info/attributes": infoAttributes, "HEAD": "ref: " + Main + "\n"}

// fresh is where a repository is made. Its name is not special to git, and it is never
// captured: it is gone before the first walk.
func (s *Store) fresh() string { return filepath.Join(s.root, ".git-new") }

// initRepository makes .git in one step, so that a crash leaves none or one with everything
// that the engine wants in it. Nothing of it is synced before something in it counts, which
// syncs all of it (counts, beginMain): until then it has the file that says that it begins,
// and the next start makes another.
func (s *Store) initRepository(ctx context.Context) error {
	tmp := s.fresh()
	if err := disk.RemoveTree(tmp); err != nil {
		return err
	}
	if err := s.git.Init(ctx, s.root, tmp); err != nil {
		return err
	}
	for _, d := range gitDirs {
		if err := disk.PlainDir(filepath.Join(tmp, d)); err != nil {
			return err
		}
	}
	files := maps.Clone(ownFiles)
	files["hooks/"+pushHook] = prePush
	files[workDir+"/journal"], files[beginsFile] = string(journal.NewHead()), ""
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(tmp, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	if err := os.Rename(tmp, s.gitDir); err != nil {
		return err
	}
	s.begins.Store(true)
	return nil
}

// RemoveStale removes what a killed process left unfinished in .git.
func (s *Store) RemoveStale() error {
	err := filepath.WalkDir(filepath.Join(s.gitDir, "refs"), func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(p, ".lock") {
			return os.Remove(p)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, glob := range []string{"objects/??/tmp_obj_*", TornPacks, "objects/tmp_*", "choir/tmp-merge-*", "choir/tmp-import-*", "choir/tmp-disk-*", "choir/incoming-*", "choir/chunks/tmp-*"} {
		if err := s.RemoveAll(glob); err != nil {
			return err
		}
	}
	return nil
}

// RemoveAll removes what a pattern matches in .git.
func (s *Store) RemoveAll(glob string) error {
	found, err := filepath.Glob(filepath.Join(s.gitDir, glob))
	if err != nil {
		return err
	}
	for _, p := range found {
		if err := disk.RemoveTree(p); err != nil {
			return err
		}
	}
	return nil
}

// TornPacks are the temporary files of packs that git could not write to the end.
const TornPacks = "objects/pack/tmp_*"
