package e2e_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestBadConfiguration shows that an invalid configuration is refused before anything is started.
func TestBadConfiguration(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, c := range map[string]struct {
		file  string
		env   []string
		words []string
	}{
		"an unknown key":           {file: "[git]\nauto_comit_interval = 3\n", words: []string{"git.auto_comit_interval", "not a known key", "Did you mean git.auto_commit_interval?"}},
		"an unknown section":       {file: "[storge]\nreserve_mb = 3\n", words: []string{"storge.reserve_mb", "storage.reserve_mb"}},
		"a number that is none":    {file: "[runtime]\npids = \"many\"\n", words: []string{"pids"}},
		"a number out of bounds":   {file: "[runtime]\nmemory_mb = -1\n", words: []string{"runtime.memory_mb", "more than 0"}},
		"no TOML":                  {file: "[runtime\n", words: []string{"config.toml"}},
		"a driver that isn't":      {file: "[runtime]\nmode = \"magic\"\n", words: []string{"runtime.mode", "magic", "local"}},
		"a driver not yet":         {file: "[runtime]\nmode = \"microvm\"\n", words: []string{"runtime.mode", "local"}},
		"an address for everybody": {file: "[server]\nlisten = \"0.0.0.0:7700\"\n", words: []string{"server.listen", "loopback"}},
		"an egress rule":           {file: "[egress]\nallow = [\"*.com:443\"]\n", words: []string{"*.com:443"}},
		"a private address":        {file: "[egress]\nallow_private = [\"localhost\"]\n", words: []string{"egress.allow_private", "ADDR:PORT"}},
		"a provider's format":      {file: "[models.providers.acme]\nbase_url = \"https://acme.example\"\nwire = \"soap\"\n", words: []string{"acme", "wire", "Correct it below [models.providers.acme]"}},
		"a provider's key":         {file: "[models.providers.acme]\nbase_url = \"https://acme.example\"\nkey = \"sk-1234567890\"\n", words: []string{"acme", "never the key itself", "Correct it below [models.providers.acme]"}},
		"a model's name":           {file: "[models]\ndefault = \"nosuch\"\n", words: []string{"Set models.default"}},
		"a role's model":           {file: "[models.roles]\ndirector = \"nobody/x\"\n", words: []string{"models.roles.director", "nobody"}},
		"a computer's model":       {file: "[models.computers.abcdefghij012345]\ndefault = \"nobody/x\"\n", words: []string{"models.computers.abcdefghij012345", "nobody"}},
		"a base URL":               {file: "[models]\nopenai_base_url = \"ftp://x\"\n", words: []string{"models.openai_base_url"}},
		"an unknown variable":      {env: []string{"CHOIR_GIT_AUTO_COMIT_INTERVAL=3"}, words: []string{"CHOIR_GIT_AUTO_COMIT_INTERVAL", "CHOIR_GIT_AUTO_COMMIT_INTERVAL"}},
		"a variable out of bounds": {env: []string{"CHOIR_BUDGET_TURNS=0"}, words: []string{"budget.turns"}},
	} {
		file := filepath.Join(dir, "config.toml")
		if err := os.WriteFile(file, []byte(c.file), 0o600); err != nil {
			t.Fatal(err)
		}
		data := filepath.Join(dir, "data")
		r := choir(t, c.env, "up", "--config", file, "--data", data, "--no-open", "--json")
		refused(t, name, r, 2, c.words...)
		if left, _ := filepath.Glob(filepath.Join(data, "computers", "*")); len(left) != 0 {
			t.Errorf("%s: a computer was begun: %v", name, left)
		}
	}
	refused(t, "no file", choir(t, nil, "up", "--config", filepath.Join(dir, "missing.toml")), 1, "missing.toml", "--config")
	if _, err := os.Stat(filepath.Join(dir, "data", "nats")); !errors.Is(err, fs.ErrNotExist) {
		t.Log("the data directory's skeleton was made before the egress rules were read")
	}
}

func TestBadUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"upp"}, {"up", "--lissten", "x"}, {"up", "extra"}, {"files", "cat"}, {"files", "put", "x"}, {"restore"},
		{"diff", "a", "b", "c"}, {"run", "cancel"}, {"events", "--after", "x"}, {"add"}, {"secrets", "set"}, {"prompt"}, {"prompt", "--timeout", "soon", "x"}, {"files", "lss"}, {"run", "x"},
	} {
		if r := choir(t, nil, args...); r.Code != 2 || r.Stderr == "" || r.Stdout != "" {
			t.Errorf("choir %q: %+v; want exit code 2 and a line on standard error", args, r)
		}
	}
	nobody := []string{"CHOIR_URL=http://console.choir.localhost:1", "CHOIR_TOKEN=choir_x"}
	for _, args := range [][]string{{"runs"}, {"prompt", "x"}, {"files", "ls"}, {"events"}, {"events", "--follow"}, {"rebuild"}, {"models"}, {"secrets", "ls"}} {
		refused(t, args[0], choir(t, nobody, args...), 3, "choir up")
	}
	// Any exit code of exec may be the command's; our own errors have 125, as with other programs
	// that run programs.
	refused(t, "exec", choir(t, nobody, "exec", "--", "true"), 125, "choir up")
	refused(t, "no instance", choir(t, nil, "runs"), 3, "choir up")
	refused(t, "a URL that is none", choir(t, []string{"CHOIR_URL=nonsense"}, "runs"), 2, "nonsense")
}
