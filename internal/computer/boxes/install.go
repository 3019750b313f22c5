package boxes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
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

// programs are those that an installation's outcome depends on.
var toolPrograms = map[lockfile.Tool][]string{
	lockfile.NPM: {"npm", "node"}, lockfile.Go: {"go"}, lockfile.Cargo: {"cargo"}, lockfile.Pip: {"python3"},
}

// toolchain says which programs boxes have for a tool, so that what one has
// installed is not taken for another's. fault.Missing without them.
func (c *Boxes) toolchain(tool lockfile.Tool) (string, error) {
	var out strings.Builder
	for _, program := range toolPrograms[tool] {
		found := false
		for _, dir := range filepath.SplitList(cmp.Or(c.o.Machine.Path, usual)) {
			at, err := filepath.EvalSymlinks(filepath.Join(dir, program))
			if err != nil {
				continue
			}
			info, err := os.Stat(at)
			if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
				continue
			}
			fmt.Fprintf(&out, "%s %d %d\n", at, info.Size(), info.ModTime().UnixNano())
			found = true
			break
		}
		if !found {
			return "", fault.New("boxes.toolchain", fault.Missing, "Install it under /usr or /opt, or name its folder in runtime.path.", fmt.Errorf("boxes have no %s", program))
		}
	}
	if tool == lockfile.Cargo { // it keeps crates by where they came from
		config, err := egress.CargoConfig()
		if err != nil {
			return "", err
		}
		out.Write(config)
	}
	return out.String(), nil
}

const (
	installWall  = 3 * time.Minute
	installAgain = time.Minute // so long nobody waits for what has just failed
	filling      = ".fill-"    // begins the name of a tree that is not whole yet
)

// installLock installs a lock into the folders of root, in a box that sees the
// manifests and nothing else of the workspace, and reaches what any task of this
// computer is granted without asking. Nothing of what it fetches is run in it:
// the packages' own scripts have another box, without a network.
func (c *Boxes) installLock(ctx context.Context, root sandbox.Volume, lock lockfile.Lock, r ports.LockRequest) (hosts []string, note string, err error) {
	ctx, cancel := awake.WithTimeoutCause(ctx, installWall, fault.New("", fault.Timeout, "", fmt.Errorf("it was not installed within %s", installWall)))
	defer cancel()
	env, err := egress.Configured(ctx, string(lock.Tool))
	if err != nil {
		return nil, "", fault.New("", fault.Unavailable, "", fmt.Errorf("the registries that %s is configured with are not known: %w", lock.Tool, err))
	}
	argv, more, err := installCommand(lock)
	if err != nil {
		return nil, "", err
	}
	if lock.Tool == lockfile.Cargo { // checks find the crates by it too
		config, err := egress.CargoConfig()
		if err == nil {
			err = c.Volumes().Put(ctx, root, "out/config.toml", config, 0o644)
		}
		if err != nil {
			return nil, "", err
		}
	}
	all := map[string]string{"NO_PROXY": "", "no_proxy": ""} // a registry on this machine is reached like any other
	maps.Copy(all, env)
	maps.Copy(all, more)
	if _, err := os.Stat(sandbox.Certificates); err == nil {
		all["NODE_EXTRA_CA_CERTS"], all["PIP_CERT"], all["CARGO_HTTP_CAINFO"] = sandbox.Certificates, sandbox.Certificates, sandbox.Certificates
	}
	spec := sandbox.BoxSpec{ID: "install-" + contract.NewID()[:12], Kind: contract.BoxScratch, Root: installInside, Limits: c.Limits(), Env: all, Proxy: true,
		Mounts: []sandbox.Mount{
			{Source: root.At("src"), Target: installInside, Mode: sandbox.ReadWrite},
			{Source: root.At("out"), Target: inside(lock.Tool), Mode: sandbox.ReadWrite},
			{Source: root.At("home"), Target: HomeInside, Mode: sandbox.ReadWrite},
		}}
	spec.Limits.WallTime, spec.Limits.Counted = installWall, []sandbox.Volume{root}
	spec.Limits.DiskBytes = min(spec.Limits.DiskBytes, int64(c.o.Machine.Storage.DependenciesMB)<<20)
	var mu sync.Mutex
	var denied []string
	spec.Handler = c.Way(ctx, egress.Scope{Run: r.Run, Task: r.Task, Box: spec.ID, Kind: spec.Kind},
		contract.EgressSpec{Profile: contract.EgressDefault}, func(hostport string, allowed bool) {
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
	err = c.installing(ctx, spec, lock, argv)
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(hosts)
	if err != nil && len(denied) > 0 {
		err = fault.New("", fault.Denied, "Grant it with egress.allow (and egress.allow_private for one in your own network), or install what the lock file names in the live project.",
			fmt.Errorf("%s may not be reached from boxes: %w", strings.Join(denied, ", "), err))
	}
	if err != nil || lock.Scripts == 0 || lock.Tool != lockfile.NPM || defence.Off(defence.InstallQuiet) {
		return hosts, "", err
	}
	quiet := spec
	quiet.ID, quiet.Proxy, quiet.Handler = "scripts-"+contract.NewID()[:12], false, nil
	if err := c.installing(ctx, quiet, lock, []string{"npm", "rebuild", "--foreground-scripts", "--loglevel=error"}); err != nil {
		if ctx.Err() != nil {
			return hosts, "", context.Cause(ctx)
		}
		note = "the scripts that its packages run when they are installed did not all work without a network: " + contract.Line(contract.Clip(fault.Text(err), 500))
	}
	return hosts, note, nil
}

const maxHosts = 100

// installCommand is what installs a lock, and its environment.
func installCommand(lock lockfile.Lock) (argv []string, env map[string]string, err error) {
	switch lock.Tool {
	case lockfile.NPM:
		argv = []string{"npm", "ci", "--fetch-retries=1", "--fetch-retry-mintimeout=500", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"}
		if !defence.Off(defence.InstallQuiet) {
			argv = append(argv, "--ignore-scripts")
		}
		return argv, map[string]string{"npm_config_fetch_timeout": "20000"}, nil
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

// installing runs a command in a box of its own, which is gone when it returns.
func (c *Boxes) installing(ctx context.Context, spec sandbox.BoxSpec, lock lockfile.Lock, argv []string) error {
	box, err := c.Open(ctx, spec)
	if err != nil {
		return err
	}
	var said lastWords
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

// lastWords keep the beginning and the end of what a command says, as one line.
type lastWords struct {
	mu        sync.Mutex
	head, end []byte
	cut       bool
}

const wordsKept = 800

// Write implements io.Writer.
func (w *lastWords) Write(p []byte) (int, error) {
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

func (w *lastWords) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := string(w.head)
	if w.cut {
		text += " … "
	}
	text += string(w.end)
	return strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, "\uFFFD"), func(r rune) bool { return r < ' ' }), " ")
}
