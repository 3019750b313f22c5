package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/local/hostfs"
	"choir.dev/choiros/internal/sandbox/local/launch"
)

// opening prepares the mounts of one box. Every source and layer is opened once; bubblewrap
// gets the descriptors, and the launcher, which must open them again in its own namespace,
// is told which files they must be.
type opening struct {
	computer *computer
	run      string // the box's run directory, relative to the computer's
	mounts   []mount
	next     int // number that the next descriptor will have in bubblewrap

	held   []*os.File // kept open until the box has started, so that no number is reused
	passed []*os.File // to bubblewrap, from the first next on
	args   []string
	plan   launch.Plan
}

func (o *opening) close() {
	for _, f := range append(o.held, o.passed...) {
		_ = f.Close()
	}
	o.held, o.passed = nil, nil
}

// errAbsent is why an optional mount is left out.
var errAbsent = errors.New("it is not there")

// command returns the program and arguments that start the box; if there are trees to
// build, the program is the guest binary as a launcher.
func (o *opening) command(spec sandbox.BoxSpec, limits sandbox.Limits) (argv []string, launcher bool, err error) {
	d := o.computer.driver
	planFD := o.next
	trees := grouped(o.mounts)
	launcher = !ownProgram(spec.Kind) || slices.ContainsFunc(trees, func(t tree) bool { return t.built })
	if launcher {
		o.next++ // for the plan
	}
	for i, t := range trees {
		if t.built {
			err = o.tree(i, t)
		} else {
			err = o.plain(t.mounts[0])
		}
		if err != nil {
			return nil, false, err
		}
	}
	args := append([]string{d.bwrap}, d.layout...)
	switch {
	case launcher:
		o.plan.Terminals, o.plan.MaxTerminals = path.Join(o.run, "terminals"), maxTerminals
		if err := o.computer.root.Mkdir(o.plan.Terminals, 0o755); err != nil {
			return nil, false, err
		}
		args = append(args, "--dev-bind", filepath.Join(o.computer.spec.Dir, o.plan.Terminals), "/dev/pts")
	case !defence.Off(defence.BoxTerminals):
		args = append(args, "--ro-bind", filepath.Join(d.etc, "empty"), "/dev/pts")
	}
	args = append(args, "--size", strconv.FormatInt(limits.TmpBytes, 10), "--perms", "1777", "--tmpfs", "/tmp")
	// The guest's own program comes last, so that nothing lies over it.
	guest := []string{"--ro-bind", d.opts.Guest, guestInside}
	if defence.Off(defence.HostGuestLast) {
		args, guest = append(args, guest...), nil
	}
	args = append(append(args, o.args...), guest...)
	args = append(args, "--remount-ro", "/", "--chdir", "/", guestInside, "guest", string(spec.Kind))
	if !launcher {
		return args, false, nil
	}
	o.plan.Root, o.plan.UID, o.plan.GID = o.computer.spec.Dir, os.Geteuid(), os.Getegid()
	o.plan.Counts = counts()
	if o.plan.ID, err = hostfs.Identify(o.computer.root.File()); err != nil {
		return nil, false, err
	}
	plan, err := o.plan.File()
	if err != nil {
		return nil, false, err
	}
	o.passed = append([]*os.File{plan}, o.passed...)
	return append([]string{d.opts.Guest}, launch.Args(planFD, args)...), true, nil
}

// ownProgram says whether a kind of box runs only the guest and what the guest itself
// starts. Those boxes have neither terminals nor file watchers, and start without the
// launcher, which limits both for the others.
func ownProgram(kind contract.BoxKind) bool {
	return kind == contract.BoxDirector || kind == contract.BoxAssociate || kind == contract.BoxKeeper
}

// maxTerminals and maxWatchers limit how many of each one box gets, since the whole
// machine, or the user who runs choir, has a fixed number.
const (
	maxTerminals = 128
	maxWatchers  = 64
)

// counts returns a box's share of what the kernel counts per user.
func counts() map[string]int {
	if defence.Off(defence.BoxWatchers) {
		return nil
	}
	out := map[string]int{"max_inotify_instances": maxWatchers}
	if n := readInt("/proc/sys/fs/inotify/max_user_watches"); n > 1 {
		out["max_inotify_watches"] = n / 2
	}
	return out
}

// tree is a mount with the mounts inside it.
type tree struct {
	mounts []mount
	built  bool // built by the launcher: bubblewrap would look up targets in it by name, or can't make it
}

// grouped sorts mounts into trees, keeping their order.
func grouped(mounts []mount) []tree {
	var out []tree
next:
	for _, m := range mounts {
		for i := range out {
			if _, in := hostfs.Under(out[i].mounts[0].Target, m.Target); in {
				out[i].mounts, out[i].built = append(out[i].mounts, m), true
				continue next
			}
		}
		out = append(out, tree{mounts: []mount{m}, built: m.Mode == sandbox.Overlay || layered(m)})
	}
	return out
}

// layered says whether a mount shows several layers merged, read-only.
func layered(m mount) bool { return m.Mode == sandbox.ReadOnly && len(m.Lower) > 0 }

// plain lets bubblewrap make a mount.
func (o *opening) plain(m mount) error {
	if m.Mode == sandbox.Tmpfs {
		o.args = append(o.args, "--size", strconv.FormatInt(tmpfsBytes(m), 10), "--perms", "0755", "--tmpfs", m.Target)
		return nil
	}
	f, err := o.openSource(m.Source)
	if err != nil {
		if m.Optional && leftOut(err) {
			return nil
		}
		return mountError(m, err)
	}
	flag := "--ro-bind"
	if m.Mode == sandbox.ReadWrite {
		flag = "--bind"
	}
	if defence.Off(defence.HostDescriptor) {
		o.held = append(o.held, f)
		o.args = append(o.args, flag, m.Source, m.Target)
		return nil
	}
	o.passed = append(o.passed, f)
	o.args = append(o.args, flag+"-fd", strconv.Itoa(o.next), m.Target)
	o.next++
	return nil
}

func tmpfsBytes(m mount) int64 {
	if m.SizeBytes <= 0 {
		return 64 << 20
	}
	return m.SizeBytes
}

// leftOut says whether an optional mount is left out because its source is missing or a
// link.
func leftOut(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, hostfs.ErrLink) || errors.Is(err, errAbsent)
}

func mountError(m mount, err error) error {
	if errors.Is(err, hostfs.ErrLink) {
		return fault.New("", fault.Denied, "Replace the link by what it points to.", fmt.Errorf("mount on %s: %w", m.Target, err))
	}
	return fmt.Errorf("mount on %s: %w", m.Target, err)
}

// tree lets the launcher build a mount and those inside it, and bubblewrap mount the
// result.
func (o *opening) tree(i int, t tree) error {
	top := t.mounts[0]
	built := launch.Tree{At: path.Join(o.run, "t"+strconv.Itoa(i))}
	for j, m := range t.mounts {
		rel, _ := hostfs.Under(top.Target, m.Target)
		if rel == "." {
			rel = ""
		}
		made, err := o.launched(fmt.Sprintf("%d.%d", i, j), m, below(t.mounts, j))
		if err != nil {
			if j > 0 && m.Optional && leftOut(err) || j == 0 && len(t.mounts) == 1 && m.Optional && leftOut(err) {
				continue
			}
			return mountError(m, err)
		}
		made.Target = rel
		built.Mounts = append(built.Mounts, made)
	}
	if len(built.Mounts) == 0 {
		return nil
	}
	if err := o.computer.root.Mkdir(built.At, 0o755); err != nil {
		return err
	}
	o.plan.Trees = append(o.plan.Trees, built)
	// No box can write on the path to this place.
	o.args = append(o.args, "--bind", filepath.Join(o.computer.spec.Dir, built.At), top.Target)
	return nil
}

// launched opens what a mount is made of and describes it to the launcher.
func (o *opening) launched(name string, m mount, places []string) (launch.Mount, error) {
	out := launch.Mount{Kind: launch.Bind, ReadOnly: m.Mode == sandbox.ReadOnly, Optional: m.Optional}
	switch m.Mode {
	case sandbox.Tmpfs:
		out.Kind, out.Bytes = launch.Tmpfs, tmpfsBytes(m)
		return out, nil
	case sandbox.Overlay:
		out.Kind = launch.Overlay
		if err := o.layers(&out, name, m, places); err != nil {
			return out, err
		}
		return out, o.upper(&out, name, m)
	}
	if layered(m) {
		out.Kind = launch.Overlay
		return out, o.layers(&out, name, m, places)
	}
	p, _, err := o.place(m.Source)
	out.Layers = []launch.Place{p}
	return out, err
}

// layers opens the layers of an overlay. If later mounts need a directory that the layers
// don't show, it is made in a layer of the driver's own on top of them, so that it leaves
// no trace in the upper.
func (o *opening) layers(out *launch.Mount, name string, m mount, places []string) error {
	var layers []*os.File
	for _, l := range m.Lower {
		p, f, err := o.place(l)
		if err == nil {
			err = directory(f, l)
		}
		if err != nil && m.Optional && leftOut(err) {
			continue
		}
		if err != nil {
			return err
		}
		out.Layers, layers = append(out.Layers, p), append(layers, f)
	}
	if len(layers) == 0 {
		return errAbsent
	}
	own := path.Join(o.run, "o"+name, "places")
	for _, p := range places {
		there, err := placeIn(layers, p)
		if err == nil && !there {
			err = o.computer.root.Mkdir(path.Join(own, p), 0o755)
		}
		if err != nil {
			return fmt.Errorf("prepare an overlay: %w", err)
		}
	}
	skeleton, _, err := o.place(filepath.Join(o.computer.spec.Dir, own))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	// It is the topmost layer, because a whiteout hides what lower layers have.
	out.Layers = append([]launch.Place{skeleton}, out.Layers...)
	return err
}

// upper opens the directory that an overlay writes to, and makes it if it is the driver's.
func (o *opening) upper(out *launch.Mount, name string, m mount) error {
	upper, work := m.Upper, m.Work
	if upper == "" {
		own := path.Join(o.run, "o"+name)
		upper, work = filepath.Join(o.computer.spec.Dir, own, "upper"), filepath.Join(o.computer.spec.Dir, own, "work")
		for _, dir := range []string{"upper", "work"} {
			if err := o.computer.root.Mkdir(path.Join(own, dir), 0o755); err != nil {
				return fmt.Errorf("prepare an overlay: %w", err)
			}
		}
	}
	for _, at := range []struct {
		path string
		to   **launch.Place
	}{{upper, &out.Upper}, {work, &out.Work}} {
		p, f, err := o.place(at.path)
		if err == nil {
			err = directory(f, at.path)
		}
		if err != nil {
			return err
		}
		*at.to = &p
	}
	return nil
}

// place opens a path and describes it to the launcher.
func (o *opening) place(file string) (launch.Place, *os.File, error) {
	f, err := o.openSource(file)
	if err != nil {
		return launch.Place{}, nil, err
	}
	o.held = append(o.held, f)
	p := launch.Place{Path: file, Outer: true}
	if rel, in := hostfs.Under(o.computer.spec.Dir, file); in {
		p.Path, p.Outer = rel, false
	}
	p.ID, err = hostfs.Identify(f)
	return p, f, err
}

// openSource opens what is to be mounted: beneath the computer's directory
// without following a link; what lies elsewhere is the host's own.
func (o *opening) openSource(file string) (*os.File, error) {
	if rel, in := hostfs.Under(o.computer.spec.Dir, file); in {
		return o.computer.root.Path(rel)
	}
	f, err := hostfs.Source(file)
	if err != nil {
		return nil, err
	}
	if o.computer.root.Holds(f) {
		return nil, errors.Join(fmt.Errorf("%s leads into the computer's directory by another name", file), f.Close())
	}
	return f, nil
}

func directory(f *os.File, name string) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("look at %s: %w", name, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return fmt.Errorf("%s: %w", name, hostfs.ErrLink)
	}
	return nil
}

// below lists, relative to mount i, the targets of later mounts inside it.
func below(mounts []mount, i int) []string {
	var out []string
	for _, m := range mounts[i+1:] {
		if rel, ok := strings.CutPrefix(m.Target, mounts[i].Target+"/"); ok {
			out = append(out, rel)
		}
	}
	sort.Strings(out)
	return out
}

// placeIn reports whether layers show something at p, or a link or file on the path there.
func placeIn(layers []*os.File, p string) (bool, error) {
	at := ""
	for name := range strings.SplitSeq(p, "/") {
		at = path.Join(at, name)
		var shown []*os.File // the layers whose directory is visible here
	layers:
		for _, l := range layers {
			kind, err := hostfs.KindAt(l, at)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				continue
			case err != nil:
				return false, err
			case kind == hostfs.Other && len(shown) == 0:
				return true, nil
			case kind == hostfs.Other || kind == hostfs.Whiteout:
				break layers
			}
			shown = append(shown, l)
			if kind == hostfs.Opaque {
				break
			}
		}
		if len(shown) == 0 {
			return false, nil
		}
		layers = shown
	}
	return true, nil
}
