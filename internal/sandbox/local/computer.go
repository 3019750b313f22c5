package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/lazy"
	"choir.dev/choiros/internal/process"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/local/cgroup"
	"choir.dev/choiros/internal/sandbox/local/hostfs"
)

type computer struct {
	driver  *Driver
	spec    sandbox.ComputerSpec
	dir     string      // the computer's boxes/
	root    *hostfs.Dir // the computer's directory
	volumes *Volumes
	remover *hostfs.Remover
	prefix  string // of its boxes' cgroups

	mu     sync.Mutex
	boxes  map[string]*box // nil value: being made
	closed bool
}

var boxID = lazy.Regexp(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Box implements sandbox.Computer.
func (c *computer) Box(ctx context.Context, spec sandbox.BoxSpec) (sandbox.Box, error) {
	const op = "sandbox/local.Box"
	if !boxID().MatchString(spec.ID) {
		return nil, fault.New(op, fault.Invalid, "", fmt.Errorf("%.80q is no box id", spec.ID))
	}
	if err := checkSpec(spec); err != nil {
		return nil, fault.New(op, fault.Invalid, "", err)
	}
	c.mu.Lock()
	_, taken := c.boxes[spec.ID]
	switch {
	case c.closed:
		c.mu.Unlock()
		return nil, fault.New(op, fault.Unavailable, "", errors.New("the computer is closed"))
	case taken:
		c.mu.Unlock()
		return nil, fault.New(op, fault.InUse, "", fmt.Errorf("box %s is open", spec.ID))
	}
	c.boxes[spec.ID] = nil
	c.mu.Unlock()

	b, err := c.open(ctx, spec)
	c.mu.Lock()
	if err != nil {
		delete(c.boxes, spec.ID)
		c.mu.Unlock()
		return nil, fault.Wrap(op, err)
	}
	c.boxes[spec.ID] = b
	closed := c.closed
	c.mu.Unlock()
	if closed { // Close did not see this box yet
		return nil, also(fault.New(op, fault.Unavailable, "", errors.New("the computer is closed")), b.Kill())
	}
	return b, nil
}

func (c *computer) forget(b *box) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.boxes[b.spec.ID] == b {
		delete(c.boxes, b.spec.ID)
	}
}

func (c *computer) list() []*box {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []*box
	for _, b := range c.boxes {
		if b != nil {
			out = append(out, b)
		}
	}
	return out
}

// Volumes implements sandbox.Computer.
func (c *computer) Volumes() sandbox.Volumes { return c.volumes }

// Boxes implements sandbox.Computer.
func (c *computer) Boxes() []sandbox.Box {
	var out []sandbox.Box
	for _, b := range c.list() {
		out = append(out, b)
	}
	return out
}

// Notes implements sandbox.Computer.
func (c *computer) Notes() []sandbox.Finding {
	out := c.driver.weaknesses()
	if n := len(c.remover.Stuck()); n > 0 {
		out = append(out, sandbox.Finding{
			ID: "not-removed", Severity: sandbox.Weak,
			Text: fmt.Sprintf("%d things that boxes left can't be removed.", n),
			Hint: "Look at " + filepath.Join(c.spec.Dir, removing) + ".",
		})
	}
	return out
}

// Pause implements sandbox.Computer. The guests themselves go on, so that
// tethers live.
func (c *computer) Pause(ctx context.Context) error { return c.signal(ctx, syscall.SIGSTOP) }

// Resume implements sandbox.Computer.
func (c *computer) Resume(ctx context.Context) error { return c.signal(ctx, syscall.SIGCONT) }

