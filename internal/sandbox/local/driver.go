package local

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/local/cgroup"
)

// Options configure the driver.
type Options struct {
	// Guest is the path of the guest binary on this machine. It is started in
	// boxes as "GUEST guest KIND" and on the host as "GUEST launch …".
	Guest string
	// Dir is a directory of the driver's own, for what all boxes share.
	Dir string
	// Shared is the directory of the volumes that all computers share; empty:
	// there are none.
	Shared string
	// Bubblewrap is the bwrap binary; empty: found in PATH.
	Bubblewrap string
	// ReadOnly lists further host directories that every box sees at the same
	// place, read-only. /usr always is.
	ReadOnly []string
	// CAFile names PEM certificates that boxes trust beside the machine's own.
	CAFile string
	Logger *slog.Logger
}

// Driver makes boxes with bubblewrap.
type Driver struct {
	opts    Options
	bwrap   string
	cgroups *cgroup.Groups
	starter *starter
	guard   *guard
	shared  *common // nil: there is nothing
	etc     string
	layout  []string // arguments that are the same for every box
	opened  func()   // for tests: called after the sources of a box's mounts were opened, before they are mounted

	mu        sync.Mutex
	computers map[string]*computer
	closed    bool
}

// New checks what the machine offers. Errors: fault.Missing without bubblewrap or user
// namespaces, with a hint that says how to get them.
func New(ctx context.Context, o Options) (*Driver, error) {
	const op = "sandbox/local.New"
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Guest == "" || o.Dir == "" || !filepath.IsAbs(o.Guest) || !filepath.IsAbs(o.Dir) {
		return nil, fault.New(op, fault.Invalid, "", errors.New("the guest binary and the driver's directory must be absolute paths"))
	}
	if err := unix.Access(o.Guest, unix.X_OK); err != nil {
		return nil, fault.New(op, fault.Missing, "Build choir with `make build`.", fmt.Errorf("the guest binary %s: %w", o.Guest, err))
	}
	d := &Driver{opts: o, computers: map[string]*computer{}}
	var err error
	if d.bwrap, err = findBubblewrap(o.Bubblewrap); err != nil {
		return nil, err
	}
	if err := d.probe(ctx); err != nil {
		return nil, err
	}
	d.etc = filepath.Join(o.Dir, "etc")
	if err := makeEtc(d.etc); err != nil {
		return nil, fault.Wrap(op, err)
	}
	if o.CAFile != "" {
		if err := addCA(filepath.Join(d.etc, certsInEtc), o.CAFile); err != nil {
			return nil, fault.New(op, fault.Invalid, "Correct egress.ca_file: it must hold certificates as PEM.", err)
		}
	}
	// Descriptors that this process itself inherited would be inherited by every box, since
	// Go leaves them open.
	if err := unix.CloseRange(3, 1<<31-1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return nil, fault.New(op, fault.Missing, "Use Linux 5.11 or newer.", fmt.Errorf("keep descriptors out of boxes: %w", err))
	}
	if o.Shared != "" {
		d.shared = &common{path: o.Shared, told: func(err error) {
			o.Logger.Warn("what all computers shared was not removed", "error", err)
		}}
	}
	d.layout = d.commonArgs()
	d.cgroups = cgroup.Detect("/proc/self/mountinfo", "/proc/self/cgroup")
	if d.guard, err = newGuard(d); err != nil {
		if d.shared != nil {
			err = errors.Join(err, d.shared.close())
		}
		return nil, fault.Wrap(op, err)
	}
	d.starter = newStarter()
	d.guard.start()
	return d, nil
}

const (
	hintBubblewrap = "Install a bubblewrap that has --bind-fd: 0.10 or newer, or the one of Debian 12 with its security updates (0.8.0-2+deb12u1), for example: sudo apt-get install bubblewrap"
	hintUserns     = "Allow user namespaces: sudo sysctl -w user.max_user_namespaces=15000 kernel.unprivileged_userns_clone=1 (and on Ubuntu kernel.apparmor_restrict_unprivileged_userns=0)"
)

