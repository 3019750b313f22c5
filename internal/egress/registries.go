package egress

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/pelletier/go-toml/v2"

	"choir.dev/choiros/contract"
)

const (
	registryTime = 10 * time.Second // for each package manager
	maxAnswer    = 1 << 20
)

// HostRegistries asks the package managers installed on this machine which registries they
// are configured with, and makes a rule of each. A manager that is not installed, or does
// not answer in time, gives no rule. No registry's name is built into this program.
func HostRegistries(logger *slog.Logger) func(ctx context.Context) ([]Rule, error) {
	return func(ctx context.Context) ([]Rule, error) {
		ask := map[string]func(context.Context) ([]string, error){"npm": npm, "pip": pip, "go": goProxies, "cargo": cargo}
		var mu sync.Mutex
		var wait sync.WaitGroup
		var rules []Rule
		for name, find := range ask {
			wait.Go(func() {
				own, cancel := context.WithTimeout(ctx, registryTime)
				defer cancel()
				urls, err := find(own)
				if err != nil && !errors.Is(err, exec.ErrNotFound) {
					logger.Warn("a package manager's registry is not known, so boxes can't reach it", "manager", name, "err", err)
				}
				for _, u := range urls {
					rule, err := urlRule(u)
					if err != nil {
						logger.Warn("a registry gives no egress", "manager", name, "err", err)
						continue
					}
					mu.Lock()
					rules = append(rules, rule)
					mu.Unlock()
				}
			})
		}
		wait.Wait()
		return rules, ctx.Err()
	}
}

// run executes a program in the root directory, so that no project's configuration counts.
func run(ctx context.Context, argv ...string) ([]byte, error) {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, argv[1:]...)
	cmd.Dir = "/"
	cmd.WaitDelay = time.Second
	var out limited
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s %s: %w", argv[0], argv[1], err)
	}
	return out.Bytes(), nil
}

// limited keeps only the beginning of what is written to it.
type limited struct{ bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	if room := maxAnswer - l.Len(); room > 0 {
		l.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// npm has one registry, and one more for each scope that has its own.
func npm(ctx context.Context) ([]string, error) {
	out, err := run(ctx, "npm", "config", "list", "--json", "--long")
	if err != nil {
		return nil, err
	}
	var all map[string]any
	if err := json.Unmarshal(out, &all); err != nil {
		return nil, fmt.Errorf("npm config list: %w", err)
	}
	var urls []string
	for k, v := range all {
		if s, ok := v.(string); ok && (k == "registry" || strings.HasSuffix(k, ":registry")) {
			urls = append(urls, s)
		}
	}
	return urls, nil
}

// pipDefault prints pip's own default index and file host, for a pip that is
// not configured otherwise.
const pipDefault = `from pip._internal.models.index import PyPI
print(PyPI.simple_url)
print("https://" + PyPI.file_storage_domain + "/")`

func pip(ctx context.Context) ([]string, error) {
	out, err := run(ctx, "python3", "-m", "pip", "config", "list")
	if err != nil {
		return nil, err
	}
	urls, replaced := pipConfig(string(out))
	if !replaced {
		out, err := run(ctx, "python3", "-c", pipDefault)
		if err != nil {
			return urls, err
		}
		urls = append(urls, strings.Fields(string(out))...)
	}
	return urls, nil
}

// pipConfig reads lines such as global.index-url='https://…'.
func pipConfig(out string) (urls []string, replaced bool) {
	for line := range strings.Lines(out) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		_, name, _ := strings.Cut(key, ".")
		if strings.HasPrefix(key, ":env:") {
			name = strings.TrimPrefix(key, ":env:.")
		}
		if !ok || (name != "index-url" && name != "extra-index-url") {
			continue
		}
		replaced = replaced || name == "index-url"
		urls = append(urls, strings.Fields(strings.ReplaceAll(strings.Trim(value, `'"`), `\n`, " "))...)
	}
	return urls, replaced
}

func goProxies(ctx context.Context) ([]string, error) {
	out, err := run(ctx, "go", "env", "-json", "GOPROXY", "GOSUMDB", "GONOSUMDB")
	if err != nil {
		return nil, err
	}
	var env map[string]string
	if err := json.Unmarshal(out, &env); err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	var urls []string
	for _, p := range strings.FieldsFunc(env["GOPROXY"], func(r rune) bool { return r == ',' || r == '|' }) {
		if p != "direct" && p != "off" && !strings.HasPrefix(p, "file:") {
			urls = append(urls, p)
		}
	}
	// GOSUMDB is a name, optionally a key, optionally a URL to use instead.
	if f := strings.Fields(env["GOSUMDB"]); len(f) > 0 && f[0] != "off" {
		switch last := f[len(f)-1]; {
		case strings.Contains(last, "://"):
			urls = append(urls, last)
		default:
			name, _, _ := strings.Cut(f[0], "+")
			urls = append(urls, "https://"+name)
		}
	}
	return urls, nil
}

// cargo can't be asked for its default registry, so only a registry in its configuration counts.
func cargo(context.Context) ([]string, error) {
	b, err := cargoFile()
	if err != nil || b == nil {
		return nil, err
	}
	return cargoConfig(b)
}

// cargoFile is the configuration of the machine's cargo, nil without one.
func cargoFile() ([]byte, error) {
	home := os.Getenv("CARGO_HOME")
	if home == "" {
		user, err := os.UserHomeDir()
		if err != nil {
			return nil, fmt.Errorf("cargo: %w", err)
		}
		home = filepath.Join(user, ".cargo")
	}
	for _, name := range []string{"config.toml", "config"} {
		f, err := os.Open(filepath.Join(home, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cargo: %w", err)
		}
		b, err := io.ReadAll(io.LimitReader(f, maxAnswer))
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("cargo: %w", err)
		}
		return b, nil
	}
	return nil, nil
}

func cargoConfig(b []byte) ([]string, error) {
	var c struct {
		Source     map[string]struct{ Registry string }
		Registries map[string]struct{ Index string }
	}
	if err := toml.Unmarshal(b, &c); err != nil {
		return nil, fmt.Errorf("cargo's configuration: %w", err)
	}
	var urls []string
	for _, s := range c.Source {
		if s.Registry != "" {
			urls = append(urls, s.Registry)
		}
	}
	for _, r := range c.Registries {
		if r.Index != "" {
			urls = append(urls, r.Index)
		}
	}
	return urls, nil
}

// Configured are the settings with which a package manager in a box uses the registries
// that this machine's own is configured with: environment variables for the box.
// Credentials stay on the host. A manager that is not installed has none.
func Configured(ctx context.Context, manager string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, registryTime)
	defer cancel()
	var env map[string]string
	var err error
	switch manager {
	case "npm":
		env, err = npmSettings(ctx)
	case "go":
		env, err = goSettings(ctx)
	case "pip":
		env, err = pipSettings(ctx)
	}
	if errors.Is(err, exec.ErrNotFound) {
		return nil, nil
	}
	return env, err
}

