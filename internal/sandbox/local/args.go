package local

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/crash"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/guest/seal"
	"choir.dev/choiros/internal/sandbox"
)

const (
	defaultRoot = "/computer"
	home        = "/home/choir"
	guestInside = "/run/choir/choir"
	runDir      = ".run" // where the driver keeps its files in a box's directory while the box lives
)

// Descriptors that the driver passes, numbered after the guest's own.
const (
	infoFD = seal.FilterFD + 1 + iota
	lockFD
)

func withDefaults(kind contract.BoxKind, l sandbox.Limits) sandbox.Limits {
	memory, pids := int64(2<<30), 1024
	switch kind {
	case contract.BoxDirector, contract.BoxAssociate:
		memory, pids = 512<<20, 256
	case contract.BoxKeeper:
		memory = 1 << 30
	}
	if l.MemoryBytes <= 0 {
		l.MemoryBytes = memory
	}
	if l.Pids <= 0 {
		l.Pids = pids
	}
	if l.TmpBytes <= 0 {
		l.TmpBytes = 512 << 20
	}
	return l
}

// taken are paths over which a box's own mounts may not be put.
var taken = []string{"/", "/usr", "/etc", "/proc", "/dev", "/run", "/run/choir", "/bin", "/sbin", "/lib", "/lib64"}

func checkSpec(spec sandbox.BoxSpec) error {
	known := false
	for _, k := range contract.BoxKinds {
		known = known || k == spec.Kind
	}
	if !known {
		return fmt.Errorf("%q is no kind of box", spec.Kind)
	}
	if spec.Root != "" && (!path.IsAbs(spec.Root) || path.Clean(spec.Root) != spec.Root) {
		return fmt.Errorf("the root %q is no clean absolute path", spec.Root)
	}
	for _, m := range spec.Mounts {
		if err := checkMount(m); err != nil {
			return fmt.Errorf("mount on %q: %w", m.Target, err)
		}
	}
	return nil
}

func checkMount(m sandbox.Mount) error {
	if !path.IsAbs(m.Target) || path.Clean(m.Target) != m.Target {
		return errors.New("the target is no clean absolute path")
	}
	for _, t := range taken {
		if m.Target == t {
			return errors.New("this place is not a box's to choose")
		}
	}
	for _, t := range taken[1:] {
		if strings.HasPrefix(m.Target, t+"/") {
			return errors.New("this place is not a box's to choose")
		}
	}
	switch m.Mode {
	case sandbox.ReadOnly:
		if len(m.Lower) > 0 && !m.Source.IsZero() {
			return errors.New("a mount has a source or layers, and not both")
		}
	case sandbox.ReadWrite, sandbox.Tmpfs:
		if len(m.Lower) > 0 {
			return errors.New("layers are not written to")
		}
	case sandbox.Overlay:
		if len(m.Lower) == 0 {
			return errors.New("an overlay needs lower volumes")
		}
		if !m.Upper.IsZero() && (m.Upper.Kind != sandbox.VolumeOverlay || m.Upper.Name == "") {
			return fmt.Errorf("%s is no upper of an overlay", m.Upper)
		}
	default:
		return fmt.Errorf("unknown mode %q", m.Mode)
	}
	return nil
}

// commonArgs returns bubblewrap's arguments that are the same for every box.
func (d *Driver) commonArgs() []string {
	args := []string{
		"--unshare-user", "--uid", "1000", "--gid", "1000",
		"--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
		"--hostname", "choir", "--die-with-parent", "--as-pid-1", "--new-session",
		"--cap-drop", "ALL",
		"--info-fd", strconv.Itoa(infoFD),
		"--ro-bind", "/usr", "/usr",
	}
	for _, name := range seal.Capabilities { // the guest drops them (guest/seal)
		args = append(args, "--cap-add", name)
	}
	for _, name := range []string{"bin", "sbin", "lib", "lib64", "lib32"} {
		info, err := os.Lstat("/" + name)
		switch {
		case err != nil:
		case info.Mode()&os.ModeSymlink != 0:
			args = append(args, "--symlink", "usr/"+name, "/"+name)
		case info.IsDir():
			args = append(args, "--ro-bind", "/"+name, "/"+name)
		}
	}
	args = append(args, "--ro-bind", d.etc, "/etc")
	for _, dir := range etcBinds {
		if d.opts.CAFile != "" && dir == "/etc/"+certsInEtc {
			continue // d.etc has it, with more certificates
		}
		if exists(dir) && exists(filepath.Join(d.etc, strings.TrimPrefix(dir, "/etc/"))) {
			args = append(args, "--ro-bind", dir, dir)
		}
	}
	for _, dir := range d.opts.ReadOnly {
		args = append(args, "--ro-bind", dir, dir)
	}
	args = append(args, crash.BoxArgs()...)
	args = append(args, defence.BoxArgs()...)
	if !defence.Off(defence.BoxNetwork) {
		args = append(args, "--unshare-net")
	}
	if !defence.Off(defence.BoxEnvironment) {
		args = append(args, "--clearenv")
	}
	args = append(args, "--setenv", seal.Procs, seal.One) // until the guest answers
	args = append(args, "--proc", "/proc")
	if !defence.Off(defence.BoxProc) {
		args = append(args, d.maskProc(os.Geteuid() == 0)...)
	}
	return append(args,
		"--dev", "/dev", "--size", strconv.Itoa(64<<20), "--tmpfs", "/dev/shm",
		"--mqueue", "/dev/mqueue", // where the guest sees which message queues there are
		"--remount-ro", "/dev",
		"--size", strconv.Itoa(64<<20), "--perms", "0755", "--tmpfs", home,
		"--dir", "/var/tmp", "--symlink", "../run", "/var/run",
	)
}