func findBubblewrap(path string) (string, error) {
	if path == "" {
		path = "bwrap"
	}
	found, err := exec.LookPath(path)
	if err != nil {
		return "", fault.New("sandbox/local", fault.Missing, hintBubblewrap, errors.New("bubblewrap (bwrap) is not installed; without it nothing can be isolated"))
	}
	return filepath.Abs(found)
}

// probeDelay is how long a process that the probe left behind may keep its output open.
const probeDelay = 2 * time.Second

// probe starts an empty box, for that is the only reliable way to know that boxes start.
func (d *Driver) probe(ctx context.Context) error {
	guest, err := os.OpenFile(d.opts.Guest, unix.O_PATH, 0)
	if err != nil {
		return fault.New("sandbox/local", fault.Missing, "Build choir with `make build`.", err)
	}
	defer guest.Close()
	cmd := exec.CommandContext(ctx, d.bwrap, "--unshare-user", "--uid", "1000", "--gid", "1000", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts",
		"--die-with-parent", "--as-pid-1", "--cap-drop", "ALL", "--ro-bind-fd", "3", "/guest", "--proc", "/proc", "--dev", "/dev", "/guest", "version")
	cmd.Env, cmd.ExtraFiles = []string{}, []*os.File{guest}
	// Bubblewrap's child asks to die with its parent only a moment after it was made. If
	// bubblewrap is killed before that, the child waits forever with our pipe open; it is
	// killed by its process group.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = probeDelay
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return fault.Wrap("sandbox/local", ctx.Err())
	}
	var exit *exec.ExitError
	if err == nil || errors.As(err, &exit) && strings.Contains(string(out), "usage: ") {
		return nil // it ran
	}
	text := strings.TrimSpace(string(out))
	hint := hintUserns
	if strings.Contains(text, "nknown option") {
		hint = hintBubblewrap
	}
	return fault.New("sandbox/local", fault.Missing, hint, fmt.Errorf("bubblewrap can't make a box here: %.300s", text))
}

// Name implements sandbox.Driver.
func (d *Driver) Name() string { return "local" }

// Open implements sandbox.Driver.
func (d *Driver) Open(ctx context.Context, spec sandbox.ComputerSpec) (sandbox.Computer, error) {
	const op = "sandbox/local.Open"
	if err := spec.CID.Validate(); err != nil {
		return nil, fault.New(op, fault.Invalid, "", err)
	}
	if !filepath.IsAbs(spec.Dir) || filepath.Clean(spec.Dir) != spec.Dir {
		return nil, fault.New(op, fault.Invalid, "", errors.New("the computer's directory must be a clean absolute path"))
	}
	sum := sha256.Sum256([]byte(spec.Dir))
	c := &computer{driver: d, spec: spec, dir: filepath.Join(spec.Dir, "boxes"), prefix: "choir." + hex.EncodeToString(sum[:6]) + ".", boxes: map[string]*box{}}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fault.New(op, fault.Unavailable, "", errors.New("the driver is closed"))
	}
	if d.computers[spec.Dir] != nil {
		return nil, fault.New(op, fault.InUse, "", fmt.Errorf("computer %s is open already", spec.CID))
	}
	if err := c.take(ctx); err != nil {
		return nil, fault.Wrap(op, err)
	}
	d.computers[spec.Dir] = c
	return c, nil
}

// Close closes every computer.
func (d *Driver) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	var open []*computer
	for _, c := range d.computers {
		open = append(open, c)
	}
	d.mu.Unlock()
	var errs []error
	for _, c := range open {
		errs = append(errs, c.Close())
	}
	errs = append(errs, d.guard.close())
	d.starter.close()
	if d.shared != nil {
		errs = append(errs, d.shared.close())
	}
	return errors.Join(errs...)
}
