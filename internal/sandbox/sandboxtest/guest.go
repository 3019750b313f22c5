package sandboxtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"choir.dev/choiros/internal/defence"
)

// binaries are built once for each test process, into one directory.
var binaries = struct {
	sync.Mutex
	dir  string
	made map[string]string
}{made: map[string]string{}}

// Binary builds pkg. CHOIR_TEST_BIN names a directory with binaries that were
// built before, for a user who can't build.
func Binary(t testing.TB, pkg string) string {
	t.Helper()
	if dir := os.Getenv("CHOIR_TEST_BIN"); dir != "" {
		return filepath.Join(dir, filepath.Base(pkg))
	}
	binaries.Lock()
	defer binaries.Unlock()
	if path := binaries.made[pkg]; path != "" {
		return path
	}
	if binaries.dir == "" {
		dir, err := os.MkdirTemp("", "choir-test-")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		binaries.dir = dir
	}
	path := filepath.Join(binaries.dir, filepath.Base(pkg))
	cmd := exec.Command("go", "build", "-tags="+defence.Tag, "-o", path, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
	binaries.made[pkg] = path
	return path
}

// Guest returns the path of the whole guest binary, cmd/choir-guest.
func Guest(t testing.TB) string {
	t.Helper()
	return Binary(t, "choir.dev/choiros/cmd/choir-guest")
}

// BareGuest returns the path of a guest binary without services.
func BareGuest(t testing.TB) string {
	t.Helper()
	return Binary(t, "choir.dev/choiros/internal/sandbox/sandboxtest/bareguest")
}

// BadGuest returns the path of a guest that attacks its host in the way that
// BoxSpec.Env's WAY names.
func BadGuest(t testing.TB) string {
	t.Helper()
	return Binary(t, "choir.dev/choiros/internal/sandbox/sandboxtest/badguest")
}

// Probe returns the path of the probe binary, which tries what boxes refuse.
func Probe(t testing.TB) string {
	t.Helper()
	return Binary(t, "choir.dev/choiros/internal/sandbox/sandboxtest/probe")
}

// Main runs a package's tests and removes what was built; call it from TestMain.
func Main(m *testing.M) {
	code := m.Run()
	binaries.Lock()
	if binaries.dir != "" {
		_ = os.RemoveAll(binaries.dir)
	}
	os.Exit(code)
}
