// Package launch is the stage between the driver and bubblewrap for boxes whose mounts
// bubblewrap can't make: overlays, which the versions in distributions lack, and mounts
// inside trees that a box can write, whose targets bubblewrap would look up by name and
// follow links. The stage runs in a user and mount namespace of its own, builds these trees
// there, and then executes bubblewrap.
package launch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/sandbox/local/hostfs"
)

// Plan is what is mounted. Places are beneath Root, a directory in which only
// the host makes and renames the first levels.
type Plan struct {
	Root  string    `json:"root"`
	ID    hostfs.ID `json:"id"`
	Trees []Tree    `json:"trees"`
	// UID and GID are the host's user, who is root in the stage's namespace.
	UID int `json:"uid"`
	GID int `json:"gid"`
	// Terminals is a directory beneath the root on which the box's own instance of devpts
	// is mounted, with a limit on its terminals.
	Terminals    string `json:"terminals"`
	MaxTerminals int    `json:"max_terminals"`
	// Counts are limits on what the kernel counts per user and user namespace, by the names
	// of the files in /proc/sys/user; in this namespace they apply to this box.
	Counts map[string]int `json:"counts"`
}

// Tree is a mount and the mounts inside it, in order, built at At, a directory beneath the
// root that no box can write.
type Tree struct {
	At     string  `json:"at"`
	Mounts []Mount `json:"mounts"`
}

// Kind says how a mount is made.
type Kind string

// Kinds of mounts.
const (
	Bind    Kind = "bind"    // Layers[0]
	Overlay Kind = "overlay" // Layers, topmost first; Upper, Work, unless it is read-only
	Tmpfs   Kind = "tmpfs"   // Bytes
)

// Mount is one mount at Target, relative to its tree; empty for the first.
type Mount struct {
	Target   string  `json:"target,omitempty"`
	Kind     Kind    `json:"kind"`
	ReadOnly bool    `json:"readonly,omitempty"`
	Layers   []Place `json:"layers,omitempty"`
	Upper    *Place  `json:"upper,omitempty"`
	Work     *Place  `json:"work,omitempty"`
	Bytes    int64   `json:"bytes,omitempty"`
	// Optional leaves the mount out if there is a link on the path to its target.
	Optional bool `json:"optional,omitempty"`
}

// Place is a file or directory that the host has opened and this program opens again,
// because a mount can only be made from a descriptor of its own mount namespace. ID shows
// whether it is still the same file.
type Place struct {
	Path  string    `json:"path"`            // relative to the root, or absolute
	Outer bool      `json:"outer,omitempty"` // absolute: a place that no box can write
	ID    hostfs.ID `json:"id"`
}

// File writes the plan to an anonymous file, since it may be too long for an argument.
func (p Plan) File() (*os.File, error) {
	data, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("choir-plan", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make the plan of a box: %w", err)
	}
	f := os.NewFile(uintptr(fd), "plan")
	if _, err := f.WriteAt(data, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("make the plan of a box: %w", err), f.Close())
	}
	return f, nil
}

// Args returns the arguments for a guest binary that builds the plan it finds
// at a descriptor and then becomes argv.
func Args(fd int, argv []string) []string {
	return append([]string{"launch", strconv.Itoa(fd)}, argv...)
}

// Main builds the plan at descriptor args[0] and executes args[1:]; it returns only if it
// fails, with 125. If the argument is UnderWay, it answers questions until its input ends.
func Main(args []string) int {
	if len(args) == 1 && args[0] == UnderWay {
		if err := underWay(); err != nil {
			fmt.Fprintln(os.Stderr, "choir launch:", err)
			return 125
		}
		return 0
	}
	err := build(args)
	if err == nil {
		var env []string
		if defence.Off(defence.BoxEnvironment) {
			env = os.Environ()
		}
		// The descriptors that were opened for building are closed on exec.
		err = fmt.Errorf("start %s: %w", args[1], syscall.Exec(args[1], args[1:], env))
	}
	fmt.Fprintln(os.Stderr, "choir launch:", err)
	return 125
}

func build(args []string) error {
	if len(args) < 2 {
		return errors.New("nothing to start")
	}
	plan, err := read(args[0])
	if err != nil {
		return fmt.Errorf("read the plan: %w", err)
	}
	if err := plan.identify(); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("leave the host's mounts: %w (this is for a namespace of its own)", err)
	}
	root, err := hostfs.Open(plan.Root)
	if err != nil {
		return err
	}
	b := builder{root: root}
	if err := same(root.File(), plan.ID); err != nil {
		return err
	}
	for _, t := range plan.Trees {
		if err := b.tree(t); err != nil {
			return err
		}
	}
	if err := b.terminals(plan); err != nil {
		return err
	}
	if err := count(plan.Counts); err != nil {
		return err
	}
	return plainRoot()
}

// terminals mounts the box's own devpts. Without a limit one box could use up all terminals
// of the machine.
func (b builder) terminals(p Plan) error {
	if defence.Off(defence.BoxTerminals) {
		p.MaxTerminals = 1 << 20
	}
	at, err := b.root.Path(p.Terminals)
	if err != nil {
		return err
	}
	defer at.Close()
	if err := unix.Mount("devpts", proc(at), "devpts", unix.MS_NOSUID|unix.MS_NOEXEC,
		fmt.Sprintf("newinstance,ptmxmode=0666,mode=0620,max=%d", p.MaxTerminals)); err != nil {
		return fmt.Errorf("mount terminals: %w", err)
	}
	return nil
}

