package boxes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/lockfile"
	"choir.dev/choiros/internal/sandbox"
)

// dependencies keeps what lock files name, installed for one computer's checks:
// one tree for each content of a lock. A box of its own fills a tree, and what a
// check writes over it goes with the check's box, so no check leaves anything
// there for another one.
type dependencies struct {
	c    *Boxes
	turn chan struct{} // held by who fills or removes one

	mu     sync.Mutex
	uses   map[string]int
	failed map[string]failedInstall
}

// failedInstall is what is answered for a while instead of trying again.
type failedInstall struct {
	err   error
	until time.Time
}

const (
	DependenciesDir = "dependencies"
	entryFile       = "entry.json"

	maxTrees   = 200             // however small they are
	installAll = 8 * time.Minute // for the locks of one tree
)

// installed is a tree that is whole. Its folders lie beside the file that says
// so, which no box sees.
type installed struct {
	Packages int              `json:"packages"`
	Bytes    int64            `json:"bytes"`
	Hosts    []string         `json:"hosts,omitempty"`
	Note     string           `json:"note,omitempty"`
	Mounts   []installedMount `json:"mounts"`
}

// installedMount is a folder of the tree and where checks see it.
type installedMount struct {
	Source string `json:"source"`
	Target string `json:"target"`
}

func newDependencies(c *Boxes) *dependencies {
	return &dependencies{c: c, turn: make(chan struct{}, 1), uses: map[string]int{}, failed: map[string]failedInstall{}}
}

