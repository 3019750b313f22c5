package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/sandbox"
)

// controllers are those that a box's limits need, with what it means if one is missing.
var controllers = []struct{ name, lack string }{
	{"memory", "A box's memory is not limited: one that grows can slow down or stop the machine."},
	{"pids", "The number of a box's processes is not limited: a fork bomb can slow down or stop the machine."},
	{"cpu", "A box's processor time is not limited: one with many busy processes takes it from the others."},
}

// Groups knows where groups for boxes can be made. In version 2 all
// controllers share one directory; in version 1 (and hybrid) each has its own.
type Groups struct {
	V2     bool
	Parent map[string]string // controller → directory that groups are made in
	Home   map[string]string // version 1: where this process is, for the starter to return to
	Notes  []sandbox.Finding
}

// Detect finds out where groups can be made. mountinfo and self are files in /proc;
// tests read others.
func Detect(mountinfo, self string) *Groups {
	c := &Groups{Parent: map[string]string{}, Home: map[string]string{}}
	mounts, unified := readMounts(mountinfo)
	paths := readSelf(self)
	for name, m := range mounts {
		if p, ok := m.resolve(paths[name]); ok && wantController(name) {
			c.Home[name] = p
			if writable(p) {
				c.Parent[name] = p
			}
		}
	}
	if len(c.Home) == 0 && unified.dir != "" {
		c.V2 = true
		if p, ok := unified.resolve(paths[""]); ok {
			c.delegate(p)
		}
	}
	for _, k := range controllers {
		if c.Parent[k.name] == "" && (k.name != "pids" || os.Geteuid() == 0) { // another user's processes are counted by user (guest.Spec.Processes)
			c.Notes = append(c.Notes, sandbox.Finding{
				ID: "cgroup-" + k.name, Severity: sandbox.Weak, Text: k.lack,
				Hint: "Run choir as a systemd service with Delegate=yes, or where it may write its cgroup's " + k.name + " controller.",
			})
		}
	}
	if dir := c.Parent["memory"]; dir != "" && !c.V2 && !present(filepath.Join(dir, socketsFile)) {
		c.Notes = append(c.Notes, sandbox.Finding{
			ID: "cgroup-sockets", Severity: sandbox.Weak, Text: "What a box's network sockets hold is not limited: one that fills them is ended only when all have no more memory for theirs.",
			Hint: "Use control groups of version 2, or a kernel that has " + socketsFile + ".",
		})
	}
	return c
}

// socketsFile is where version 1 limits the memory that a group's sockets use, of TCP and
// UDP together, which it does not count as the group's memory. The kernel counts it only if
// there is a limit.
const socketsFile = "memory.kmem.tcp.limit_in_bytes"

func wantController(name string) bool {
	for _, k := range controllers {
		if k.name == name {
			return true
		}
	}
	return false
}

type cgroupMount struct{ dir, root string }

// resolve turns a path of /proc/self/cgroup into a directory.
func (m cgroupMount) resolve(path string) (string, bool) {
	if path == "" {
		return "", false
	}
	if m.root != "/" {
		rest, ok := strings.CutPrefix(path, m.root)
		if !ok {
			return "", false
		}
		path = rest
	}
	return filepath.Join(m.dir, path), true
}

func readMounts(file string) (v1 map[string]cgroupMount, v2 cgroupMount) {
	v1 = map[string]cgroupMount{}
	f, err := os.Open(file)
	if err != nil {
		return v1, v2
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		head, tail, ok := strings.Cut(lines.Text(), " - ")
		a, b := strings.Fields(head), strings.Fields(tail)
		if !ok || len(a) < 5 || len(b) < 3 {
			continue
		}
		m := cgroupMount{dir: a[4], root: a[3]}
		switch b[0] {
		case "cgroup2":
			v2 = m
		case "cgroup":
			for _, o := range strings.Split(b[2], ",") {
				v1[o] = m
			}
		}
	}
	return v1, v2
}

func readSelf(file string) map[string]string {
	out := map[string]string{}
	data, err := os.ReadFile(file)
	if err != nil {
		return out
	}
	for line := range strings.Lines(string(data)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) == 3 {
			for _, name := range strings.Split(parts[1], ",") {
				out[name] = parts[2]
			}
		}
	}
	return out
}

func writable(dir string) bool { return unix.Access(dir, unix.W_OK) == nil }

