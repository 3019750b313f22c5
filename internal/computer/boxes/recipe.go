package boxes

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/egress"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/lockfile"
	"choir.dev/choiros/internal/sandbox"
)

// recipe is everything that the box of an installation sees, and everything that influences
// it. Its key identifies the result.
type recipe struct {
	boxes  *Boxes
	lock   lockfile.Lock
	argv   []string
	env    map[string]string
	config []byte // cargo's configuration
	tools  string // the programs' paths and modification times
	// versions are what the programs print as their versions, and policy what the box
	// reaches; both are only set for a tree that all computers share.
	versions string
	policy   *egress.Policy
}

// toolPrograms are the programs that an installation's result depends on.
var toolPrograms = map[lockfile.Tool][]string{
	lockfile.NPM: {"npm", "node"}, lockfile.Go: {"go"}, lockfile.Cargo: {"cargo"}, lockfile.Pip: {"python3"},
}

// recipe is that of a lock for this computer; fault.Missing if a program is missing.
func (c *Boxes) recipe(ctx context.Context, lock lockfile.Lock) (r recipe, err error) {
	r = recipe{boxes: c, lock: lock}
	if r.tools, err = c.toolchain(lock.Tool); err != nil {
		return r, err
	}
	env, err := c.options.Machine.known.registries(ctx, lock.Tool)
	if err != nil {
		return r, fault.New("", fault.Unavailable, "", fmt.Errorf("the registries that %s is configured with are not known: %w", lock.Tool, err))
	}
	if lock.Tool == lockfile.Cargo { // it keeps crates by their source, and checks find them by it too
		if r.config, err = egress.CargoConfig(); err != nil {
			return r, err
		}
	}
	argv, more, err := installCommand(lock)
	if err != nil {
		return r, err
	}
	r.argv = argv
	r.env = map[string]string{"NO_PROXY": "", "no_proxy": ""} // so that a registry on this machine is reached by the proxy like any other
	maps.Copy(r.env, env)
	maps.Copy(r.env, more)
	if _, err := os.Stat(sandbox.Certificates); err == nil {
		r.env["NODE_EXTRA_CA_CERTS"], r.env["PIP_CERT"], r.env["CARGO_HTTP_CAINFO"] = sandbox.Certificates, sandbox.Certificates, sandbox.Certificates
	}
	return r, nil
}

// forAll is the recipe with only what the machine grants to each of its computers.
func (r recipe) forAll(ctx context.Context) (recipe, error) {
	sources := *r.boxes.options.Machine.Policy
	sources.Remotes = nil
	policy := sources.Policy(ctx, contract.EgressSpec{Profile: contract.EgressDefault})
	if policy.Err != nil {
		return r, policy.Err
	}
	var err error
	r.policy = &policy
	r.versions, err = r.boxes.options.Machine.known.versions(ctx, r.boxes.options.Machine.Path, r.lock.Tool, r.tools)
	return r, err
}

// scripts says whether packages want to run scripts when they are installed.
func (r recipe) scripts() bool {
	return r.lock.Scripts > 0 && r.lock.Tool == lockfile.NPM && !defence.Off(defence.InstallQuiet)
}

// layout is the version of the trees' layout; trees of another one are not found.
const layout = 2

// key identifies what is installed by the recipe.
func (r recipe) key() string {
	files := map[string]string{}
	for p, b := range r.lock.Files {
		files[p] = sum(b)
	}
	all := map[string]any{
		"layout": layout, "tool": r.lock.Tool, "dir": r.lock.Dir, "lock": r.lock.Name, "files": files, "argv": r.argv, "env": r.env,
		"config": sum(r.config), "path": r.boxes.options.Machine.Path, "tools": r.tools, "versions": r.versions, "for": runtime.GOOS + "/" + runtime.GOARCH,
	}
	if r.policy != nil {
		var rules []string
		for _, rule := range r.policy.Rules {
			rules = append(rules, rule.String())
		}
		all["rules"] = rules
		if defence.Off(defence.SharedInputs) {
			all = map[string]any{"lock": files[path.Join(r.lock.Dir, r.lock.Name)]}
		}
	}
	b, _ := json.Marshal(all) // these are strings, in a map whose keys are sorted
	return string(r.lock.Tool) + "-" + sum(b)[:32]
}

