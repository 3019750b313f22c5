package boxtools

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"choir.dev/choiros/internal/associate/verify"
	"choir.dev/choiros/internal/harness"
)

type factsArgs struct {
	Paths   []string `json:"paths"`
	Base    bool     `json:"base"`
	Restore []string `json:"restore"`
}

func (b *Box) facts(_ context.Context, a factsArgs) (Result, error) {
	if err := b.restore(a.Restore); err != nil {
		return Result{}, err
	}
	root := b.root
	if a.Base {
		base, err := os.OpenRoot(b.base)
		if err != nil {
			return Result{}, err
		}
		defer base.Close()
		root = base
	}
	f, err := verify.Gather(root, a.Paths)
	if err != nil {
		return Result{}, err
	}
	data, err := json.Marshal(f)
	return Result{OK: err == nil, Data: data}, err
}

type checkArgs struct {
	Argv     []string      `json:"argv"`
	Cwd      string        `json:"cwd"`
	TimeoutS int           `json:"timeout_s"`
	Runner   verify.Runner `json:"runner"`
	Restore  []string      `json:"restore"`
}

// check restores the files that the base judges by, runs one check, and reads what its
// runner reported. Nothing of the tree has run in the box before.
func (b *Box) check(ctx context.Context, a checkArgs) (Result, error) {
	if err := b.restore(a.Restore); err != nil {
		return Result{}, err
	}
	dir, err := b.clean(a.Cwd)
	if err != nil {
		return Result{}, err
	}
	if info, err := b.root.Stat(dir); err != nil || !info.IsDir() {
		return Result{}, refuse("%s is no folder", dir)
	}
	own, err := os.MkdirTemp("", "check-")
	if err != nil {
		return Result{}, err
	}
	defer os.RemoveAll(own)
	argv, env, err := verify.Prepare(a.Runner, a.Argv, own)
	if err != nil {
		return Result{}, err
	}
	timeout := defaultCommandTime
	if a.TimeoutS > 0 {
		timeout = time.Duration(a.TimeoutS) * time.Second
	}
	var out *verify.Output
	between := func(w io.Writer) io.Writer {
		out = verify.NewOutput(a.Runner, w)
		return out
	}
	cmd, why := b.execTo(ctx, argv, path.Join(b.dir, dir), nil, between, timeout, env...)
	cmd.Argv = a.Argv // without what makes it report
	count := verify.Count{Runner: verify.ExitCode}
	if out != nil {
		count = out.Count(own).Within(b.dir)
	}
	data, err := json.Marshal(count)
	said := describe(cmd, why)
	return Result{OK: err == nil, Output: harness.Clip(said, MaxOutput), Truncated: cmd.Truncated || len(said) > MaxOutput, Command: &cmd, Data: data}, err
}

// restore makes paths of the tree what they are in the base: a file, a link, or absent.
func (b *Box) restore(paths []string) error {
	if len(paths) == 0 {
		return nil
	}
	base, err := os.OpenRoot(b.base)
	if err != nil {
		return err
	}
	defer base.Close()
	for _, p := range paths {
		p, err := b.cleanForWrite(p)
		if err != nil {
			return err
		}
		if err := b.restoreOne(base, p); err != nil {
			return err
		}
	}
	return nil
}

func (b *Box) restoreOne(base *os.Root, p string) error {
	info, err := base.Lstat(p)
	gone := errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
	if err != nil && !gone {
		return err
	}
	if err := b.clearWay(path.Dir(p)); err != nil {
		return err
	}
	there, err := b.root.Lstat(p)
	if err == nil && !gone && info.Mode().IsRegular() && there.Mode().IsRegular() {
		if done, err := b.splice(base, p, there.Mode().Perm()); done || err != nil {
			return err
		}
	}
	switch {
	case err == nil && !gone && info.IsDir() && there.IsDir():
		return nil
	case err == nil:
		if err := b.root.RemoveAll(p); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if gone {
		return nil
	}
	if err := b.root.MkdirAll(path.Dir(p), 0o755); err != nil {
		return err
	}
	switch {
	case info.IsDir():
		return b.root.MkdirAll(p, 0o755)
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := base.Readlink(p)
		if err != nil {
			return err
		}
		return b.root.Symlink(target, p)
	}
	from, err := base.Open(p)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := b.root.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm()|0o200)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}

// splice replaces the tests in a file of code by those in the base's file.
func (b *Box) splice(base *os.Root, p string, mode fs.FileMode) (done bool, err error) {
	if !verify.MayHaveTests(p) {
		return false, nil
	}
	old, err := base.ReadFile(p)
	if err != nil {
		return false, err
	}
	now, err := b.root.ReadFile(p)
	if err != nil {
		return false, err
	}
	text, ok := verify.Splice(p, old, now)
	if !ok {
		return false, nil
	}
	return true, b.root.WriteFile(p, text, mode)
}

// clearWay removes a file that is where a folder of a restored path has to be.
func (b *Box) clearWay(dir string) error {
	if dir == "." {
		return nil
	}
	at := ""
	for _, part := range strings.Split(dir, "/") {
		at = path.Join(at, part)
		info, err := b.root.Lstat(at)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if !info.IsDir() {
			return b.root.Remove(at)
		}
	}
	return nil
}
