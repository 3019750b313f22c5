package config_test

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"choir.dev/choiros/internal/config"
	"choir.dev/choiros/internal/fault"
)

func load(t *testing.T, toml string, env []string, flags map[string]any) (config.Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(path, []byte(toml), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Load(config.Sources{File: path, Environ: append([]string{"HOME=/nowhere"}, env...), Flags: flags})
}

func TestPrecedence(t *testing.T) {
	t.Parallel()
	const file = "[server]\nlisten = '127.0.0.1:1'\ndata = '/file'\n[git]\nauto_commit_interval = 7\nauto_commit_threshold = 8\n"
	c, err := load(t, file, []string{"CHOIR_SERVER_DATA=/env", "CHOIR_GIT_AUTO_COMMIT_INTERVAL=9", "CHOIR_EGRESS_ALLOW=a.example:443,b.example:443"},
		map[string]any{"server.data": "/flag"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Server.Listen != "127.0.0.1:1" || c.Server.Data != "/flag" || c.Git.AutoCommitInterval != 9 || c.Git.AutoCommitThreshold != 8 {
		t.Errorf("got %+v %+v; want file < environment < flags", c.Server, c.Git)
	}
	if len(c.Egress.Allow) != 2 || c.Egress.Allow[1] != "b.example:443" {
		t.Errorf("egress.allow = %q; want two hosts", c.Egress.Allow)
	}
	if c.Budget != config.Default().Budget {
		t.Errorf("budget = %+v; want the default", c.Budget)
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	c, err := config.Load(config.Sources{Environ: []string{"HOME=/nowhere", "XDG_DATA_HOME=/d", "CHOIR_URL=http://x", "CHOIR_TOKEN=y", "PATH=/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	if c.Server.Data != "/d/choir" || c.Runtime.Mode != "local" || c.Git.AutoCommitInterval != 300 || c.Git.AutoCommitThreshold != 50 {
		t.Errorf("got %+v", c)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		toml string
		env  []string
		want []string // parts of the error and the hint
	}{
		"unknown key":           {toml: "[git]\nauto_comit_interval = 1\n", want: []string{"git.auto_comit_interval", "git.auto_commit_interval"}},
		"unknown section":       {toml: "[gti]\nremote_template = 'x'\n", want: []string{"gti.remote_template", "git.remote_template"}},
		"unknown variable":      {env: []string{"CHOIR_GIT_AUTOCOMMIT_INTERVAL=3"}, want: []string{"CHOIR_GIT_AUTOCOMMIT_INTERVAL", "CHOIR_GIT_AUTO_COMMIT_INTERVAL"}},
		"not TOML":              {toml: "[git", want: []string{"config.toml", "line 1"}},
		"not TOML below":        {toml: "[git]\nauto_commit_interval = 5\n[models\n", want: []string{"config.toml", "line 3"}},
		"wrong type":            {toml: "[git]\nauto_commit_interval = 'soon'\n", want: []string{"git.auto_commit_interval", "config.toml", `"soon" is no whole number`}},
		"wrong variable":        {env: []string{"CHOIR_BUDGET_TURNS=abc"}, want: []string{"budget.turns", "CHOIR_BUDGET_TURNS", `"abc" is no whole number`}},
		"negative":              {toml: "[git]\nauto_commit_threshold = -1\n", want: []string{"git.auto_commit_threshold"}},
		"no runs":               {toml: "[loops]\nruns = 0\n", want: []string{"loops.runs", "from 1 to 200"}},
		"too many tasks":        {env: []string{"CHOIR_LOOPS_TASKS=201"}, want: []string{"loops.tasks", "from 1 to 200"}},
		"no patience":           {toml: "[approvals]\nwait_s = 9\n", want: []string{"approvals.wait_s", "from 10 to 86400"}},
		"endless patience":      {env: []string{"CHOIR_APPROVALS_WAIT_S=86401"}, want: []string{"approvals.wait_s", "from 10 to 86400"}},
		"unknown mode":          {toml: "[runtime]\nmode = 'docker'\n", want: []string{"runtime.mode", "local"}},
		"mode not there yet":    {toml: "[runtime]\nmode = 'microvm'\n", want: []string{"runtime.mode", "not have yet"}},
		"listen not loopback":   {toml: "[server]\nlisten = '0.0.0.0:7700'\n", want: []string{"server.listen", "loopback"}},
		"listen not parsable":   {toml: "[server]\nlisten = 'x'\n", want: []string{"server.listen", "ADDR:PORT"}},
		"credentials in URL":    {toml: "[models]\nopenai_base_url = 'http://u:p@h'\n", want: []string{"models.openai_base_url"}},
		"a provider's URL":      {toml: "[models.providers.acme]\nbase_url = 'ftp://h'\n", want: []string{"models.providers.acme.base_url"}},
		"a provider's key":      {toml: "[models.providers.acme]\nbase_ulr = 'https://h'\n", want: []string{"models.providers.acme.base_ulr", "models.providers.*.base_url"}},
		"a provider's name":     {toml: "[models.providers.'a.b']\nbase_url = 'https://h'\n", want: []string{"models.providers.a.b.base_url"}},
		"an effort":             {toml: "[models.efforts]\nassociate = 'much'\n", want: []string{"models.efforts.associate", "none, low, medium, high"}},
		"a role":                {toml: "[models.roles]\ndirektor = 'smart'\n", want: []string{"models.roles.direktor", "models.roles.director"}},
		"a program":             {toml: "[agents.helper]\nenv = ['A=b']\n", want: []string{"agents.helper.command", "names no program"}},
		"a program's name":      {toml: "[agents.My_Helper]\ncommand = ['x']\n", want: []string{"agents.My_Helper", "small letters"}},
		"a program's variables": {toml: "[agents.helper]\ncommand = ['x']\nenv = ['A']\n", want: []string{"agents.helper.env", "NAME=VALUE"}},
		"S3 blobs":              {toml: "[storage]\nblobs_url = 's3://b'\n", want: []string{"storage.blobs_url"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load(t, tc.toml, tc.env, nil)
			if !fault.Is(err, fault.Invalid) {
				t.Fatalf("got %v; want an invalid-configuration error", err)
			}
			got := err.Error() + " " + fault.HintOf(err)
			for _, w := range tc.want {
				if !strings.Contains(got, w) {
					t.Errorf("%q does not name %q", got, w)
				}
			}
		})
	}
}

func TestMissingFile(t *testing.T) {
	t.Parallel()
	_, err := config.Load(config.Sources{File: "/nowhere/config.toml"})
	if !fault.Is(err, fault.NotFound) || fault.HintOf(err) == "" {
		t.Errorf("got %v; want not_found with a hint", err)
	}
}

func TestEveryKeyIsDocumented(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range append(config.Keys(), config.Families()...) {
		key = strings.ReplaceAll(strings.Replace(key, "providers.*", "providers.NAME", 1), "computers.*", "computers.ID")
		key = strings.Replace(key, "agents.*", "agents.NAME", 1)
		section, name, _ := strings.Cut(key, ".")
		if !strings.Contains(string(doc), "`"+key+"`") && (section != "budget" || !strings.Contains(string(doc), "`."+name+"`")) {
			t.Errorf("docs/configuration.md does not list %s", key)
		}
	}
}

// TestEveryDocumentedVariableIsKnown: a variable that a page documents is accepted.
func TestEveryDocumentedVariableIsKnown(t *testing.T) {
	t.Parallel()
	told := map[string]bool{}
	for _, page := range []string{"../../README.md", "../../docs/configuration.md", "../../docs/vault.md", "../../docs/models.md", "../../docs/api.md", "../../docs/cli.md"} {
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile("`(CHOIR_[A-Z_]*[A-Z])").FindAllStringSubmatch(string(b), -1) {
			told[name[1]] = true
		}
	}
	if !told["CHOIR_VAULT_KEY"] || !told["CHOIR_VAULT_KEY_FILE"] || !told["CHOIR_CONFIG"] {
		t.Fatalf("the pages tell of %v", told)
	}
	for name := range told {
		// The value may be invalid for the variable; the error for an unknown variable has other
		// words.
		if _, err := config.Load(config.Sources{Environ: []string{"HOME=/home/u", name + "=/dev/null"}}); err != nil && strings.Contains(err.Error(), "is not a known key") {
			t.Errorf("a page tells of %s: %v", name, err)
		}
	}
}

// TestNoPathLandsInTheWorkingDirectory: a path without a home directory, or one that begins with ~,
// must not become relative to the working directory.
func TestNoPathLandsInTheWorkingDirectory(t *testing.T) {
	for _, environ := range [][]string{nil, {"HOME="}, {"HOME=home"}} {
		if c, err := config.Load(config.Sources{Environ: environ}); !fault.Is(err, fault.Invalid) || fault.HintOf(err) == "" {
			t.Errorf("with %q the data directory is %q: %v", environ, c.Server.Data, err)
		}
		// A file in the working directory is not configuration.
		t.Chdir(t.TempDir())
		if err := os.MkdirAll(".config/choir", 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(".config/choir/config.toml", []byte("[git]\nauto_commit_interval = 7\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if c, err := config.Load(config.Sources{Environ: append(environ, "CHOIR_DATA=/d")}); err != nil || c.Git.AutoCommitInterval == 7 {
			t.Errorf("with %q: %+v, %v", environ, c.Git, err)
		}
	}
	for given, want := range map[string]string{"~": "/home/u", "~/d/e": "/home/u/d/e", "/d/~": "/d/~", "~other/d": "", "~d": ""} {
		c, err := config.Load(config.Sources{Environ: []string{"HOME=/home/u", "CHOIR_DATA=" + given}})
		if want == "" && !fault.Is(err, fault.Invalid) || want != "" && (err != nil || c.Server.Data != want) {
			t.Errorf("the data directory %q is %q, %v; want %q", given, c.Server.Data, err, want)
		}
	}
	c, err := config.Load(config.Sources{Environ: []string{"HOME=/home/u", "CHOIR_MODELS_PLANS=~/plans", "CHOIR_EGRESS_CA_FILE=~/ca.pem", "CHOIR_RUNTIME_PATH=~/bin,/opt/bin"}})
	if err != nil || c.Models.Plans != "/home/u/plans" || c.Egress.CAFile != "/home/u/ca.pem" || c.Runtime.Path[0] != "/home/u/bin" {
		t.Errorf("%+v %+v %+v: %v", c.Models, c.Egress, c.Runtime, err)
	}
}

// TestSettingsSayWhereTheyAreFrom shows that each setting reports its source.
func TestSettingsSayWhereTheyAreFrom(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(file, []byte("[git]\nauto_commit_interval = 7\n[runtime]\npids = 9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	settings, err := config.Settings(config.Sources{Environ: []string{"HOME=/home/u", "CHOIR_CONFIG=" + file, "CHOIR_MODEL=m", "CHOIR_RUNTIME_PIDS=10"}, Flags: map[string]any{"server.listen": "127.0.0.1:1"}})
	if err != nil || len(settings) != len(config.Keys()) {
		t.Fatalf("%d settings of %d: %v", len(settings), len(config.Keys()), err)
	}
	want := map[string]config.Setting{
		"git.auto_commit_interval": {Value: 7, Source: file}, "runtime.pids": {Value: 10, Source: "CHOIR_RUNTIME_PIDS"},
		"models.default": {Value: "m", Source: "CHOIR_MODEL"}, "server.listen": {Value: "127.0.0.1:1", Source: "--listen"},
		"server.data": {Value: "/home/u/.local/share/choir", Source: "default"}, "runtime.memory_mb": {Value: config.Default().Runtime.MemoryMB, Source: "default"},
	}
	for _, s := range settings {
		w, ok := want[s.Key]
		if w.Key = s.Key; ok && !reflect.DeepEqual(s, w) {
			t.Errorf("got %+v, want %+v", s, w)
		}
		delete(want, s.Key)
	}
	if len(want) > 0 {
		t.Errorf("nothing tells of %v", want)
	}
}

// TestKeysWithNamesOfTheOwners: providers and computers are named in the file, and config show tells each of theirs.
func TestKeysWithNamesOfTheOwners(t *testing.T) {
	t.Parallel()
	const file = "[models.roles]\ndirector = 'smart'\n[models.providers.acme]\nbase_url = 'https://acme.example/v1'\nkey = 'ACME_API_KEY'\n[models.providers.zai]\nwire = 'anthropic'\n[models.computers.abcdefghij012345]\nassociate = 'fast'\n"
	c, err := load(t, file, []string{"CHOIR_MODELS_ROLES_ASSOCIATE=local"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := c.Models
	if m.Providers["acme"] != (config.Provider{BaseURL: "https://acme.example/v1", Key: "ACME_API_KEY"}) || m.Providers["zai"].Wire != "anthropic" ||
		m.Computers["abcdefghij012345"].Associate != "fast" || m.Roles != (config.Roles{Director: "smart", Associate: "local"}) {
		t.Errorf("got %+v", m)
	}
	path := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	settings, err := config.Settings(config.Sources{File: path, Environ: []string{"HOME=/home/u"}})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"models.providers.acme.base_url": "https://acme.example/v1", "models.providers.acme.key": "ACME_API_KEY", "models.providers.zai.wire": "anthropic", "models.computers.abcdefghij012345.associate": "fast"}
	for _, s := range settings {
		if w, ok := want[s.Key]; ok && (s.Value != w || s.Source != path) {
			t.Errorf("%+v", s)
		}
		delete(want, s.Key)
	}
	if len(want) > 0 {
		t.Errorf("nothing tells of %v", want)
	}
}
