package boxes

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/egress"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/lockfile"
	"choir.dev/choiros/internal/sandbox"
)

// installInside is where an installation's box has the manifests.
const installInside = "/install"

const (
	installWall  = 3 * time.Minute
	installAgain = time.Minute // for how long a failure is returned without trying again
)

// fetchLock downloads what a lock names into the folders of root, in a box that sees the
// manifests and nothing else of the workspace. The box reaches what any task of this
// computer (or, for a shared tree, of any computer) is granted without asking. Nothing that
// it downloads is run there: the packages' own scripts run in another box, without a
// network.
func (c *Boxes) fetchLock(ctx context.Context, root sandbox.Volume, rec recipe, r ports.LockRequest) (hosts []string, err error) {
	ctx, cancel := awake.WithTimeoutCause(ctx, installWall, tooSlow())
	defer cancel()
	if rec.lock.Tool == lockfile.Cargo {
		if err := c.Volumes().Put(ctx, root, "out/config.toml", rec.config, 0o644); err != nil {
			return nil, err
		}
	}
	spec := c.installBox("install-", rec)
	spec.Mounts = []sandbox.Mount{
		{Source: root.At("src"), Target: installInside, Mode: sandbox.ReadWrite},
		{Source: root.At("out"), Target: inside(rec.lock.Tool), Mode: sandbox.ReadWrite},
		{Source: root.At("home"), Target: HomeInside, Mode: sandbox.ReadWrite},
	}
	spec.Limits.Counted, spec.Proxy = []sandbox.Volume{root}, true
	var mu sync.Mutex
	var denied []string
	policy := rec.policy
	if policy == nil {
		own := c.policy(ctx, contract.EgressSpec{Profile: contract.EgressDefault})
		policy = &own
	}
	c.options.Machine.watch.Store(spec.ID, func(hostport string, allowed bool) {
		mu.Lock()
		defer mu.Unlock()
		list := &denied
		if allowed {
			list = &hosts
		}
		if !slices.Contains(*list, hostport) && len(*list) < maxHosts {
			*list = append(*list, hostport)
		}
	})
	spec.Handler = c.way(egress.Scope{Run: r.Run, Task: r.Task, Box: spec.ID, Kind: spec.Kind}, *policy)
	err = c.install(ctx, spec, rec.lock, rec.argv)
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(hosts)
	if err != nil && len(denied) > 0 {
		err = fault.New("", fault.Denied, "Grant it with egress.allow (and egress.allow_private for one in your own network), or install what the lock file names in the live project.",
			fmt.Errorf("%s may not be reached from boxes: %w", strings.Join(denied, ", "), err))
	}
	return hosts, err
}

// runScripts runs the scripts of packages over what was downloaded, in a box without a
// network. Their failures are noted and fail nothing.
func (c *Boxes) runScripts(ctx context.Context, rec recipe, over sandbox.Mount) (note string, err error) {
	ctx, cancel := awake.WithTimeoutCause(ctx, installWall, tooSlow())
	defer cancel()
	home, err := c.Home(ctx)
	if err != nil {
		return "", err
	}
	over.Target = installInside
	spec := c.installBox("scripts-", rec)
	spec.Mounts = []sandbox.Mount{over, home}
	if over.Mode == sandbox.ReadWrite {
		spec.Limits.Counted = []sandbox.Volume{over.Source}
	}
	if err := c.install(ctx, spec, rec.lock, []string{"npm", "rebuild", "--foreground-scripts", "--loglevel=error"}); err != nil {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		note = "the scripts that its packages run when they are installed did not all work without a network: " + contract.Line(contract.Clip(fault.Text(err), 500))
	}
	return note, nil
}

func tooSlow() error {
	return fault.New("", fault.Timeout, "", fmt.Errorf("it was not installed within %s", installWall))
}

// installBox is what the boxes of an installation have in common.
func (c *Boxes) installBox(id string, rec recipe) sandbox.BoxSpec {
	spec := sandbox.BoxSpec{ID: id + contract.Nonce(), Kind: contract.BoxScratch, Root: installInside, Limits: c.Limits(), Env: rec.env}
	spec.Limits.WallTime = installWall
	spec.Limits.DiskBytes = min(spec.Limits.DiskBytes, c.options.Machine.dependenciesMost())
	return spec
}