// sweep takes away what was begun and not ended by an earlier process.
func (d *dependencies) sweep(ctx context.Context) error {
	list, err := d.volumes().List(ctx, sandbox.Cache(DependenciesDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range list {
		if strings.HasPrefix(e.Name, filling) {
			err = errors.Join(err, d.volumes().Discard(ctx, tree(e.Name)))
		}
	}
	return err
}

func (d *dependencies) volumes() sandbox.Volumes { return d.c.Volumes() }

// tree is where a computer keeps what is installed under a key. It is the
// computer's own: what the packages of one leave there is seen by no other.
func tree(key string) sandbox.Volume { return sandbox.Cache(path.Join(DependenciesDir, key)) }

// held are the trees that a verification's checks see.
type held struct {
	mounts  []sandbox.Mount
	env     map[string]string
	release func()
}

// Release implements dispatch.Dependencies.
func (h *held) Release() { h.release() }

// Install implements ports.Installer.
func (c *Boxes) Install(ctx context.Context, r ports.LockRequest) (ports.Dependencies, []contract.Installation) {
	return c.installed.install(ctx, r)
}

func (d *dependencies) install(ctx context.Context, r ports.LockRequest) (ports.Dependencies, []contract.Installation) {
	ctx, cancel := awake.WithTimeoutCause(ctx, installAll, fault.New("", fault.Timeout, "", fmt.Errorf("what the project's lock files name was not installed within %s", installAll)))
	defer cancel()
	var said []contract.Installation
	var keys []string
	out := &held{env: map[string]string{}}
	for _, want := range r.Locks {
		lock, err := lockfile.Read(want.Tool, want.Dir, d.reader(ctx, r))
		if fault.Is(err, fault.NotFound) || err == nil && lock.Packages == 0 {
			continue // it names nothing
		}
		if lock.Name == "" {
			lock.Name = lockfile.Names(want.Tool)[0]
		}
		in := contract.Installation{Tool: string(want.Tool), Lock: path.Join(want.Dir, lock.Name), Of: r.Of, Packages: lock.Packages}
		if contract.ValidPath("lock", in.Lock) != nil {
			in.Lock = lock.Name
		}
		var got installed
		if err == nil {
			in.Key, got, in.Kept, err = d.have(ctx, lock, r)
		}
		if err != nil {
			in.Problem = contract.Line(contract.Clip(strings.TrimSuffix(fault.Text(err)+". "+fault.HintOf(err), ". "), 3500))
			said = append(said, in)
			continue
		}
		in.Bytes, in.Note = got.Bytes, got.Note
		if !in.Kept {
			in.Hosts = got.Hosts
		}
		said, keys = append(said, in), append(keys, in.Key)
		out.add(in.Key, want.Tool, got)
	}
	out.release = sync.OnceFunc(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, k := range keys {
			if d.uses[k]--; d.uses[k] <= 0 {
				delete(d.uses, k)
			}
		}
	})
	return out, said
}

// reader reads from the tree that is verified, and what judges it from the base.
func (d *dependencies) reader(ctx context.Context, r ports.LockRequest) lockfile.Reader {
	return func(p string, max int) ([]byte, error) {
		commit := r.Commit
		if slices.Contains(r.Restored, p) {
			commit = r.Overlay.Base()
		}
		content, err := d.c.o.Read(ctx, commit, p, int64(max))
		if err != nil {
			return nil, err
		}
		defer content.Close()
		b, err := io.ReadAll(io.LimitReader(content, int64(max)))
		return b, fault.Wrap("boxes.dependencies", err)
	}
}

// add shows a tree to checks. Trees of one tool lie over each other: what they
// hold is named by version.
func (h *held) add(key string, tool lockfile.Tool, got installed) {
	for _, m := range got.Mounts {
		lower := tree(key).At(m.Source)
		at := slices.IndexFunc(h.mounts, func(o sandbox.Mount) bool { return o.Target == m.Target })
		if at >= 0 {
			h.mounts[at].Lower = append(h.mounts[at].Lower, lower)
			continue
		}
		mount := sandbox.Mount{Target: m.Target, Mode: sandbox.Overlay, Lower: []sandbox.Volume{lower}, Optional: tool == lockfile.NPM}
		if defence.Off(defence.CacheThrown) {
			mount = sandbox.Mount{Source: lower, Target: m.Target, Mode: sandbox.ReadWrite, Optional: true}
		}
		h.mounts = append(h.mounts, mount)
	}
	maps.Copy(h.env, checksEnv[tool])
}

// checksEnv is how a check's programs find what was installed.
var checksEnv = map[lockfile.Tool]map[string]string{
	lockfile.Go:    {"GOMODCACHE": inside(lockfile.Go), "GOPROXY": "off"},
	lockfile.Cargo: {"CARGO_HOME": inside(lockfile.Cargo)},
	lockfile.Pip:   {"PYTHONPATH": inside(lockfile.Pip)},
}

// inside is where boxes see what a tool keeps outside of the project.
func inside(tool lockfile.Tool) string { return "/dependencies/" + string(tool) }

// have returns the tree of a lock, in use, and installs it when it is not there.
func (d *dependencies) have(ctx context.Context, lock lockfile.Lock, r ports.LockRequest) (key string, got installed, kept bool, err error) {
	chain, err := d.c.toolchain(lock.Tool)
	if err != nil {
		return "", got, false, err
	}
	key = string(lock.Tool) + "-" + lock.Sum(chain)
	if got, err := d.hold(ctx, key); err == nil {
		return key, got, true, nil
	}
	select {
	case d.turn <- struct{}{}:
		defer func() { <-d.turn }()
	case <-ctx.Done():
		return key, got, false, context.Cause(ctx)
	}
	if got, err := d.hold(ctx, key); err == nil { // somebody installed it meanwhile
		return key, got, true, nil
	}
	if err := d.lately(key); err != nil {
		return key, got, false, err
	}
	if err := d.room(ctx, d.quota()); err != nil {
		return key, got, false, err
	}
	if got, err = d.fill(ctx, key, lock, r); err == nil {
		got, err = d.hold(ctx, key)
	}
	if err != nil {
		if ctx.Err() == nil {
			d.mu.Lock()
			d.failed[key] = failedInstall{err, time.Now().Add(installAgain)}
			d.mu.Unlock()
		}
		return key, got, false, err
	}
	if err := d.room(ctx, d.quota()); err != nil {
		d.c.o.Logger.Warn("installed dependencies could not be bounded", "error", err)
	}
	return key, got, false, nil
}

func (d *dependencies) quota() int64 { return int64(d.c.o.Machine.Storage.DependenciesMB) << 20 }

// entry reads what is there under a key.
func (d *dependencies) entry(ctx context.Context, key string) (got installed, err error) {
	files, err := d.volumes().Files(ctx, tree(key))
	if err != nil {
		return got, err
	}
	b, err := fs.ReadFile(files, entryFile)
	if err != nil {
		return got, err
	}
	if err := json.Unmarshal(b, &got); err != nil {
		return got, err
	}
	for _, m := range got.Mounts {
		there, err := d.volumes().Exists(ctx, tree(key).At(m.Source))
		if err != nil || !there {
			return got, errors.Join(err, fs.ErrNotExist)
		}
	}
	return got, d.volumes().Touch(ctx, tree(key)) // the ones not used for longest go first
}

// hold returns a tree that is there, which stays until it is released.
func (d *dependencies) hold(ctx context.Context, key string) (installed, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	got, err := d.entry(ctx, key)
	if err == nil {
		d.uses[key]++
	}
	return got, err
}

// lately is why a lock could not be installed a moment ago.
func (d *dependencies) lately(key string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.failed, func(_ string, f failedInstall) bool { return time.Now().After(f.until) })
	return d.failed[key].err
}