// hiddenProc are files of /proc that disclose something about the host: how its kernel was
// started, and which keys its user holds.
var hiddenProc = map[string]bool{"cmdline": true, "keys": true}

// shownProc are the directories of /proc, besides those of processes, that are not masked.
// Bubblewrap itself makes bus and irq read-only.
var shownProc = map[string]bool{"self": true, "thread-self": true, "net": true, "sysvipc": true, "tty": true, "bus": true, "irq": true, "pressure": true}

// maskProc covers the files of /proc that do not belong to the box. When choir runs as
// root, a box's user is root to the kernel's own files, and only a file's mode keeps a
// process without capabilities from writing core_pattern or sysrq-trigger: so everything
// writable is made read-only or empty here. For another user the modes suffice, except for
// what belongs to its namespaces. Each cover costs a seventh of a millisecond when a box
// starts, so there are no more than needed.
func (d *Driver) maskProc(root bool) []string {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil // bubblewrap could not mount it either, and the probe said so
	}
	var args []string
	for _, e := range entries {
		name, path := e.Name(), "/proc/"+e.Name()
		info, err := e.Info()
		if err != nil || shownProc[name] || name[0] >= '0' && name[0] <= '9' || info.Mode()&os.ModeSymlink != 0 {
			continue
		}
		switch {
		case name == "sys":
			args = append(args, "--ro-bind", path, path)
		case info.IsDir() && !root:
		case info.IsDir():
			if holdsWritable(path) {
				args = append(args, "--ro-bind", filepath.Join(d.etc, "empty"), path)
			}
		case hiddenProc[name], root && info.Mode().Perm()&0o222 != 0:
			args = append(args, "--ro-bind", filepath.Join(d.etc, "nothing"), path)
		}
	}
	return args
}

// holdsWritable reports whether some file below dir has a mode that lets its
// owner write it.
func holdsWritable(dir string) bool {
	found := false
	_ = filepath.WalkDir(dir, func(_ string, e os.DirEntry, err error) error {
		if err != nil {
			return nil // a directory that can't be read here can't be in the box
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o222 != 0 {
			found = true
			return filepath.SkipAll
		}
		return nil
	})
	return found
}

// etcBinds are directories of the host's /etc that contain nothing but public
// configuration.
var etcBinds = []string{"/etc/ssl/certs"}

// makeEtc writes the /etc of every box: names for the one user, and nothing that discloses
// anything about this machine.
func makeEtc(dir string) error {
	files := map[string]string{
		"passwd":        "choir:x:1000:1000:choir:" + home + ":/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		"group":         "choir:x:1000:\nnogroup:x:65534:\n",
		"hosts":         "127.0.0.1 localhost choir\n::1 localhost\n",
		"hostname":      "choir\n",
		"resolv.conf":   "",
		"nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
		"nothing":       "",
		"profile":       "",
		"gitconfig":     "[safe]\n\tdirectory = *\n[user]\n\tname = Choir\n\temail = choir@localhost\n[init]\n\tdefaultBranch = main\n",
	}
	if err := os.MkdirAll(filepath.Join(dir, "empty"), 0o755); err != nil {
		return err
	}
	for _, d := range etcBinds {
		if err := os.MkdirAll(filepath.Join(dir, strings.TrimPrefix(d, "/etc/")), 0o755); err != nil {
			return err
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	links, err := filepath.Glob("/etc/alternatives/*")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "alternatives"), 0o755); err != nil {
		return err
	}
	for _, l := range links {
		target, err := os.Readlink(l)
		if err != nil {
			continue // a file, such as the README
		}
		if err := os.Symlink(target, filepath.Join(dir, "alternatives", filepath.Base(l))); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	for _, name := range []string{"ld.so.cache", "localtime", "mime.types"} {
		if err := copySmall(filepath.Join("/etc", name), filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

func copySmall(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	data, err := io.ReadAll(io.LimitReader(in, 8<<20))
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}

func exists(path string) bool { return unix.Access(path, unix.F_OK) == nil }
