package shell

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"strings"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/egress"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/sandbox"
)

// Modules keeps the shell's dependencies, one tree per lock file, installed from the lock
// file that came with the binary. Boxes see it read-only; a computer's install scripts
// never write it.
type Modules struct {
	Source fs.FS // the shell's source

	mu     sync.Mutex
	failed error
	again  time.Time // until then failed is returned without trying
}

const (
	installWall  = 3 * time.Minute
	installAgain = time.Minute // for how long a failure is returned without trying again
	installBytes = 1 << 30
	installFiles = 200_000
	modulesCache = "node_modules"
	filling      = ".fill" // prefix of the name of a tree that is not complete yet
)

// Ready returns the tree if it exists; it does not wait for one to be made.
func (m *Modules) Ready(ctx context.Context, v sandbox.Volumes) (sandbox.Volume, bool) {
	final, err := m.final()
	if err != nil {
		return sandbox.Volume{}, false
	}
	tree := final.At("node_modules")
	there, err := v.Exists(ctx, tree)
	return tree, err == nil && there
}

// final is where the tree for the shipped lock file is or will be.
func (m *Modules) final() (sandbox.Volume, error) {
	lock, err := fs.ReadFile(m.Source, "package-lock.json")
	if err != nil {
		return sandbox.Volume{}, fault.Wrap("shell.Modules", err)
	}
	sum := sha256.Sum256(lock)
	return sandbox.SharedCache(modulesCache + "/" + hex.EncodeToString(sum[:8])), nil
}

// Modules returns the tree for the shipped lock file, installing it first if it does not
// exist: once for all computers, in a box of the computer that asks first. Errors:
// fault.Missing without npm, fault.Unavailable when installing failed.
func (s *Shell) Modules(ctx context.Context) (sandbox.Volume, error) {
	m := s.opts.Modules
	m.mu.Lock()
	defer m.mu.Unlock()
	if tree, ok := m.Ready(ctx, s.opts.Volumes); ok {
		return tree, nil
	}
	if m.failed != nil && time.Now().Before(m.again) {
		return sandbox.Volume{}, m.failed
	}
	tree, err := s.fillModules(ctx)
	if m.failed = nil; err != nil && ctx.Err() == nil {
		m.failed, m.again = err, time.Now().Add(installAgain)
	}
	return tree, err
}

func (s *Shell) fillModules(ctx context.Context) (_ sandbox.Volume, err error) {
	const op = "shell.Modules"
	m := s.opts.Modules
	final, err := m.final()
	if err != nil {
		return sandbox.Volume{}, err
	}
	if err := sandbox.Program("npm", "Install Node.js 20.19 or 22.12 or newer with npm; until then the kept build of the desktop is served."); err != nil {
		return sandbox.Volume{}, fault.Wrap(op, err)
	}
	tmp := sandbox.SharedCache(modulesCache + "/" + filling)
	defer func() {
		if err != nil {
			err = fault.Wrap(op, errors.Join(err, s.opts.Volumes.Discard(context.WithoutCancel(ctx), tmp)))
		}
	}()
	if err := s.beginModules(ctx, tmp); err != nil {
		return sandbox.Volume{}, err
	}
	if err := s.install(ctx, tmp); err != nil {
		return sandbox.Volume{}, err
	}
	// A box wrote it that has ended by now; what is mounted must be a folder inside it.
	there, err := s.opts.Volumes.Exists(ctx, tmp.At("node_modules"))
	if err == nil && !there {
		err = errors.New("npm ci left no node_modules")
	}
	if err != nil {
		return sandbox.Volume{}, err
	}
	return final.At("node_modules"), s.opts.Volumes.Keep(ctx, tmp, final)
}

// beginModules makes the volume to install into, and removes incomplete ones.
func (s *Shell) beginModules(ctx context.Context, tmp sandbox.Volume) error {
	list, err := s.opts.Volumes.List(ctx, sandbox.SharedCache(modulesCache))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range list {
		if strings.HasPrefix(e.Name, filling) {
			if err := s.opts.Volumes.Discard(ctx, sandbox.SharedCache(modulesCache+"/"+e.Name)); err != nil {
				return err
			}
		}
	}
	if err := s.opts.Volumes.Make(ctx, tmp); err != nil {
		return err
	}
	for _, name := range []string{"package.json", "package-lock.json", ".npmrc"} {
		b, err := fs.ReadFile(s.opts.Modules.Source, name)
		if err == nil {
			err = s.opts.Volumes.Put(ctx, tmp, name, b, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// install runs npm ci in a box that reaches the registries and nothing else. npm ends with
// its box, so a choir that is killed leaves none behind, and the next one starts again.
func (s *Shell) install(ctx context.Context, dir sandbox.Volume) error {
	ctx, cancel := awake.WithTimeout(ctx, installWall)
	defer cancel()
	id := "install"
	limits := s.opts.Limits()
	limits.DiskBytes, limits.DiskInodes, limits.Counted, limits.WallTime = installBytes, installFiles, []sandbox.Volume{dir}, installWall
	env := map[string]string{"npm_config_cache": "/install/.cache", "npm_config_fetch_timeout": "20000",
		"NO_PROXY": "", "no_proxy": ""} // so that a registry on this machine is reached by the proxy like any other
	if own, err := egress.Configured(ctx, "npm"); err == nil {
		maps.Copy(env, own)
	}
	if _, err := os.Stat(sandbox.Certificates); err == nil {
		env["NODE_EXTRA_CA_CERTS"] = sandbox.Certificates // Node uses a list of its own and not the machine's
	}
	box, err := s.opts.Box(ctx, sandbox.BoxSpec{
		ID: id, Kind: contract.BoxScratch, Root: "/install", Proxy: true, Limits: limits, Env: env,
		Mounts: []sandbox.Mount{{Source: dir, Target: "/install", Mode: sandbox.ReadWrite}},
		// It uses our lock file, runs no scripts, and reaches the registries that this
		// machine's own package managers use, wherever they are.
		Handler: s.opts.Registries(ctx, id),
	})
	if err != nil {
		return err
	}
	defer box.Kill() //nolint:errcheck // killed below where it matters
	_, stderr, exit, err := guest.NewClient(box.Tether().Transport()).Output(ctx, 8<<10, "npm", "ci", "--ignore-scripts", "--fetch-retries=0", "--no-audit", "--no-fund", "--loglevel=error")
	if err == nil && exit.Code == 0 {
		_, _, exit, err = guest.NewClient(box.Tether().Transport()).Output(ctx, 8<<10, "rm", "-rf", "/install/.cache")
	}
	if err = errors.Join(err, box.Kill()); err != nil {
		return err
	}
	if exit.Code != 0 {
		return fault.New("", fault.Unavailable, "Check that npm can reach its registry; until then the kept build of the desktop is served.",
			fmt.Errorf("npm ci ended with code %d: %s", exit.Code, contract.Clip(string(stderr), 2000)))
	}
	return nil
}