func (c *computer) signal(ctx context.Context, sig syscall.Signal) error {
	var errs []error
	for _, b := range c.list() {
		if err := b.Signal(ctx, sig); err != nil {
			select {
			case <-b.Done(): // it ended meanwhile
			default:
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// Close implements sandbox.Computer.
func (c *computer) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	var errs []error
	for _, b := range c.list() {
		errs = append(errs, b.Kill())
	}
	c.driver.mu.Lock()
	if c.driver.computers[c.spec.Dir] == c {
		delete(c.driver.computers, c.spec.Dir)
		errs = append(errs, c.release())
	}
	c.driver.mu.Unlock()
	return errors.Join(errs...)
}

// release gives up the computer's directory.
func (c *computer) release() error {
	return c.volumes.Close()
}

// take opens the computer's directory, and ends and removes what an earlier process left in
// it.
func (c *computer) take(ctx context.Context) (err error) {
	if err := os.MkdirAll(c.spec.Dir, 0o700); err != nil {
		return err
	}
	c.volumes, err = openVolumes(VolumesOptions{Dir: c.spec.Dir, Caches: c.spec.Caches, OnError: func(err error) {
		c.driver.opts.Logger.Warn("what boxes left was not removed", "computer", c.spec.CID, "error", err)
	}}, c.driver.shared)
	if err != nil {
		return err
	}
	c.root, c.remover = c.volumes.root.dir, c.volumes.root.remover
	defer func() {
		if err != nil {
			err = also(err, c.release())
		}
	}()
	return c.sweep(ctx)
}

// otherProcess is the hint when another process has a computer's files open.
const otherProcess = "Stop the other choir process that runs this computer."

// sweep ends and removes what an earlier process left. Boxes die with their control plane,
// but not at the same moment; their locks show when.
func (c *computer) sweep(ctx context.Context) error {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return err
	}
	ctx, cancel := awake.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		dir := filepath.Join(c.dir, e.Name())
		run := filepath.Join(dir, runDir)
		if _, err := os.Lstat(run); err != nil {
			_ = os.Remove(dir) // an overlay without a box is not empty and stays; the directory of a box that was not completed is empty
			continue
		}
		g := &cgroup.Group{In: c.driver.cgroups, Dirs: map[string]string{}}
		for controller, parent := range c.driver.cgroups.Parent {
			if dir := filepath.Join(parent, c.prefix+e.Name()); exists(dir) {
				g.Dirs[controller] = dir
			}
		}
		lock, err := awaitLock(ctx, filepath.Join(run, lockName), g)
		if err != nil {
			return fault.New("", fault.InUse, otherProcess, fmt.Errorf("box %s still lives: %w", e.Name(), err))
		}
		err = errors.Join(awaitEmpty(ctx, g, run), g.Remove(), c.remover.Take(c.root, path.Join("boxes", e.Name(), runDir)), lock.Close())
		if err != nil {
			return fmt.Errorf("clear box %s: %w", e.Name(), err)
		}
		_ = os.Remove(dir) // only if nothing else is in it
	}
	// Groups whose box directory is gone.
	for controller, parent := range c.driver.cgroups.Parent {
		left, err := filepath.Glob(filepath.Join(parent, c.prefix+"*"))
		if err != nil {
			return err
		}
		for _, dir := range left {
			g := &cgroup.Group{In: c.driver.cgroups, Dirs: map[string]string{controller: dir}}
			if err := errors.Join(awaitEmpty(ctx, g, ""), g.Remove()); err != nil {
				return err
			}
		}
	}
	return nil
}

// lockFile takes a lock that is held until the last process that inherited it has ended.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fault.New("", fault.InUse, otherProcess, fmt.Errorf("%s is locked by a box that still lives", path))
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// awaitLock waits until the boxes of a dead owner are gone, and kills them after a while.
func awaitLock(ctx context.Context, path string, g *cgroup.Group) (*os.File, error) {
	for begin := time.Now(); ; {
		f, err := lockFile(path)
		if err == nil || !fault.Is(err, fault.InUse) {
			return f, err
		}
		if time.Since(begin) > time.Second {
			killOrphans(path, g)
			begin = time.Now()
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// awaitEmpty kills what is left of a box without an owner and waits for it: by its cgroup,
// and by its first process, with which the kernel ends all others of its process namespace.
func awaitEmpty(ctx context.Context, g *cgroup.Group, run string) error {
	guest := ""
	if run != "" {
		data, err := os.ReadFile(filepath.Join(run, guestFile))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		guest = string(data)
	}
	for {
		left := g.Members()
		if pid := process.Living(guest); pid > 1 {
			left = append(left, pid)
		}
		if len(left) == 0 {
			return nil
		}
		if err := g.Kill(); err != nil {
			return err
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended meanwhile
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("processes %v are still there: %w", left, ctx.Err())
		case <-time.After(2 * time.Millisecond):
		}
	}
}