// delegate prepares a version 2 directory to have groups with controllers below it. The
// kernel allows that only while no process is in the directory itself, so this process
// moves into a leaf.
func (c *Groups) delegate(dir string) {
	if !writable(dir) || !writable(filepath.Join(dir, "cgroup.subtree_control")) {
		return
	}
	available, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return
	}
	enabled, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		return
	}
	var missing []string
	for _, k := range controllers {
		if hasWord(string(available), k.name) && !hasWord(string(enabled), k.name) {
			missing = append(missing, k.name)
		}
	}
	if len(missing) > 0 {
		leaf := filepath.Join(dir, "choir-control")
		if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return
		}
		if err := writeFile(filepath.Join(leaf, "cgroup.procs"), "0"); err != nil {
			return
		}
		for _, name := range missing {
			// A controller that can't be enabled is reported in the notes.
			_ = writeFile(filepath.Join(dir, "cgroup.subtree_control"), "+"+name)
		}
		if enabled, err = os.ReadFile(filepath.Join(dir, "cgroup.subtree_control")); err != nil {
			return
		}
	}
	for _, k := range controllers {
		if hasWord(string(enabled), k.name) {
			c.Parent[k.name] = dir
		}
	}
}

func hasWord(s, word string) bool {
	for _, w := range strings.Fields(s) {
		if w == word {
			return true
		}
	}
	return false
}

