package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"choir.dev/choiros/bench/report"
	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/local"
)

// boxFixture is a driver with a computer and a tree to mount.
type boxFixture struct {
	driver *local.Driver
	sandbox.Computer
	live  string
	count int
}

func openBoxFixture(ctx context.Context, e *env) (*boxFixture, error) {
	g := &boxFixture{live: filepath.Join(e.dir, "workspace")}
	if err := os.MkdirAll(g.live, 0o755); err != nil {
		return nil, err
	}
	var err error
	g.driver, err = local.New(ctx, local.Options{Guest: e.Guest, Dir: filepath.Join(e.dir, "driver")})
	if fault.Is(err, fault.Missing) {
		return nil, missingError{err.Error()}
	} else if err != nil {
		return nil, err
	}
	if g.Computer, err = g.driver.Open(ctx, sandbox.ComputerSpec{CID: contract.NewCID(), Dir: e.dir}); err != nil {
		return nil, errors.Join(err, g.driver.Close())
	}
	return g, nil
}

func (g *boxFixture) Close() error { return errors.Join(g.Computer.Close(), g.driver.Close()) }

func (g *boxFixture) box(ctx context.Context, kind contract.BoxKind, mounts ...sandbox.Mount) (sandbox.Box, *guest.Client, error) {
	g.count++
	box, err := g.Box(ctx, sandbox.BoxSpec{ID: fmt.Sprint("b", g.count), Kind: kind, Mounts: mounts})
	if err != nil {
		return nil, nil, err
	}
	return box, guest.NewClient(box.Tether().Transport()), nil
}

func (g *boxFixture) tree() sandbox.Mount {
	return sandbox.Mount{Source: sandbox.Live(""), Target: "/computer", Mode: sandbox.ReadWrite}
}

// boxes alternates starts of boxes with starts of bubblewrap alone: with the same mounts,
// and with the least that isolates at all.
func boxes(ctx context.Context, e *env) (_ []report.Result, err error) {
	g, err := openBoxFixture(ctx, e)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	bwrap, view := g.driver.View()
	view = append(view, "--bind", g.live, "/computer", "--remount-ro", "/", "/bin/true")
	least := []string{"--unshare-user", "--uid", "1000", "--gid", "1000", "--unshare-pid", "--unshare-net", "--unshare-ipc",
		"--unshare-uts", "--unshare-cgroup-try", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv",
		"--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
		"--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--bind", g.live, "/computer", "/bin/true"}
	overlay := sandbox.Mount{Target: "/computer", Mode: sandbox.Overlay, Lower: []sandbox.Volume{sandbox.Live("")}}
	layers, err := newLayers(e.dir, g.live)
	if err != nil {
		return nil, err
	}
	merged := slices.Clone(view)
	merged[slices.Index(merged, g.live)] = layers.merged
	var plain, overlaid, same, minimal, sameOverlaid times
	start := func(t *times, kind contract.BoxKind, m sandbox.Mount) error {
		var box sandbox.Box
		err := t.timed(func() (err error) { box, _, err = g.box(ctx, kind, m); return err })
		if err != nil {
			return err
		}
		return box.Kill()
	}
	bare := func(t *times, args []string) error {
		return t.timed(func() error { return exec.CommandContext(ctx, bwrap, args...).Run() })
	}
	for i := range e.rounds(60, 12, 8*time.Second) {
		if err := errors.Join(start(&plain, contract.BoxAssociate, g.tree()), bare(&same, view), start(&overlaid, contract.BoxTask, overlay), bare(&minimal, least)); err != nil {
			return nil, err
		}
		// Mounting an overlay needs privileges that not every user has.
		if layers.why == nil {
			layers.why = sameOverlaid.timed(func() error {
				if err := layers.mount(i); err != nil {
					return err
				}
				return exec.CommandContext(ctx, bwrap, merged...).Run()
			})
			if err := layers.unmount(); err != nil {
				return nil, err
			}
		}
		if i == 0 && !e.Tiny { // the first of each warms the caches and is dropped
			plain, overlaid, same, minimal, sameOverlaid = nil, nil, nil, nil, nil
		}
	}
	onOverlay := report.Result{ID: "box-overlay", What: "box start with an overlay, against bwrap with the same mounts", Ours: overlaid.ms(), P99: millis(overlaid.p(0.99)), Target: report.AtMost(report.OfRatio, 1.6, "×")}
	if layers.why == nil {
		onOverlay.Raw, onOverlay.Ratio, onOverlay.RawWhat = sameOverlaid.ms(), over(overlaid.p50(), sameOverlaid.p50()), "an overlay mounted on the host and bwrap with the mounts of a box and that, running /bin/true"
		onOverlay.Note = fastest(overlaid, sameOverlaid)
	} else {
		onOverlay.Target, onOverlay.Note = nil, "This user may not mount an overlay to compare with: "+report.OneLine(layers.why.Error())+"."
	}
	note := "A box has started when its guest answers over the tether; bubblewrap, when true has ended in it."
	return []report.Result{
		{ID: "box", What: "box start, against bwrap with the same view", Ours: plain.ms(), P99: millis(plain.p(0.99)), Raw: same.ms(), RawWhat: "bwrap with the mounts of a box, running /bin/true",
			Ratio: over(plain.p50(), same.p50()), Target: report.AtMost(report.OfRatio, 1.5, "×"), Note: note + fastest(plain, same)},
		{ID: "box-bare", What: "box start, against the least bwrap", Ours: plain.ms(), P99: millis(plain.p(0.99)), Raw: minimal.ms(), RawWhat: "bwrap with /usr, /proc, /dev and a tmpfs, running /bin/true",
			Ratio: over(plain.p50(), minimal.p50()), Target: report.AtMost(report.OfRatio, 1.5, "×"), Note: "What a box hides of the host needs mounts that this one has not." + fastest(plain, minimal)},
		onOverlay,
	}, nil
}