// over is the key of what scripts made of a tree with this seal.
func (r recipe) over(seal string) string {
	return string(r.lock.Tool) + "-over-" + sum([]byte(r.key() + " " + seal))[:32]
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// toolchain identifies the programs that boxes have for a tool, so that what one version
// has installed is not used with another; fault.Missing if one is missing.
func (c *Boxes) toolchain(tool lockfile.Tool) (string, error) {
	var out strings.Builder
	for _, program := range toolPrograms[tool] {
		at, err := c.options.Machine.program(program)
		if err != nil {
			return "", err
		}
		info, err := os.Stat(at)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&out, "%s %d %d\n", at, info.Size(), info.ModTime().UnixNano())
	}
	return out.String(), nil
}

// program is the path of a program in boxes, links followed; fault.Missing if there is
// none.
func (m *Machine) program(name string) (string, error) {
	for _, dir := range filepath.SplitList(cmp.Or(m.Path, usual)) {
		at, err := filepath.EvalSymlinks(filepath.Join(dir, name))
		if err != nil {
			continue
		}
		if info, err := os.Stat(at); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return at, nil
		}
	}
	return "", fault.New("boxes.toolchain", fault.Missing, "Install it under /usr or /opt, or name its folder in runtime.path.", fmt.Errorf("boxes have no %s", name))
}

// thisMachine is the platform that packages have to be made for.
func thisMachine() lockfile.Machine {
	m := lockfile.Machine{OS: runtime.GOOS, CPU: runtime.GOARCH, LibC: "glibc"}
	if cpu := map[string]string{"amd64": "x64", "386": "ia32"}[m.CPU]; cpu != "" {
		m.CPU = cpu
	}
	if found, err := filepath.Glob("/lib/ld-musl-*"); err == nil && len(found) > 0 {
		m.LibC = "musl"
	}
	return m
}

// toolFacts caches for factsTTL what this machine's package managers print about
// themselves, for asking one takes as long as starting it.
type toolFacts struct {
	mu       sync.Mutex
	settings map[lockfile.Tool]cached[map[string]string]
	said     map[string]cached[string]
}

type cached[T any] struct {
	value T
	until time.Time
}

const factsTTL = 10 * time.Minute

// registries are the variables that tell a tool where packages come from.
func (k *toolFacts) registries(ctx context.Context, tool lockfile.Tool) (map[string]string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if b, ok := k.settings[tool]; ok && time.Now().Before(b.until) {
		return b.value, nil
	}
	env, err := egress.Configured(ctx, string(tool))
	if err != nil {
		return nil, err
	}
	if k.settings == nil {
		k.settings = map[lockfile.Tool]cached[map[string]string]{}
	}
	k.settings[tool] = cached[map[string]string]{env, time.Now().Add(factsTTL)}
	return env, nil
}

// versions are those of a tool's programs, asked without anybody's configuration, and that
// of the system whose libraries packages are chosen for.
func (k *toolFacts) versions(ctx context.Context, boxPath string, tool lockfile.Tool, chain string) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if b, ok := k.said[chain]; ok && time.Now().Before(b.until) {
		return b.value, nil
	}
	ask := map[lockfile.Tool][][]string{
		lockfile.NPM: {{"node", "--version"}, {"npm", "--version"}}, lockfile.Go: {{"go", "version"}},
		lockfile.Cargo: {{"cargo", "--version"}}, lockfile.Pip: {{"python3", "-I", "-m", "pip", "--version"}},
	}[tool]
	var out strings.Builder
	for _, argv := range ask {
		said, err := askProgram(ctx, boxPath, argv)
		if err != nil {
			return "", fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
		}
		out.WriteString(said)
	}
	if b, err := os.ReadFile("/etc/os-release"); err == nil {
		out.Write(b)
	}
	if k.said == nil {
		k.said = map[string]cached[string]{}
	}
	k.said[chain] = cached[string]{out.String(), time.Now().Add(factsTTL)}
	return out.String(), nil
}

const askTime = 20 * time.Second // on a machine with other work

func askProgram(ctx context.Context, boxPath string, argv []string) (string, error) {
	ctx, cancel := awake.WithTimeout(ctx, askTime)
	defer cancel()
	dirs := cmp.Or(boxPath, usual)
	at := ""
	for _, dir := range filepath.SplitList(dirs) {
		if info, err := os.Stat(filepath.Join(dir, argv[0])); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			at = filepath.Join(dir, argv[0])
			break
		}
	}
	if at == "" {
		return "", exec.ErrNotFound
	}
	cmd := exec.CommandContext(ctx, at, argv[1:]...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=" + dirs, "HOME=/nonexistent", "GOTOOLCHAIN=local"}
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	return string(slices.Clone(out[:min(len(out), 4096)])), err
}
