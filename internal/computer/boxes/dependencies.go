package boxes

import (
	"context"
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

// dependencies are the packages that lock files name, installed for one computer's checks.
// What can be the same for every computer of the machine is kept in the machine's trees;
// what was granted to this one alone, and whatever ran code of a package, in its own. A
// tree is filled in a box of its own, and what a check writes over it is dropped with the
// check's box, so no check leaves anything for another one.
type dependencies struct {
	boxes *Boxes
	turn  chan struct{} // held while one is being filled in boxes of this computer
	own   *trees
}

const installAll = 8 * time.Minute // for the locks of one tree

func newDependencies(c *Boxes) *dependencies {
	return &dependencies{boxes: c, turn: make(chan struct{}, 1), own: newTrees(sandbox.Cache(DependenciesDir), c.options.Machine.dependenciesMost(), false)}
}

// sweep removes what an earlier process began and did not complete.
func (d *dependencies) sweep(ctx context.Context) error {
	err := d.own.sweep(ctx, d.volumes())
	list, lerr := d.volumes().List(ctx, sandbox.Written(""))
	err = errors.Join(err, lerr)
	for _, e := range list {
		if strings.HasPrefix(e.Name, scriptsUpper) {
			err = errors.Join(err, d.volumes().Discard(ctx, sandbox.Written(e.Name)))
		}
	}
	return err
}

func (d *dependencies) volumes() sandbox.Volumes { return d.boxes.Volumes() }

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
	var use []part
	out := &held{env: map[string]string{}}
	for _, want := range r.Locks {
		lock, err := lockfile.Read(want.Tool, want.Dir, d.reader(ctx, r))
		if fault.Is(err, fault.NotFound) || err == nil && lock.Packages == 0 {
			continue // it names no package
		}
		if lock.Name == "" {
			lock.Name = lockfile.Names(want.Tool)[0]
		}
		in := contract.Installation{Tool: string(want.Tool), Lock: path.Join(want.Dir, lock.Name), Of: r.Of, Packages: lock.Packages}
		if contract.ValidPath("lock", in.Lock) != nil {
			in.Lock = lock.Name
		}
		var got available
		if err == nil {
			got, err = d.have(ctx, lock, r)
			in.Key, in.Kept = got.key, got.kept
		}
		if err != nil {
			in.Problem = contract.Line(contract.Clip(strings.TrimSuffix(fault.Text(err)+". "+fault.HintOf(err), ". "), 3500))
			said = append(said, in)
			continue
		}
		for _, p := range got.parts {
			in.Bytes, in.Note = in.Bytes+p.got.Bytes, joined(in.Note, p.got.Note)
			if !in.Kept {
				in.Hosts = append(in.Hosts, p.got.Hosts...)
			}
		}
		said, use = append(said, in), append(use, got.parts...)
		out.add(want.Tool, got.parts)
	}
	out.release = sync.OnceFunc(func() { release(use) })
	return out, said
}

// part is a tree that is in use.
type part struct {
	trees *trees
	key   string
	got   installed
}

func release(parts []part) {
	for _, p := range parts {
		p.trees.release(p.key)
	}
}

// available is what is installed already for a lock: one tree, or one over another.
type available struct {
	key   string
	kept  bool
	parts []part // the upper one first
}

// reader reads from the tree that is verified, and the files that judge it from the base.
func (d *dependencies) reader(ctx context.Context, r ports.LockRequest) lockfile.Reader {
	return func(p string, max int) ([]byte, error) {
		commit := r.Commit
		if slices.Contains(r.Restored, p) {
			commit = r.Overlay.Base()
		}
		content, err := d.boxes.options.Read(ctx, commit, p, int64(max))
		if err != nil {
			return nil, err
		}
		defer content.Close()
		b, err := io.ReadAll(io.LimitReader(content, int64(max)))
		return b, fault.Wrap("boxes.dependencies", err)
	}
}

