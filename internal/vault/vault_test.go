package vault_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/newfile"
	"choir.dev/choiros/internal/vault"
)

const secret = "sk-ant-canary-0123456789"

func open(t *testing.T, dir string) *vault.Vault {
	t.Helper()
	for _, k := range []string{vault.EnvKey, vault.EnvKeyFile, "CREDENTIALS_DIRECTORY"} {
		t.Setenv(k, "")
	}
	v, err := vault.Open(dir, newfile.Synced)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestSecretsSurviveAndAreNotInTheClear(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	v := open(t, dir)
	if err := v.Set(t.Context(), "ANTHROPIC_API_KEY", secret); err != nil {
		t.Fatal(err)
	}
	if err := v.Set(t.Context(), "b", "other"); err != nil {
		t.Fatal(err)
	}
	v = open(t, dir)
	if got, err := v.Get(t.Context(), "ANTHROPIC_API_KEY"); err != nil || got != secret {
		t.Errorf("got %q, %v", got, err)
	}
	names, err := v.List(t.Context())
	if err != nil || !slices.Equal(names, []string{"ANTHROPIC_API_KEY", "b"}) {
		t.Errorf("got %q, %v", names, err)
	}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		b, err := os.ReadFile(path)
		for _, s := range []string{secret, "ANTHROPIC_API_KEY", hex.EncodeToString([]byte(secret)), base64.StdEncoding.EncodeToString([]byte(secret))[:24]} {
			if bytes.Contains(b, []byte(s)) {
				t.Errorf("%s contains %q", path, s)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if err := v.Remove(t.Context(), "ANTHROPIC_API_KEY"); err != nil {
		t.Error(err)
	}
	v = open(t, dir)
	if _, err := v.Get(t.Context(), "ANTHROPIC_API_KEY"); !fault.Is(err, fault.NotFound) {
		t.Errorf("got %v", err)
	}
	if got, err := v.Lookup(t.Context(), "ANTHROPIC_API_KEY"); got != "" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if err := v.Remove(t.Context(), "ANTHROPIC_API_KEY"); !fault.Is(err, fault.NotFound) {
		t.Errorf("got %v", err)
	}
}

func TestRefusesBadInput(t *testing.T) {
	v := open(t, t.TempDir())
	for _, name := range []string{"", "1a", "a b", "a/b", "../x", "a\x00", "ä", strings.Repeat("a", 129)} {
		if err := v.Set(t.Context(), name, "x"); !fault.Is(err, fault.Invalid) {
			t.Errorf("name %q: %v", name, err)
		}
	}
	for _, value := range []string{"", strings.Repeat("x", vault.MaxValue+1), "\xff"} {
		err := v.Set(t.Context(), "a", value)
		if !fault.Is(err, fault.Invalid) || (value != "" && strings.Contains(err.Error(), value)) {
			t.Errorf("value of %d bytes: %v", len(value), err)
		}
	}
	if err := v.Set(t.Context(), "a", strings.Repeat("x", vault.MaxValue)); err != nil {
		t.Error(err)
	}
}

func TestRefusesFilesThatOthersCanTouch(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(dir string) error
	}{
		{"key readable by others", func(d string) error { return os.Chmod(filepath.Join(d, "master.key"), 0o644) }},
		{"secrets readable by the group", func(d string) error { return os.Chmod(filepath.Join(d, "secrets.sealed"), 0o640) }},
		{"directory writable by others", func(d string) error { return os.Chmod(d, 0o777) }},
		{"key is a link", func(d string) error {
			if err := os.Rename(filepath.Join(d, "master.key"), filepath.Join(d, "real")); err != nil {
				return err
			}
			return os.Symlink("real", filepath.Join(d, "master.key"))
		}},
		{"secrets are a directory", func(d string) error {
			if err := os.Remove(filepath.Join(d, "secrets.sealed")); err != nil {
				return err
			}
			return os.Mkdir(filepath.Join(d, "secrets.sealed"), 0o700)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "keys")
			open(t, dir)
			if err := c.spoil(dir); err != nil {
				t.Fatal(err)
			}
			if _, err := vault.Open(dir, newfile.Synced); !fault.Is(err, fault.Denied) || fault.HintOf(err) == "" {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestDamageIsNoticed(t *testing.T) {
	dir := t.TempDir()
	v := open(t, dir)
	if err := v.Set(t.Context(), "a", secret); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "secrets.sealed")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 1
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := vault.Open(dir, newfile.Synced); !fault.Is(err, fault.Invalid) {
			t.Fatalf("byte %d flipped: %v", i, err)
		}
	}
	for n := range len(good) {
		if err := os.WriteFile(path, good[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := vault.Open(dir, newfile.Synced); !fault.Is(err, fault.Invalid) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "master.key")); err != nil {
		t.Fatal(err)
	}
	if _, err := vault.Open(dir, newfile.Synced); !fault.Is(err, fault.Missing) {
		t.Errorf("a lost key must not be replaced: %v", err)
	}
}

func TestKeyFromOutside(t *testing.T) {
	text := strings.Repeat("0badc0de", 8)
	creds := t.TempDir()
	file := filepath.Join(creds, vault.Credential)
	if err := os.WriteFile(file, []byte(text+"\n"), 0o400); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for i, env := range []map[string]string{{vault.EnvKey: text}, {vault.EnvKeyFile: file}, {"CREDENTIALS_DIRECTORY": creds}} {
		key, err := vault.KeyFromSystem(func(k string) string { return env[k] })
		if err != nil {
			t.Fatal(err)
		}
		if s := fmt.Sprintf("%v %+v %#v %s", key, key, key, key); strings.Contains(s, "186") || strings.Contains(s, "0badc0de") {
			t.Errorf("the key prints itself: %s", s)
		}
		v, err := vault.OpenWithKey(dir, newfile.Synced, key)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			err = v.Set(t.Context(), "a", secret)
		}
		if got, gerr := v.Get(t.Context(), "a"); err != nil || gerr != nil || got != secret {
			t.Errorf("%v: %q, %v, %v", env, got, err, gerr)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "master.key")); !os.IsNotExist(err) {
		t.Errorf("a key from outside was written down: %v", err)
	}
	for _, bad := range []string{"short", strings.Repeat("0", 64), strings.Repeat("zz", 32)} {
		if _, err := vault.KeyFromSystem(func(k string) string { return map[string]string{vault.EnvKey: bad}[k] }); !fault.Is(err, fault.Invalid) || strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if key, err := vault.KeyFromSystem(func(k string) string { return map[string]string{"CREDENTIALS_DIRECTORY": t.TempDir()}[k] }); err != nil || key != (vault.Key{}) {
		t.Errorf("no credential must mean no key: %v", err)
	}
	other, err := vault.ParseKey(strings.Repeat("ab", 32))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := vault.OpenWithKey(dir, newfile.Synced, other); !fault.Is(err, fault.Invalid) {
		t.Errorf("the wrong key: %v", err)
	}
}

// TestAnotherKeyFromOutsideIsNoDamage shows that secrets which a key from outside does not open are
// called no damage, which a recovery would give up. They are refused, and open with their own key.
func TestAnotherKeyFromOutsideIsNoDamage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	if err := open(t, dir).Set(t.Context(), "k", secret); err != nil {
		t.Fatal(err)
	}
	t.Setenv(vault.EnvKey, strings.Repeat("ab", 32))
	if _, err := vault.Open(dir, newfile.Synced); !fault.Is(err, fault.Invalid) || !strings.Contains(fault.HintOf(err), vault.EnvKey) {
		t.Errorf("another key: %v, %q; want what to do about it", err, fault.HintOf(err))
	}
	if file := vault.Damaged(dir); file != "" {
		t.Errorf("another key: %s is called damaged", file)
	}
	if got, err := open(t, dir).Get(t.Context(), "k"); err != nil || got != secret {
		t.Errorf("%q, %v", got, err)
	}
}

func TestNothingIsLeftAfterAFailedWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	v := open(t, dir)
	if err := v.Set(t.Context(), "a", "old"); err != nil {
		t.Fatal(err)
	}
	// A file takes the place of the directory, so that nothing can be written.
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	if err := v.Set(t.Context(), "a", "new"); err == nil {
		t.Fatal("the write succeeded without a directory")
	}
	if got, err := v.Get(t.Context(), "a"); err != nil || got != "old" {
		t.Errorf("memory went ahead of the disk: %q, %v", got, err)
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	if got, err := open(t, dir).Get(t.Context(), "a"); err != nil || got != "old" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestConcurrentUse(t *testing.T) {
	dir := t.TempDir()
	v := open(t, dir)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			name := fmt.Sprintf("s%d", i)
			if err := v.Set(t.Context(), name, name); err != nil {
				t.Error(err)
			}
			if _, err := v.List(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	names, err := open(t, dir).List(t.Context())
	entries, derr := os.ReadDir(dir)
	if err != nil || derr != nil || len(names) != 20 || len(entries) != 2 {
		t.Errorf("%d names, %d files, %v, %v", len(names), len(entries), err, derr)
	}
}

func TestBehavesLikeAMap(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	rapid.Check(t, func(r *rapid.T) {
		sub, err := os.MkdirTemp(dir, "v")
		if err != nil {
			r.Fatal(err)
		}
		v, err := vault.Open(sub, newfile.Synced)
		if err != nil {
			r.Fatal(err)
		}
		want := map[string]string{}
		name := rapid.SampledFrom([]string{"a", "B", "c.d", "e-f_9"})
		for range rapid.IntRange(1, 12).Draw(r, "n") {
			n := name.Draw(r, "name")
			switch rapid.IntRange(0, 2).Draw(r, "op") {
			case 0:
				want[n] = rapid.StringN(1, 200, 500).Draw(r, "value")
				if err := v.Set(t.Context(), n, want[n]); err != nil {
					r.Fatal(err)
				}
			case 1:
				_, had := want[n]
				if err := v.Remove(t.Context(), n); (err == nil) != had {
					r.Fatalf("remove %s: %v", n, err)
				}
				delete(want, n)
			case 2:
				if v, err = vault.Open(sub, newfile.Synced); err != nil {
					r.Fatal(err)
				}
			}
			if got, err := v.Lookup(t.Context(), n); err != nil || got != want[n] {
				r.Fatalf("%s: got %q, want %q, %v", n, got, want[n], err)
			}
		}
	})
}
