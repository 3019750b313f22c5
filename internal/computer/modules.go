package computer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"choir.dev/choiros/internal/fault"
)

// modules keeps the shell's dependencies, one tree per lock file, filled by the
// host's own npm from the lock file that came with the binary. Boxes see it
// read-only; a computer's install scripts never write it.
type modules struct {
	dir    string // DATA/cache/node_modules
	source fs.FS  // the shell's source

	mu sync.Mutex
}

// ready returns the tree if it is there, without waiting for one to be made.
func (m *modules) ready() (string, bool) {
	final, err := m.final()
	if err != nil {
		return "", false
	}
	tree := filepath.Join(final, "node_modules")
	_, err = os.Stat(tree)
	return tree, err == nil
}

// final is where the tree for the shipped lock file is or will be.
func (m *modules) final() (string, error) {
	lock, err := fs.ReadFile(m.source, "package-lock.json")
	if err != nil {
		return "", fault.Wrap("computer.modules", err)
	}
	sum := sha256.Sum256(lock)
	return filepath.Join(m.dir, hex.EncodeToString(sum[:8])), nil
}

// path returns the tree for the shipped lock file, installing it first when it
// is not there. Errors: fault.Missing without npm, fault.Unavailable when npm
// failed.
func (m *modules) path(ctx context.Context) (string, error) {
	const op = "computer.modules"
	m.mu.Lock()
	defer m.mu.Unlock()
	if tree, ok := m.ready(); ok {
		return tree, nil
	}
	final, err := m.final()
	if err != nil {
		return "", err
	}
	tree := filepath.Join(final, "node_modules")
	if _, err := exec.LookPath("npm"); err != nil {
		return "", fault.New(op, fault.Missing, "Install Node.js 20.19 or newer with npm; until then the kept build of the desktop is served.", err)
	}
	if err := os.MkdirAll(m.dir, 0o755); err != nil {
		return "", fault.Wrap(op, err)
	}
	tmp, err := os.MkdirTemp(m.dir, ".fill-*")
	if err != nil {
		return "", fault.Wrap(op, err)
	}
	defer os.RemoveAll(tmp)
	for _, name := range []string{"package.json", "package-lock.json", ".npmrc"} {
		b, err := fs.ReadFile(m.source, name)
		if err != nil {
			return "", fault.Wrap(op, err)
		}
		if err := os.WriteFile(filepath.Join(tmp, name), b, 0o644); err != nil {
			return "", fault.Wrap(op, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund", "--loglevel=error")
	cmd.Dir = tmp
	if out, err := cmd.CombinedOutput(); err != nil {
		if len(out) > 2000 {
			out = out[len(out)-2000:]
		}
		return "", fault.New(op, fault.Unavailable, "Check that npm can reach its registry; until then the kept build of the desktop is served.",
			errors.Join(err, errors.New(string(out))))
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return "", fault.Wrap(op, err)
	}
	if err := os.Rename(tmp, final); err != nil {
		if _, ok := m.ready(); !ok { // another process may have been faster
			return "", fault.Wrap(op, err)
		}
	}
	return tree, nil
}