// bare is a registry's address without credentials.
func bare(text string) (string, error) {
	u, err := url.Parse(strings.TrimSpace(text))
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return "", fmt.Errorf("the registry %q is no address: %w", contract.Shorten(text, 100), err)
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String(), nil
}

func npmSettings(ctx context.Context) (map[string]string, error) {
	out, err := run(ctx, "npm", "config", "get", "registry")
	if err != nil {
		return nil, err
	}
	registry, err := bare(string(out))
	return map[string]string{"npm_config_registry": registry}, err
}

// goSettings leave out what fetches modules from version control: that is no registry, and
// version control programs would have to run.
func goSettings(ctx context.Context) (map[string]string, error) {
	out, err := run(ctx, "go", "env", "GOPROXY")
	if err != nil {
		return nil, err
	}
	var list strings.Builder
	sep := ""
	for rest := strings.TrimSpace(string(out)); rest != ""; {
		i := strings.IndexAny(rest, ",|")
		one, next := rest, ""
		if i >= 0 {
			one, next = rest[:i], rest[i:i+1]
			rest = rest[i+1:]
		} else {
			rest = ""
		}
		if u, err := bare(one); err == nil {
			list.WriteString(sep + u)
			sep = next
		}
	}
	if list.Len() == 0 {
		return map[string]string{"GOPROXY": "off"}, nil
	}
	return map[string]string{"GOPROXY": list.String()}, nil
}

func pipSettings(ctx context.Context) (map[string]string, error) {
	out, err := run(ctx, "python3", "-m", "pip", "config", "list")
	if err != nil {
		return nil, err
	}
	env := map[string]string{}
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		_, name, _ := strings.Cut(key, ".")
		if strings.HasPrefix(key, ":env:") {
			name = strings.TrimPrefix(key, ":env:.")
		}
		variable := map[string]string{"index-url": "PIP_INDEX_URL", "extra-index-url": "PIP_EXTRA_INDEX_URL"}[name]
		if variable == "" {
			continue
		}
		var urls []string
		for _, u := range strings.Fields(strings.ReplaceAll(strings.Trim(value, `'"`), `\n`, " ")) {
			b, err := bare(u)
			if err != nil {
				return nil, err
			}
			urls = append(urls, b)
		}
		env[variable] = strings.Join(urls, " ")
	}
	return env, nil
}

// CargoConfig is the part of this machine's configuration of cargo that says where crates
// come from, for a cargo in a box; nil when it says nothing.
func CargoConfig() ([]byte, error) {
	b, err := cargoFile()
	if err != nil || b == nil {
		return nil, err
	}
	type source struct {
		Registry    string `toml:"registry,omitempty"`
		ReplaceWith string `toml:"replace-with,omitempty"`
	}
	var c struct {
		Source map[string]source `toml:"source"`
	}
	if err := toml.Unmarshal(b, &c); err != nil {
		return nil, fmt.Errorf("cargo's configuration: %w", err)
	}
	for name, s := range c.Source {
		if s.Registry == "" {
			continue
		}
		address, sparse := strings.CutPrefix(s.Registry, "sparse+")
		if s.Registry, err = bare(address); err != nil {
			return nil, err
		}
		if sparse {
			s.Registry = "sparse+" + s.Registry
		}
		c.Source[name] = s
	}
	if len(c.Source) == 0 {
		return nil, nil
	}
	out, err := toml.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("cargo's configuration: %w", err)
	}
	return out, nil
}
