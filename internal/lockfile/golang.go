package lockfile

import (
	"path"
	"strings"

	"golang.org/x/mod/modfile"

	"choir.dev/choiros/internal/fault"
)

// golang reads go.mod and go.sum, go.work beside them, and the manifests of the workspace's
// modules that they refer to. The go command itself compares what it downloads with go.sum.
func (r *reading) golang() error {
	sum, err := r.lock()
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(sum)) {
		if f := strings.Fields(line); len(f) == 3 && !strings.HasSuffix(f[1], "/go.mod") {
			r.parsed.Packages++
		}
	}
	if err := r.goMod("."); err != nil {
		return err
	}
	b, err := r.file("go.work", maxManifest)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	work, err := modfile.ParseWork("go.work", b, nil)
	if err != nil {
		return invalid("%w", err)
	}
	for _, use := range work.Use {
		if err := r.goMod(use.Path); err != nil {
			return err
		}
		if err := r.optional(path.Join(use.Path, "go.sum"), maxLock); err != nil {
			return err
		}
	}
	if err := r.optional("go.work.sum", maxLock); err != nil {
		return err
	}
	return r.replaced(".", work.Replace)
}

func (r *reading) optional(rel string, max int) error {
	if _, err := r.file(rel, max); err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	return nil
}

// goMod reads the manifest of a module of the workspace, and those of modules that it
// replaces by folders.
func (r *reading) goMod(dir string) error {
	b, err := r.file(path.Join(dir, "go.mod"), maxManifest)
	if err != nil {
		return err
	}
	mod, err := modfile.Parse("go.mod", b, nil)
	if err != nil {
		return invalid("%w", err)
	}
	return r.replaced(dir, mod.Replace)
}

func (r *reading) replaced(dir string, list []*modfile.Replace) error {
	for _, m := range list {
		if m.New.Version != "" {
			continue
		}
		if path.IsAbs(m.New.Path) {
			return invalid("go.mod takes %s from %s, which is not in the workspace", clip(m.Old.Path), clip(m.New.Path))
		}
		if _, err := r.file(path.Join(dir, m.New.Path, "go.mod"), maxManifest); err != nil {
			return err
		}
	}
	return nil
}
