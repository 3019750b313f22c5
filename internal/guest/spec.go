package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"

	"choir.dev/choiros/contract"
)

// Descriptors a guest is started with.
const (
	TetherFD = 3 // a connected stream socket
	SpecFD   = 4 // the Spec as JSON, to the end of the file
)

// ProxyAddr is where the loopback proxy of a box listens, for HTTP CONNECT and
// SOCKS5 alike.
const ProxyAddr = "127.0.0.1:1080"

// ModelAddr is where a box that was granted the model serves it to its programs, in the wire
// formats of the vendors.
const ModelAddr = "127.0.0.1:1081"

const maxSpec = 1 << 20

// Spec is what the host tells a guest on SpecFD.
type Spec struct {
	Token string            `json:"token"` // one-time token of the tether
	Box   string            `json:"box"`
	Kind  contract.BoxKind  `json:"kind"`
	Root  string            `json:"root"` // absolute; commands start there, files are below it
	Env   map[string]string `json:"env,omitempty"`
	Proxy bool              `json:"proxy,omitempty"`
	// ModelToken is what the box's programs ask the model with; empty: they have none. It is good
	// for this box alone.
	ModelToken string `json:"model_token,omitempty"`
	// FileBytes bounds the size of one file written in the box; 0: no bound.
	FileBytes int64 `json:"file_bytes,omitempty"`
	// Processes limits the processes and threads of the box; 0: no limit. The kernel does
	// not apply it to root, whose boxes have a control group instead.
	Processes int `json:"processes,omitempty"`
	// OpenFiles limits the descriptors of each process; 0: 16384.
	OpenFiles int64 `json:"open_files,omitempty"`
}

func readSpec(f *os.File) (Spec, error) {
	var spec Spec
	data, err := io.ReadAll(io.LimitReader(f, maxSpec+1))
	if err != nil {
		return spec, fmt.Errorf("read the spec: %w", err)
	}
	if len(data) > maxSpec {
		return spec, errors.New("the spec is too large")
	}
	if err := json.Unmarshal(data, &spec); err != nil {
		return spec, fmt.Errorf("read the spec: %w", err)
	}
	if spec.Root == "" || spec.Root[0] != '/' {
		return spec, errors.New("the spec names no absolute root")
	}
	if spec.OpenFiles <= 0 {
		spec.OpenFiles = 16384
	}
	return spec, nil
}

// environment is what commands get in addition to their own variables.
func environment(spec Spec) map[string]string {
	env := map[string]string{
		"PATH":   "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
		"HOME":   "/home/choir",
		"USER":   "choir",
		"SHELL":  "/bin/sh",
		"LANG":   "C.UTF-8",
		"TMPDIR": "/tmp",
		"TERM":   "dumb",
		// Otherwise npm repeats a refused request for minutes.
		"npm_config_fetch_retries":      "1",
		"npm_config_update_notifier":    "false",
		"npm_config_fund":               "false",
		"npm_config_audit":              "false",
		"GIT_TERMINAL_PROMPT":           "0",
		"PIP_DISABLE_PIP_VERSION_CHECK": "1",
		"GOTOOLCHAIN":                   "local",
		"GOTELEMETRY":                   "off",
		// Otherwise nobody could remove the module cache with the box.
		"GOFLAGS": "-modcacherw",
		// Byte code would be written beside the sources, where it would count as a change.
		"PYTHONDONTWRITEBYTECODE": "1",
	}
	if spec.Proxy {
		http, socks := "http://"+ProxyAddr, "socks5h://"+ProxyAddr
		for _, name := range []string{"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"} {
			env[name] = http
		}
		env["ALL_PROXY"], env["all_proxy"] = socks, socks
		env["NO_PROXY"], env["no_proxy"] = "localhost,127.0.0.1,::1", "localhost,127.0.0.1,::1"
		env["npm_config_proxy"], env["npm_config_https_proxy"] = http, http
		env["NODE_USE_ENV_PROXY"] = "1"
	}
	if token := spec.ModelToken; token != "" {
		env["ANTHROPIC_BASE_URL"], env["OPENAI_BASE_URL"] = "http://"+ModelAddr, "http://"+ModelAddr+"/v1"
		for _, name := range []string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY"} {
			env[name] = token
		}
	}
	for k, v := range spec.Env {
		env[k] = v
	}
	return env
}

// flatten merges maps, later ones winning, into sorted NAME=value pairs. Names and values
// that can't be passed to the kernel are left out.
func flatten(maps ...map[string]string) []string {
	merged := map[string]string{}
	for _, m := range maps {
		for k, v := range m {
			merged[k] = v
		}
	}
	out := make([]string, 0, len(merged))
	for k, v := range merged {
		if validVar(k, v) {
			out = append(out, k+"="+v)
		}
	}
	sort.Strings(out)
	return out
}

func validVar(name, value string) bool {
	if name == "" {
		return false
	}
	for i := range len(name) {
		if name[i] == '=' || name[i] == 0 {
			return false
		}
	}
	for i := range len(value) {
		if value[i] == 0 {
			return false
		}
	}
	return true
}