const maxHosts = 100

// installCommand returns the command that installs a lock, and its environment.
func installCommand(lock lockfile.Lock) (argv []string, env map[string]string, err error) {
	switch lock.Tool {
	case lockfile.NPM:
		argv = []string{"npm", "ci", "--fetch-retries=1", "--fetch-retry-mintimeout=500", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"}
		if !defence.Off(defence.InstallQuiet) {
			argv = append(argv, "--ignore-scripts")
		}
		env = map[string]string{"npm_config_fetch_timeout": "20000"}
		if !defence.Off(defence.InstallQuiet) {
			// For a package from git, npm runs the program that .npmrc calls git. A lock
			// with such a package is refused; this covers an .npmrc inside a package, which
			// only npm reads.
			env["npm_config_git"] = "/nonexistent/git"
		}
		return argv, env, nil
	case lockfile.Go:
		script := "set -e\ncp go.sum /tmp/go.sum\ngo mod download\ncmp -s go.sum /tmp/go.sum || { echo 'go.sum does not hold the hashes of all that is needed' >&2; exit 3; }\n"
		return []string{"sh", "-c", script}, map[string]string{"GOMODCACHE": inside(lockfile.Go), "GOFLAGS": "-mod=readonly", "GOSUMDB": "off",
			"GOTOOLCHAIN": "local", "GOVCS": "*:off"}, nil
	case lockfile.Cargo:
		return []string{"cargo", "fetch", "--locked", "--quiet"}, map[string]string{"CARGO_HOME": inside(lockfile.Cargo), "CARGO_NET_RETRY": "1"}, nil
	case lockfile.Pip:
		return []string{"python3", "-m", "pip", "install", "--require-hashes", "--only-binary=:all:", "--no-deps", "--no-input", "--disable-pip-version-check",
			"--no-cache-dir", "--no-compile", "--quiet", "--retries=1", "--target", inside(lockfile.Pip), "-r", lock.Name}, nil, nil
	}
	return nil, nil, fault.New("", fault.Internal, "", fmt.Errorf("nothing installs what %q locks", lock.Tool))
}

// installing runs a command in a box of its own, which has ended when it returns.
func (c *Boxes) installing(ctx context.Context, spec sandbox.BoxSpec, lock lockfile.Lock, argv []string) error {
	box, err := c.Open(ctx, spec)
	if err != nil {
		return err
	}
	var said outputEnds
	exit, err := Client(box).Exec(ctx, guest.ExecRequest{Argv: argv, Dir: path.Join(installInside, lock.Dir), HeadBytes: 2 << 10, TailBytes: 6 << 10},
		guest.Streams{Stdout: &said, Stderr: &said})
	ended := box.Err()
	if kill := box.Kill(); kill != nil {
		return errors.Join(err, kill)
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case ended != nil:
		return ended
	case err != nil:
		return err
	case exit.Code != 0:
		return fault.New("", fault.Unavailable, "", fmt.Errorf("%s ended with code %s: %s", argv[0], strconv.Itoa(exit.Code), strings.TrimSpace(said.text())))
	}
	return nil
}

// outputEnds keeps the beginning and the end of a command's output, as one line.
type outputEnds struct {
	mu        sync.Mutex
	head, end []byte
	cut       bool
}

const wordsKept = 800

// Write implements io.Writer.
func (w *outputEnds) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	room := min(wordsKept-len(w.head), len(p))
	w.head = append(w.head, p[:room]...)
	w.end = append(w.end, p[room:]...)
	if over := len(w.end) - wordsKept; over > 0 {
		w.end, w.cut = append(w.end[:0], w.end[over:]...), true
	}
	return len(p), nil
}

func (w *outputEnds) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := string(w.head)
	if w.cut {
		text += " … "
	}
	text += string(w.end)
	return strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, "\uFFFD"), func(r rune) bool { return r < ' ' }), " ")
}
