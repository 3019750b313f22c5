package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/local/cgroup"
)

// Doctor implements sandbox.Driver.
func (d *Driver) Doctor(ctx context.Context) []sandbox.Finding {
	var out []sandbox.Finding
	if err := d.probe(ctx); err != nil {
		out = append(out, sandbox.Finding{ID: "bubblewrap", Severity: sandbox.Fatal, Text: fault.Text(err), Hint: fault.HintOf(err)})
	}
	if v, err := exec.CommandContext(ctx, d.bwrap, "--version").Output(); err == nil && older(strings.TrimSpace(strings.TrimPrefix(string(v), "bubblewrap ")), 0, 8) {
		out = append(out, sandbox.Finding{ID: "bubblewrap-version", Severity: sandbox.Weak, Text: "bubblewrap is older than 0.8, with which choir is tested.", Hint: hintBubblewrap})
	}
	return append(out, d.weaknesses()...)
}

// Diagnose says why New would fail, for a machine on which it does.
func Diagnose(ctx context.Context, o Options) []sandbox.Finding {
	bwrap, err := findBubblewrap(o.Bubblewrap)
	if err != nil {
		return []sandbox.Finding{{ID: "bubblewrap", Severity: sandbox.Fatal, Text: fault.Text(err), Hint: hintBubblewrap}}
	}
	d := &Driver{opts: o, bwrap: bwrap, cgroups: cgroup.Detect("/proc/self/mountinfo", "/proc/self/cgroup")}
	return d.Doctor(ctx)
}

// weaknesses lists the protections that boxes lack on this machine.
func (d *Driver) weaknesses() []sandbox.Finding {
	out := append([]sandbox.Finding{}, d.cgroups.Notes...)
	out = append(out, sandbox.Finding{
		ID: "disk-quota", Severity: sandbox.Note,
		Text: "The local driver has no disk quota: a box that writes too much is killed within about a second, not stopped at the limit.",
	})
	if os.Geteuid() == 0 {
		out = append(out, sandbox.Finding{
			ID: "root", Severity: sandbox.Weak,
			Text: "choir runs as root, so what escapes a box is root.",
			Hint: "Run choir as a user of its own.",
		})
	}
	if n := readInt("/proc/sys/fs/inotify/max_user_instances"); n > 0 && n < 512 {
		out = append(out, sandbox.Finding{
			ID: "inotify-instances", Severity: sandbox.Weak,
			Text: fmt.Sprintf("Only %d file watchers (inotify instances) are allowed for all boxes together; a second desktop may get none.", n),
			Hint: "sudo sysctl -w fs.inotify.max_user_instances=1024",
		})
	}
	if n := readInt("/proc/sys/fs/inotify/max_user_watches"); n > 0 && n < 65536 {
		out = append(out, sandbox.Finding{
			ID: "inotify-watches", Severity: sandbox.Weak,
			Text: fmt.Sprintf("Only %d files can be watched by all boxes together.", n),
			Hint: "sudo sysctl -w fs.inotify.max_user_watches=524288",
		})
	}
	if err := watch(watchesNeeded); err != nil {
		out = append(out, sandbox.Finding{
			ID: sandbox.NoWatches, Severity: sandbox.Weak,
			Text: fmt.Sprintf("No file watchers (inotify) are left, so the live desktop polls its files: %v.", err),
			Hint: "sudo sysctl -w fs.inotify.max_user_watches=524288 fs.inotify.max_user_instances=1024",
		})
	}
	return out
}

// watchesNeeded is about how many watches one desktop's dev server needs.
const watchesNeeded = 256

// watch tries to watch n directories, and stops watching them again.
func watch(n int) (err error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	return filepath.WalkDir("/usr", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil // if it can't be read, it is not counted
		}
		if _, err := unix.InotifyAddWatch(fd, path, unix.IN_DELETE_SELF); errors.Is(err, unix.ENOSPC) {
			return err
		}
		if n--; n <= 0 {
			return fs.SkipAll
		}
		return nil
	})
}

func readInt(path string) int {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return 0
	}
	return n
}

func older(version string, major, minor int) bool {
	a, b, _ := strings.Cut(version, ".")
	b, _, _ = strings.Cut(b, ".")
	x, err1 := strconv.Atoi(a)
	y, err2 := strconv.Atoi(b)
	return err1 == nil && err2 == nil && (x < major || x == major && y < minor)
}