// layers are the directories of an overlay on the host.
type layers struct {
	dir, lower, merged string
	mounted            bool
	why                error // why there is none
}

func newLayers(dir, lower string) (*layers, error) {
	l := &layers{dir: filepath.Join(dir, "layers"), lower: lower}
	l.merged = filepath.Join(l.dir, "merged")
	return l, os.MkdirAll(l.merged, 0o755)
}

// mount mounts a new overlay, as for a box.
func (l *layers) mount(n int) error {
	upper, work := filepath.Join(l.dir, fmt.Sprint("upper", n)), filepath.Join(l.dir, fmt.Sprint("work", n))
	if err := errors.Join(os.Mkdir(upper, 0o755), os.Mkdir(work, 0o755)); err != nil {
		return err
	}
	err := unix.Mount("overlay", l.merged, "overlay", unix.MS_NOSUID|unix.MS_NODEV, "lowerdir="+l.lower+",upperdir="+upper+",workdir="+work)
	l.mounted = err == nil
	return err
}

func (l *layers) unmount() error {
	if !l.mounted {
		return nil
	}
	l.mounted = false
	return unix.Unmount(l.merged, 0)
}

// terminal measures how long a box with a shell on a terminal takes to show its prompt and
// to echo a key, alternating with a terminal on the host.
func terminal(ctx context.Context, e *env) (_ []report.Result, err error) {
	g, err := openBoxFixture(ctx, e)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	const prompt = "ready:"
	var opened times
	for range e.rounds(15, 5, 5*time.Second) {
		if err := openTerminal(ctx, g, &opened, prompt); err != nil {
			return nil, err
		}
	}
	_, client, err := g.box(ctx, contract.BoxTerminal, g.tree())
	if err != nil {
		return nil, err
	}
	ours, err := client.PTY(ctx, guest.PTYRequest{Argv: []string{"sleep", "600"}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ours.Close()) }()
	cmd := exec.CommandContext(ctx, "sleep", "600")
	raw, err := pty.Start(cmd)
	if err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, cmd.Process.Kill(), raw.Close())
		_ = cmd.Wait() // it was killed
	}()
	var echoed, rawEchoed times
	for i := range e.size(500, 5) {
		if err := errors.Join(echoed.timed(func() error { return echo(ours) }), rawEchoed.timed(func() error { return echo(raw) })); err != nil {
			return nil, err
		}
		if i == 0 && !e.Tiny {
			echoed, rawEchoed = nil, nil
		}
	}
	return []report.Result{
		{ID: "terminal", What: "terminal: open to first prompt", Ours: opened.ms(), P99: millis(opened.p(0.99)), Target: report.AtMost(report.OfOurs, 25, "ms"), Note: "A new box with an interactive shell on a terminal."},
		{ID: "echo", What: "terminal: echo of a key", Ours: echoed.ms(), P99: millis(echoed.p(0.99)), Raw: rawEchoed.ms(), RawWhat: "a terminal opened on the host", Ratio: over(echoed.p50(), rawEchoed.p50()), Target: report.AtMost(report.OfOurs, 0.3, "ms")},
	}, nil
}

func openTerminal(ctx context.Context, g *boxFixture, t *times, prompt string) error {
	at := time.Now()
	box, client, err := g.box(ctx, contract.BoxTerminal, g.tree())
	if err != nil {
		return err
	}
	shown, err := client.PTY(ctx, guest.PTYRequest{Argv: []string{"/bin/sh", "-i"}, Env: map[string]string{"PS1": prompt}, Rows: 24, Cols: 80})
	if err != nil {
		return errors.Join(err, box.Kill())
	}
	var seen []byte
	buf := make([]byte, 4096)
	for !bytes.Contains(seen, []byte(prompt)) {
		n, err := shown.Read(buf)
		if seen = append(seen, buf[:n]...); err != nil {
			return errors.Join(fmt.Errorf("the shell did not prompt, it said %q: %w", seen, err), shown.Close(), box.Kill())
		}
	}
	*t = append(*t, time.Since(at))
	return errors.Join(shown.Close(), box.Kill())
}

// echo types a key and waits until the terminal shows it.
func echo(rw io.ReadWriter) error {
	key := []byte{'x'}
	if _, err := rw.Write(key); err != nil {
		return err
	}
	_, err := io.ReadFull(rw, key)
	if err == nil && !slices.Equal(key, []byte{'x'}) {
		err = fmt.Errorf("the terminal echoed %q", key)
	}
	return err
}
