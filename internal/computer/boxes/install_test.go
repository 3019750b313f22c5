package boxes

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"choir.dev/choiros/internal/lockfile"
)

// TestAttack40_NothingThatIsFetchedRunsWhereItIsFetched installs a package with a script from a
// registry, using the command that the box with a network runs: the package is there, and its
// script has not run.
func TestAttack40_NothingThatIsFetchedRunsWhereItIsFetched(t *testing.T) {
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("there is no npm on this machine")
	}
	ran := filepath.Join(t.TempDir(), "ran")
	pack := npmPackage(t, map[string]string{
		"package.json": `{"name":"eager","version":"1.0.0","scripts":{"install":"node ran.js"}}`,
		"ran.js":       fmt.Sprintf("require('fs').writeFileSync(%q, 'yes')", ran),
	})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/eager.tgz" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(pack) // if it does not arrive, npm reports that
	}))
	defer srv.Close()
	hash := sha512.Sum512(pack)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"package.json": `{"name":"p","version":"1.0.0","dependencies":{"eager":"1.0.0"}}`,
		"package-lock.json": fmt.Sprintf(`{"name":"p","version":"1.0.0","lockfileVersion":3,"requires":true,"packages":{"":{"name":"p","version":"1.0.0","dependencies":{"eager":"1.0.0"}},
			"node_modules/eager":{"version":"1.0.0","resolved":"%s/eager.tgz","integrity":"sha512-%s","hasInstallScript":true}}}`, srv.URL, base64.StdEncoding.EncodeToString(hash[:])),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	argv, more, err := installCommand(lockfile.Lock{Tool: lockfile.NPM, Dir: ".", Name: "package-lock.json", Packages: 1, Scripts: 1})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "npm_config_registry=" + srv.URL}
	for name, value := range more {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", argv, err, out)
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "eager", "ran.js")); err != nil {
		t.Fatalf("the package was not installed: %v", err)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("a package's script ran where the packages are fetched")
	}
}

// TestAttack40_NothingFromGitRunsWhereItIsFetched installs a package that contains a lock file,
// which the reader of the project's lock does not see. It names a repository whose .npmrc sets the
// program to use as git, and npm would run that to fetch the repository's dependencies, even with
// scripts turned off.
func TestAttack40_NothingFromGitRunsWhereItIsFetched(t *testing.T) {
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("there is no npm on this machine")
	}
	dir := t.TempDir()
	ran, repository, tool := filepath.Join(dir, "ran"), filepath.Join(dir, "repository"), filepath.Join(dir, "tool")
	p := filepath.Join(dir, "p")
	write := func(at, text string, mode os.FileMode) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	from := "git+file://" + repository
	write(tool, "#!/bin/sh\ntouch "+ran+"\nexit 1\n", 0o755)
	write(filepath.Join(repository, ".npmrc"), "git="+tool+"\n", 0o644)
	write(filepath.Join(repository, "package.json"), `{"name":"x","version":"1.0.0","scripts":{"prepare":"true"},"dependencies":{"y":"`+from+`"}}`, 0o644)
	for _, argv := range [][]string{{"init", "-q"}, {"add", "-A"}, {"-c", "user.name=a", "-c", "user.email=a@a.example", "commit", "-qm", "a"}} {
		if out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", repository}, argv...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", argv, err, out)
		}
	}
	pack := npmPackage(t, map[string]string{
		"package.json": `{"name":"eager","version":"1.0.0","dependencies":{"x":"*"}}`,
		"npm-shrinkwrap.json": `{"name":"eager","version":"1.0.0","lockfileVersion":3,"packages":{"":{"name":"eager","version":"1.0.0","dependencies":{"x":"*"}},
			"node_modules/x":{"version":"1.0.0","resolved":"` + from + `"}}}`,
	})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(pack) }))
	defer srv.Close()
	hash := sha512.Sum512(pack)
	write(filepath.Join(p, "package.json"), `{"name":"p","version":"1.0.0","dependencies":{"eager":"1.0.0"}}`, 0o644)
	write(filepath.Join(p, "package-lock.json"), fmt.Sprintf(`{"name":"p","version":"1.0.0","lockfileVersion":3,"packages":{"":{"name":"p","version":"1.0.0","dependencies":{"eager":"1.0.0"}},
		"node_modules/eager":{"version":"1.0.0","resolved":"%s/eager.tgz","integrity":"sha512-%s","hasShrinkwrap":true,"dependencies":{"x":"*"}}}}`, srv.URL, base64.StdEncoding.EncodeToString(hash[:])), 0o644)
	argv, env, err := installCommand(lockfile.Lock{Tool: lockfile.NPM, Dir: ".", Name: "package-lock.json", Packages: 1})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = p, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "npm_config_registry=" + srv.URL}
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Errorf("what is from git was installed:\n%s", out)
	} else if !bytes.Contains(out, []byte("git")) {
		t.Errorf("it failed for another reason: %v\n%s", err, out)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("what a repository calls git ran where the packages are fetched")
	}
}

// npmPackage packs files as in a registry.
func npmPackage(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	zipped := gzip.NewWriter(&b)
	w := tar.NewWriter(zipped)
	for name, text := range files {
		if err := w.WriteHeader(&tar.Header{Name: "package/" + name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