// add shows trees to checks. Trees of one tool are stacked: either their content is named
// by version, or the upper one is what the packages' scripts made of the lower.
func (h *held) add(tool lockfile.Tool, parts []part) {
	for _, p := range parts {
		for _, m := range p.got.Mounts {
			lower := p.trees.tree(p.key).At(m.Source)
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
	}
	maps.Copy(h.env, checksEnv[tool])
}

// checksEnv tells a check's programs where dependencies are installed.
var checksEnv = map[lockfile.Tool]map[string]string{
	lockfile.Go:    {"GOMODCACHE": inside(lockfile.Go), "GOPROXY": "off"},
	lockfile.Cargo: {"CARGO_HOME": inside(lockfile.Cargo)},
	lockfile.Pip:   {"PYTHONPATH": inside(lockfile.Pip)},
}

// inside is where boxes see the part that a tool keeps outside of the project.
func inside(tool lockfile.Tool) string { return "/dependencies/" + string(tool) }

// errApart is why an installation is not shared between computers.
var errApart = errors.New("it can't be shared")

// have returns what is installed for a lock, in use, and installs it if need be. What can't
// be the same for all computers, or needs more network access than all of them have, is
// installed for this one; so is what this one has already.
func (d *dependencies) have(ctx context.Context, lock lockfile.Lock, r ports.LockRequest) (available, error) {
	own, err := d.boxes.recipe(ctx, lock)
	if err != nil {
		return available{}, err
	}
	if lock.Own == "" && !d.own.there(ctx, d.volumes(), own.key()) {
		got, err := d.shared(ctx, own, r)
		if !errors.Is(err, errApart) && !fault.Is(err, fault.Denied) {
			return got, err
		}
	}
	got, kept, err := d.own.made(ctx, d.boxes, d.turn, own.key(), func(ctx context.Context, tmp sandbox.Volume) (installed, error) {
		got, err := d.fetch(ctx, tmp, own, r)
		if err == nil && own.scripts() {
			got.Note, err = d.boxes.runScripts(ctx, own, sandbox.Mount{Source: tmp.At("src"), Mode: sandbox.ReadWrite})
		}
		return got, err
	})
	if err != nil {
		return available{}, err
	}
	return available{own.key(), kept, []part{{d.own, own.key(), got}}}, nil
}

// shared returns a lock's tree of the machine's and, over it, what its packages' scripts
// made of it. That part is the computer's own: scripts are anybody's code, and their result
// may differ where somebody else's work is in their way.
func (d *dependencies) shared(ctx context.Context, own recipe, r ports.LockRequest) (available, error) {
	all, err := own.forAll(ctx)
	if err != nil {
		return available{}, errors.Join(errApart, err)
	}
	trees := d.boxes.options.Machine.sharedTrees()
	got, kept, err := trees.made(ctx, d.boxes, d.turn, all.key(), func(ctx context.Context, tmp sandbox.Volume) (installed, error) {
		got, err := d.fetch(ctx, tmp, all, r)
		if err == nil && !defence.Off(defence.SharedComplete) {
			err = d.complete(ctx, tmp, all.lock)
		}
		if err == nil && all.scripts() && defence.Off(defence.SharedScripts) {
			got.Note, err = d.boxes.runScripts(ctx, all, sandbox.Mount{Source: tmp.At("src"), Mode: sandbox.ReadWrite})
		}
		return got, err
	})
	if err != nil {
		return available{}, err
	}
	base := part{trees, all.key(), got}
	if !all.scripts() || defence.Off(defence.SharedScripts) {
		return available{all.key(), kept, []part{base}}, nil
	}
	over := all.over(got.Seal)
	layer, _, err := d.own.made(ctx, d.boxes, d.turn, over, func(ctx context.Context, tmp sandbox.Volume) (installed, error) {
		return d.scriptsOver(ctx, tmp, base, all)
	})
	if err != nil {
		release([]part{base})
		return available{}, err
	}
	return available{all.key(), kept, []part{{d.own, over, layer}, base}}, nil
}

// complete refuses a tree that lacks a package that the lock has for this machine.
func (d *dependencies) complete(ctx context.Context, tmp sandbox.Volume, lock lockfile.Lock) error {
	if lock.Tool != lockfile.NPM {
		return nil
	}
	files, err := d.volumes().Files(ctx, tmp.At("src"))
	if err != nil {
		return err
	}
	absent := lock.Absent(thisMachine(), func(at string) bool {
		_, err := fs.Lstat(files, path.Join(lock.Dir, at))
		return err == nil
	})
	if absent != "" {
		return errors.Join(errApart, fmt.Errorf("%.200q was not installed", absent))
	}
	return nil
}

// scriptsUpper is the prefix of the name of what packages' scripts write, until it is
// complete.
const scriptsUpper = "installing-"

// scriptsOver runs packages' scripts over a tree that they can't write, and makes a tree of
// what they wrote.
func (d *dependencies) scriptsOver(ctx context.Context, tmp sandbox.Volume, base part, r recipe) (got installed, err error) {
	upper := sandbox.Written(scriptsUpper + contract.Nonce())
	defer func() {
		if err != nil {
			err = errors.Join(err, d.volumes().Discard(context.WithoutCancel(ctx), upper))
		}
	}()
	if err := d.volumes().Make(ctx, upper); err != nil {
		return got, err
	}
	note, err := d.boxes.runScripts(ctx, r, sandbox.Mount{Mode: sandbox.Overlay, Lower: []sandbox.Volume{base.trees.tree(base.key).At("src")}, Upper: upper})
	if err != nil {
		return got, err
	}
	if err := d.volumes().Keep(ctx, upper, tmp); err != nil {
		return got, err
	}
	if err := d.volumes().Discard(ctx, tmp.At("work")); err != nil {
		return got, err
	}
	got = installed{Packages: r.lock.Packages, Note: note}
	for _, m := range base.got.Mounts { // a folder in which no script wrote anything does not exist
		at := path.Join("upper", strings.TrimPrefix(m.Source, "src/"))
		if there, err := d.volumes().Exists(ctx, tmp.At(at)); err == nil && there {
			got.Mounts = append(got.Mounts, installedMount{Source: at, Target: m.Target})
		}
	}
	return got, nil
}

// fetch downloads a lock's packages into a tree; nothing of them has run afterwards.
func (d *dependencies) fetch(ctx context.Context, tmp sandbox.Volume, rec recipe, r ports.LockRequest) (got installed, err error) {
	lock := rec.lock
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
	if got.Hosts, err = d.boxes.fetchLock(ctx, tmp, rec, r); err != nil {
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
			if there { // packages for other machines leave no folder
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
	return got, nil
}

// WithDependencies adds what was installed for a check to its box, in place of what the
// user has there.
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
