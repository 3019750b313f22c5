// Package mounts says which of a computer's trees a box sees, and where: the layers of a
// snapshot for as long as somebody uses it, a task's overlay, the packages that a check
// needs, the shell's dependencies. The code that opens a box chooses among them.
package mounts

import (
	"context"
	"log/slog"
	"path"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/computer/boxes"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/shell"
	"choir.dev/choiros/internal/workspace"
)

// Options are the parts from which the mounts of one computer are made.
type Options struct {
	Workspace *workspace.Workspace
	Boxes     *boxes.Boxes   // whose volumes they are
	Modules   *shell.Modules // the machine's installed dependencies of shells
	// Install installs the dependencies of this computer's shell.
	Install func(ctx context.Context) (sandbox.Volume, error)
	// Awake ends when the computer falls asleep.
	Awake  context.Context
	Logger *slog.Logger
}

// Mounts makes the mounts of one computer that is awake.
type Mounts struct {
	options Options

	mu   sync.Mutex
	uses map[string]int // by commit: users of its checkout, which the workspace does not count
}

// New makes a Mounts; nothing is checked out.
func New(o Options) *Mounts { return &Mounts{options: o, uses: map[string]int{}} }

// Snapshot checks a commit out, in layers, which stay until release is called.
func (m *Mounts) Snapshot(ctx context.Context, commit string) (layers []sandbox.Volume, release func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if layers, err = m.options.Workspace.Snapshot(ctx, commit); err != nil {
		return nil, nil, err
	}
	m.uses[commit]++
	return layers, sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.uses[commit]--; m.uses[commit] > 0 {
			return
		}
		delete(m.uses, commit)
		ctx, cancel := awake.WithTimeout(m.options.Awake, time.Minute)
		defer cancel()
		if err := m.options.Workspace.Release(ctx, commit); err != nil && m.options.Awake.Err() == nil {
			m.options.Logger.Warn("a snapshot could not be released", "commit", commit, "error", err)
		}
	}), nil
}

// CheckOut checks the newest checkpoint out, because the first task will need it: a computer
// that was just made has no layers, so all of its files have to be written. A fork may have
// very many files, so there the first task waits for them.
func (m *Mounts) CheckOut(ctx context.Context) error {
	_, release, err := m.Snapshot(ctx, "HEAD")
	if err == nil {
		release() // the layers of the newest checkpoint stay
	}
	return err
}

// Modules mounts the shell's dependencies where the shell expects them. With wait, missing
// ones are installed first; if that fails, or without wait, the mount is left out.
func (m *Mounts) Modules(ctx context.Context, wait bool) ([]sandbox.Mount, error) {
	tree, ok := m.options.Modules.Ready(ctx, m.options.Boxes.Volumes())
	if !ok && wait {
		var err error
		tree, err = m.options.Install(ctx)
		if err != nil && !fault.Is(err, fault.Missing) && !fault.Is(err, fault.Unavailable) {
			return nil, err
		}
		ok = err == nil // the check that needs them fails, and says what is missing
	}
	if !ok {
		return nil, nil
	}
	// If the tree has a link in that place, the mount is left out.
	return []sandbox.Mount{{Source: tree, Target: "/computer/choiros/node_modules", Mode: sandbox.ReadOnly, Optional: true}}, nil
}

// Task is a task's view: its overlay, the history read-only, the ignored
// directories overlaid from live, and the shell's dependencies.
func (m *Mounts) Task(ctx context.Context, o workspace.Overlay) ([]sandbox.Mount, error) {
	mounts := []sandbox.Mount{
		{Target: "/computer", Mode: sandbox.Overlay, Lower: o.Lower, Upper: o.Upper},
		boxes.Git(),
	}
	for _, ig := range o.Ignored {
		if ig.Path == shell.ModulesPath {
			continue
		}
		mounts = append(mounts, sandbox.Mount{Target: path.Join("/computer", ig.Path), Mode: sandbox.Overlay, Lower: []sandbox.Volume{ig.Lower}, Upper: ig.Upper, Optional: true})
	}
	modules, err := m.Modules(ctx, false)
	if err != nil {
		return nil, err
	}
	at, err := m.options.Boxes.Home(ctx)
	return append(append(mounts, modules...), at), err
}

// Verify is a check's view: the commit to verify with a throwaway upper, beside it the base
// that the task's work is compared with, never a kept tree that it goes on from, and the user's own ignored directories, throwaway as well.
// What the task put into ignored directories is not there: it is not published, so nothing
// may depend on it. With wait, missing dependencies of the shell are installed first.
func (m *Mounts) Verify(ctx context.Context, o workspace.Overlay, commit string, wait bool) ([]sandbox.Mount, func(), error) {
	layers, release, err := m.Snapshot(ctx, commit)
	if err != nil {
		return nil, nil, err
	}
	mounts := []sandbox.Mount{
		{Target: "/computer", Mode: sandbox.Overlay, Lower: layers}, boxes.Git(),
		{Lower: o.BaseLower, Target: contract.BaseInBox, Mode: sandbox.ReadOnly},
	}
	mounts = append(mounts, usersOwn(o.Ignored)...)
	modules, err := m.Modules(ctx, wait)
	if err != nil {
		release()
		return nil, nil, err
	}
	at, err := m.options.Boxes.Home(ctx)
	if err != nil {
		release()
		return nil, nil, err
	}
	return append(append(mounts, modules...), at), release, nil
}

// usersOwn mounts the ignored directories of a check's box as the user has them, without
// what the task put there.
func usersOwn(ignored []workspace.IgnoredDir) []sandbox.Mount {
	var out []sandbox.Mount
	for _, ig := range ignored {
		if ig.Path == shell.ModulesPath {
			continue
		}
		lower := []sandbox.Volume{ig.Lower}
		if defence.Off(defence.CheckDependencies) {
			lower = []sandbox.Volume{ig.Upper, ig.Lower}
		}
		out = append(out, sandbox.Mount{Target: path.Join("/computer", ig.Path), Mode: sandbox.Overlay, Lower: lower, Optional: true})
	}
	return out
}