// writeFile writes a file of the kernel's with three system calls. Package os needs seven,
// because it registers the file with the poller.
func writeFile(path, value string) error {
	fd, err := open(path, unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = again(func() (int, error) { return unix.Write(fd, []byte(value)) })
	return failed("write", path, err)
}

// readFile reads a file of the kernel's, in the same way.
func readFile(path string) ([]byte, error) {
	fd, err := open(path, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	buf := make([]byte, 0, 4096)
	for {
		n, err := again(func() (int, error) { return unix.Read(fd, buf[len(buf):cap(buf)]) })
		if err != nil || n == 0 {
			return buf, failed("read", path, err)
		}
		if buf = buf[:len(buf)+n]; len(buf) == cap(buf) {
			buf = slices.Grow(buf, len(buf))
		}
	}
}

func open(path string, flags int) (int, error) {
	fd, err := again(func() (int, error) { return unix.Open(path, flags|unix.O_CLOEXEC, 0) })
	return fd, failed("open", path, err)
}

// again repeats a call while it is interrupted: Go sends signals to its own threads.
func again(call func() (int, error)) (n int, err error) {
	for {
		if n, err = call(); err != unix.EINTR {
			return n, err
		}
	}
}

func failed(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &os.PathError{Op: op, Path: path, Err: err}
}

// Group is one box's cgroup; the zero value stands for no group.
type Group struct {
	In   *Groups
	Dirs map[string]string // controller → directory; in version 2 all the same
}

// Make creates the group and sets the limits, and how many bytes its sockets may
// hold, before anything is in it.
func (c *Groups) Make(name string, l sandbox.Limits, sockets int64) (*Group, error) {
	g := &Group{In: c, Dirs: map[string]string{}}
	for controller, parent := range c.Parent {
		dir := filepath.Join(parent, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, errors.Join(fmt.Errorf("make a cgroup: %w", err), g.Remove())
		}
		g.Dirs[controller] = dir
	}
	set := func(controller, file, value string) error {
		dir, ok := g.Dirs[controller]
		if !ok {
			return nil
		}
		if err := writeFile(filepath.Join(dir, file), value); err != nil {
			return fmt.Errorf("limit the box's %s: %w", controller, err)
		}
		return nil
	}
	if defence.Off(defence.BoxMemory) {
		l.MemoryBytes = 1 << 40
	}
	if defence.Off(defence.BoxProcesses) {
		l.Pids = 1 << 20
	}
	memory, pids := strconv.FormatInt(l.MemoryBytes, 10), strconv.Itoa(l.Pids)
	var err error
	if c.V2 {
		err = errors.Join(set("memory", "memory.max", memory), set("pids", "pids.max", pids))
		// Swap would only make the limit slower to reach.
		if dir, ok := g.Dirs["memory"]; ok && present(filepath.Join(dir, "memory.swap.max")) {
			err = errors.Join(err, set("memory", "memory.swap.max", "0"))
		}
		if l.CPUPercent > 0 {
			err = errors.Join(err, set("cpu", "cpu.max", strconv.Itoa(l.CPUPercent*1000)+" 100000"))
		}
	} else {
		err = errors.Join(set("memory", "memory.limit_in_bytes", memory), set("pids", "pids.max", pids))
		if dir, ok := g.Dirs["memory"]; ok && present(filepath.Join(dir, "memory.memsw.limit_in_bytes")) {
			err = errors.Join(err, set("memory", "memory.memsw.limit_in_bytes", memory))
		}
		if dir, ok := g.Dirs["memory"]; ok && present(filepath.Join(dir, socketsFile)) && !defence.Off(defence.BoxSockets) {
			err = errors.Join(err, set("memory", socketsFile, strconv.FormatInt(sockets, 10)))
		}
		if l.CPUPercent > 0 {
			err = errors.Join(err, set("cpu", "cpu.cfs_period_us", "100000"), set("cpu", "cpu.cfs_quota_us", strconv.Itoa(l.CPUPercent*1000)))
		}
	}
	if err != nil {
		return nil, errors.Join(err, g.Remove())
	}
	return g, nil
}

func present(path string) bool { return unix.Access(path, unix.F_OK) == nil }

// Enter puts the calling thread into a version 1 group, so that the processes it starts are
// in the group from the beginning. Moving a process later would stop all forks of the
// machine for some milliseconds; a thread that moves itself does not.
func (g *Group) Enter() error {
	for controller, dir := range g.Dirs {
		if err := writeFile(filepath.Join(dir, "tasks"), "0"); err != nil {
			return fmt.Errorf("enter the box's %s group: %w", controller, err)
		}
	}
	return nil
}

// Leave takes this thread out of the group again.
func (g *Group) Leave() error {
	var errs []error
	for controller := range g.Dirs {
		if err := writeFile(filepath.Join(g.In.Home[controller], "tasks"), "0"); err != nil {
			errs = append(errs, fmt.Errorf("leave the box's %s group: %w", controller, err))
		}
	}
	return errors.Join(errs...)
}

// Kill ends everything in the group, if the kernel can do that in one call.
func (g *Group) Kill() error {
	if !g.In.V2 {
		return nil
	}
	for _, dir := range g.Dirs {
		if err := writeFile(filepath.Join(dir, "cgroup.kill"), "1"); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	return nil
}

// Members lists the processes in the group.
func (g *Group) Members() []int {
	for _, dir := range g.Dirs {
		data, err := readFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			continue
		}
		var out []int
		for _, f := range strings.Fields(string(data)) {
			if pid, err := strconv.Atoi(f); err == nil {
				out = append(out, pid)
			}
		}
		return out
	}
	return nil
}

// Remove removes an empty group. The kernel may need a moment after the last
// process was waited for.
func (g *Group) Remove() error {
	var errs []error
	for _, dir := range g.Dirs {
		deadline := time.Now().Add(2 * time.Second)
		for {
			err := syscall.Rmdir(dir)
			if err == nil || errors.Is(err, syscall.ENOENT) {
				break
			}
			if !errors.Is(err, syscall.EBUSY) || time.Now().After(deadline) {
				errs = append(errs, fmt.Errorf("remove the cgroup %s: %w", dir, err))
				break
			}
			time.Sleep(2 * time.Millisecond)
		}
	}
	return errors.Join(errs...)
}

func (g *Group) read(controller, file string) string {
	dir, ok := g.Dirs[controller]
	if !ok {
		return ""
	}
	data, err := readFile(filepath.Join(dir, file))
	if err != nil {
		return ""
	}
	return string(data)
}

// number reads one number: that of the whole file, or of the line that starts with key.
func number(s, key string) int64 {
	if key == "" {
		n, _ := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
		return n
	}
	for line := range strings.Lines(s) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == key {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n
		}
	}
	return 0
}

// KernelBytes is the memory that the kernel holds for the group and can't reclaim; 0 if it
// is not counted.
func (g *Group) KernelBytes() int64 {
	if g.In.V2 {
		return number(g.read("memory", "memory.stat"), "slab_unreclaimable")
	}
	return number(g.read("memory", "memory.kmem.usage_in_bytes"), "")
}

// Sockets is the memory that the group's network sockets use, if that is counted.
func (g *Group) Sockets() (int64, bool) {
	text := g.read("memory", "memory.kmem.tcp.usage_in_bytes")
	if g.In.V2 {
		text = g.read("memory", "memory.stat")
		return number(text, "sock"), strings.Contains(text, "\nsock ")
	}
	limit := number(g.read("memory", socketsFile), "")
	return number(text, ""), text != "" && limit > 0 && limit < 1<<60 // without a limit nothing is counted
}

// OOMKills is how many processes the kernel killed because the group ran out of memory.
func (g *Group) OOMKills() int64 {
	if g.In.V2 {
		return number(g.read("memory", "memory.events"), "oom_kill")
	}
	return number(g.read("memory", "memory.oom_control"), "oom_kill")
}

// Usage adds what the group uses.
func (g *Group) Usage(u *sandbox.Usage) {
	if g.In.V2 {
		u.MemoryBytes = number(g.read("memory", "memory.current"), "")
		u.MemoryPeak = number(g.read("memory", "memory.peak"), "")
		u.CPU = time.Duration(number(g.read("cpu", "cpu.stat"), "usage_usec")) * time.Microsecond
	} else {
		u.MemoryBytes = number(g.read("memory", "memory.usage_in_bytes"), "")
		u.MemoryPeak = number(g.read("memory", "memory.max_usage_in_bytes"), "")
	}
	u.Pids = int(number(g.read("pids", "pids.current"), ""))
	u.OOMKills = g.OOMKills()
}