// count sets limits for this namespace. The kernel also counts its processes' use for the
// host's user, so without limits one box could use up everything.
func count(bounds map[string]int) error {
	for name, n := range bounds {
		err := os.WriteFile("/proc/sys/user/"+name, []byte(strconv.Itoa(n)), 0)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // this kernel doesn't count it
			return fmt.Errorf("bound %s: %w", name, err)
		}
	}
	return nil
}

func read(arg string) (Plan, error) {
	var p Plan
	fd, err := strconv.Atoi(arg)
	if err != nil {
		return p, err
	}
	f := os.NewFile(uintptr(fd), "plan")
	defer f.Close()
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return p, err
	}
	return p, json.NewDecoder(f).Decode(&p)
}

type builder struct {
	root *hostfs.Dir
}

func (b builder) tree(t Tree) error {
	for i, m := range t.Mounts {
		at, err := b.target(t, m.Target)
		if errors.Is(err, hostfs.ErrLink) && m.Optional {
			continue
		}
		if err != nil {
			return fmt.Errorf("the place for a mount, %s: %w", m.Target, err)
		}
		if err := errors.Join(b.mount(m, at), at.Close()); err != nil {
			return fmt.Errorf("mount %d, %s: %w", i, m.Target, err)
		}
	}
	return nil
}

// target opens the place where a mount goes, making the directory if needed. Whoever writes
// the tree may have put anything there.
func (b builder) target(t Tree, rel string) (*os.File, error) {
	if rel == "" {
		return b.root.Path(t.At)
	}
	top, err := b.root.Dir(t.At)
	if err != nil {
		return nil, err
	}
	defer top.Close()
	if defence.Off(defence.HostTargets) {
		name := proc(top.File()) + "/" + rel
		if err := os.MkdirAll(name, 0o755); err != nil {
			return nil, err
		}
		return os.OpenFile(name, unix.O_PATH, 0)
	}
	f, err := top.Path(rel)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	if err := top.Mkdir(rel, 0o755); err != nil {
		return nil, err
	}
	return top.Path(rel)
}

// mount makes one mount on the file of the descriptor at. Both ends are named by
// descriptor, through which the kernel reaches exactly that file.
func (b builder) mount(m Mount, at *os.File) error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV
	switch m.Kind {
	case Bind:
		if len(m.Layers) != 1 {
			return errors.New("a bind mount has one source")
		}
		from, err := b.open(m.Layers[0])
		if err != nil {
			return err
		}
		defer from.Close()
		return bind(from, at, m.ReadOnly)
	case Tmpfs:
		return unix.Mount("tmpfs", proc(at), "tmpfs", flags, fmt.Sprintf("mode=0755,size=%d", m.Bytes))
	case Overlay:
		return b.overlay(m, at, flags)
	}
	return fmt.Errorf("unknown kind %q", m.Kind)
}

// bind makes a copy of from's mounts and restricts it before it is attached.
func bind(from, at *os.File, readonly bool) error {
	fd, err := unix.OpenTree(int(from.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if readonly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
		return err
	}
	return unix.MoveMount(fd, "", int(at.Fd()), "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// overlay names its layers by descriptor, so that the names, which every process of the box
// can read in mountinfo, disclose nothing about the host.
func (b builder) overlay(m Mount, at *os.File, flags uintptr) error {
	if len(m.Layers) == 0 || (m.Upper == nil || m.Work == nil) && !m.ReadOnly {
		return errors.New("an overlay needs lower, upper and work directories")
	}
	if m.ReadOnly && len(m.Layers) == 1 { // overlayfs needs at least two
		from, err := b.open(m.Layers[0])
		if err != nil {
			return err
		}
		defer from.Close()
		return bind(from, at, true)
	}
	var lower []string
	for _, l := range m.Layers {
		f, err := b.open(l)
		if err != nil {
			return err
		}
		defer f.Close()
		lower = append(lower, proc(f))
	}
	layers := "userxattr,lowerdir=" + strings.Join(lower, ":")
	if m.ReadOnly {
		return unix.Mount("overlay", proc(at), "overlay", flags|unix.MS_RDONLY, layers)
	}
	upper, err := b.open(*m.Upper)
	if err != nil {
		return err
	}
	defer upper.Close()
	work, err := b.open(*m.Work)
	if err != nil {
		return err
	}
	defer work.Close()
	return unix.Mount("overlay", proc(at), "overlay", flags,
		layers+",upperdir="+proc(upper)+",workdir="+proc(work))
}

// open opens a place again and requires that it is the file that the host has opened.
func (b builder) open(p Place) (*os.File, error) {
	var f *os.File
	var err error
	if p.Outer {
		f, err = hostfs.Source(p.Path)
	} else {
		f, err = b.root.Path(p.Path)
	}
	if err != nil {
		return nil, err
	}
	if err := same(f, p.ID); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func same(f *os.File, want hostfs.ID) error {
	got, err := hostfs.Identify(f)
	if err != nil {
		return err
	}
	if got != want && !defence.Off(defence.HostSame) {
		return fmt.Errorf("%s was exchanged while the box was being opened", f.Name())
	}
	return nil
}

func proc(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }
