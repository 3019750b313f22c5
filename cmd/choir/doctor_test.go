package main

import (
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/newfile"
	"choir.dev/choiros/internal/vault"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// TestVersionsThatAreNeeded shows that doctor tells versions that are new enough from others, and
// that the README, the setup script and npm's settings name the same versions.
func TestVersionsThatAreNeeded(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]bool{
		"git version 2.37.9": false, "git version 2.38.0": true, "git version 2.39.5 (Apple Git-154)": true, "git version 3.0": true, "git version 1.99": false, "git": false,
		"v20.18.3": false, "v20.19.0": true, "v21.7.3": false, "v22.11.0": false, "v22.12.0": true, "v23.0.0": true, "v9.99.0": false,
	} {
		if tool := tools[map[bool]int{true: 0, false: 1}[strings.HasPrefix(said, "git")]]; tool.does(said) != want {
			t.Errorf("%s says %q, which does: %v", tool.name, said, !want)
		}
	}
	read := func(path ...string) string {
		b, err := os.ReadFile(filepath.Join(append([]string{choirtest.Root()}, path...)...))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	var npm struct{ Engines struct{ Node string } }
	if err := json.Unmarshal([]byte(read("desktop", "package.json")), &npm); err != nil || npm.Engines.Node != "^20.19.0 || >=22.12.0" {
		t.Errorf("npm is told %q: %v", npm.Engines.Node, err)
	}
	needed := regexp.MustCompile(`(?m)^go (\S+)$`).FindStringSubmatch(read("go.mod"))[1]
	for page, words := range map[string][]string{
		"README.md":     {"Go " + needed + " or newer", "git 2.38 or newer", "Node.js 20.19 or 22.12 or newer"},
		"scripts/setup": {"Go " + needed + " or newer", "git 2.38 or newer", "Node.js 20.19 or 22.12 or newer"},
	} {
		for _, w := range words {
			if !strings.Contains(read(page), w) {
				t.Errorf("%s does not say %q", page, w)
			}
		}
	}
}

// TestDoctorSaysThatALogIsHeld: when a process died and left of a log only the second names of its
// files, doctor says that the log will be put back, rather than that it is missing.
func TestDoctorSaysThatALogIsHeld(t *testing.T) {
	t.Parallel()
	dir, err := datadir.Open(filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	b, err := bus.Open(t.Context(), bus.Options{Dir: dir.Path("nats"), KeysDir: dir.Path("keys")})
	if err != nil {
		t.Fatal(err)
	}
	cid := contract.NewCID()
	err = b.EnsureStream(t.Context(), cid)
	if err := errors.Join(err, b.Close(), os.MkdirAll(dir.Computer(cid), 0o700), os.MkdirAll(dir.Path("nats", "held"), 0o700)); err != nil {
		t.Fatal(err)
	}
	streams, err := bus.Streams(dir.Path("nats"))
	if err != nil || len(streams) != 1 {
		t.Fatal(streams, err)
	}
	below := strings.TrimPrefix(filepath.Join(streams[0].Path, "meta.inf"), "jetstream/")
	if err := os.Rename(dir.Path("nats", "jetstream", below), dir.Path("nats", "held", url.PathEscape(below))); err != nil {
		t.Fatal(err)
	}
	found, err := lookThrough(t.Context(), dir)
	if err != nil || len(found) != 1 || found[0].Status != "warn" || !strings.Contains(found[0].Detail, string(cid)) {
		t.Errorf("it says %+v, %v", found, err)
	}
	if err := bus.PutBack(dir.Path("nats"), ""); err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if again, err := lookThrough(t.Context(), dir); err != nil || len(again) == 1 && again[0].Detail == f.Detail {
			t.Errorf("once it is back: %+v, %v", again, err)
		}
	}
}

// TestDoctorSaysThatTheSecretsStayShut: with a master key from outside that is another one's, or
// with none where one is wanted, choir up refuses to start; doctor says so, and calls nothing damaged.
func TestDoctorSaysThatTheSecretsStayShut(t *testing.T) {
	dir, err := datadir.Open(filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	v, err := vault.Open(dir.Path("keys"), newfile.Synced)
	if err := errors.Join(err, v.Set(t.Context(), "k", "a secret")); err != nil {
		t.Fatal(err)
	}
	shut := func() view.Finding {
		t.Helper()
		all, err := lookThrough(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(all, func(f view.Finding) bool { return f.Status == "fail" })
		if i < 0 {
			return view.Finding{}
		}
		return all[i]
	}
	if f := shut(); f.Status != "" {
		t.Errorf("with its own key: %+v", f)
	}
	t.Setenv(vault.EnvKey, strings.Repeat("ab", 32))
	if f := shut(); !strings.Contains(f.Hint, vault.EnvKey) || strings.Contains(f.Hint, "recover") {
		t.Errorf("with another key: %+v", f)
	}
	t.Setenv(vault.EnvKey, "")
	if err := os.Remove(dir.Path("keys", "master.key")); err != nil {
		t.Fatal(err)
	}
	if f := shut(); !strings.Contains(f.Detail, "master key is gone") {
		t.Errorf("without a key: %+v", f)
	}
}