// room removes what was not used for longest until no more than most bytes are
// there. What is in use stays.
func (d *dependencies) room(ctx context.Context, most int64) error {
	list, err := d.volumes().List(ctx, sandbox.Cache(DependenciesDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	type kept struct {
		key   string
		bytes int64
		used  time.Time
	}
	var trees []kept
	var sum int64
	for _, e := range list {
		if strings.HasPrefix(e.Name, filling) || ctx.Err() != nil {
			continue
		}
		t := kept{key: e.Name, used: e.Used}
		if files, err := d.volumes().Files(ctx, tree(t.key)); err == nil {
			var got installed
			if b, err := fs.ReadFile(files, entryFile); err == nil && json.Unmarshal(b, &got) == nil {
				t.bytes = got.Bytes
			}
		}
		sum, trees = sum+t.bytes, append(trees, t)
	}
	left := len(trees)
	slices.SortFunc(trees, func(a, b kept) int { return cmp.Or(a.used.Compare(b.used), strings.Compare(a.key, b.key)) })
	for _, t := range trees {
		if sum <= most && left <= maxTrees {
			break
		}
		gone, err := d.drop(ctx, t.key)
		if err != nil {
			return err
		}
		if gone {
			sum, left = sum-t.bytes, left-1
		}
	}
	return nil
}

// drop takes a tree away unless somebody uses it.
func (d *dependencies) drop(ctx context.Context, key string) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.uses[key] > 0 {
		return false, nil
	}
	return true, d.volumes().Discard(ctx, tree(key))
}

// fill installs a lock into a tree of its own and keeps it when it is whole.
func (d *dependencies) fill(ctx context.Context, key string, lock lockfile.Lock, r ports.LockRequest) (got installed, err error) {
	const op = "boxes.dependencies"
	tmp := tree(filling + key)
	defer func() {
		if err != nil {
			err = fault.Wrap(op, errors.Join(err, d.volumes().Discard(context.WithoutCancel(ctx), tmp)))
		}
	}()
	for _, sub := range []string{"src", "out", "home"} {
		if err := d.volumes().Make(ctx, tmp.At(sub)); err != nil {
			return got, err
		}
	}
	for p, b := range lock.Files {
		if err := d.volumes().Put(ctx, tmp.At("src"), p, b, 0o644); err != nil {
			return got, err
		}
	}
	if err := d.volumes().Make(ctx, tmp.At("src").At(lock.Dir)); err != nil {
		return got, err
	}
	got = installed{Packages: lock.Packages}
	if got.Hosts, got.Note, err = d.c.installLock(ctx, tmp, lock, r); err != nil {
		return got, err
	}
	// From here on no box writes there.
	drop := []string{"home", "src"}
	if lock.Tool == lockfile.NPM {
		drop = []string{"home", "out"}
		for _, f := range lock.Folders {
			m := installedMount{Source: path.Join("src", f, "node_modules"), Target: path.Join("/computer", f, "node_modules")}
			there, err := d.volumes().Exists(ctx, tmp.At(m.Source))
			if err != nil {
				return got, err
			}
			if there { // packages for other machines leave none
				got.Mounts = append(got.Mounts, m)
			}
		}
	} else {
		got.Mounts = []installedMount{{Source: "out", Target: inside(lock.Tool)}}
	}
	if len(got.Mounts) == 0 {
		return got, fault.New("", fault.Unavailable, "", fmt.Errorf("%s left nothing", lock.Tool))
	}
	for _, sub := range drop {
		if err := d.volumes().Discard(ctx, tmp.At(sub)); err != nil {
			return got, err
		}
	}
	return got, d.keep(ctx, tmp, tree(key), &got)
}

// keep gives a tree its name once all of it is on disk.
func (d *dependencies) keep(ctx context.Context, tmp, final sandbox.Volume, got *installed) error {
	size, err := d.volumes().Size(ctx, tmp)
	if err != nil {
		return err
	}
	got.Bytes = size.Bytes
	b, err := json.Marshal(got)
	if err != nil {
		return err
	}
	if err := d.volumes().Put(ctx, tmp, entryFile, b, 0o600); err != nil {
		return err
	}
	return d.volumes().Keep(ctx, tmp, final)
}

// WithDependencies adds to a check's box what was installed for it, in the place
// of what the user has there.
func WithDependencies(mounts []sandbox.Mount, deps []ports.Dependencies) ([]sandbox.Mount, map[string]string) {
	env := map[string]string{}
	for _, d := range deps {
		h, ok := d.(*held)
		if !ok {
			continue
		}
		for _, m := range h.mounts {
			same := slices.IndexFunc(mounts, func(o sandbox.Mount) bool { return o.Target == m.Target })
			if same >= 0 {
				mounts[same] = m
			} else {
				mounts = append(mounts, m)
			}
		}
		maps.Copy(env, h.env)
	}
	return mounts, env
}
