package main_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// mostBeforeMain is how many bytes a package of the guest may allocate before main. The table
// of event types takes 25,000; an expression of one line that is compiled then took 47,000, and
// with it a twentieth of a guest's start.
const mostBeforeMain = 30_000

// TestStagesBeginBeforeWhatGuestsUse: a box starts this program as its guest and, where trees are
// built, as the launcher. What is initialised before either of them begins slows each start.
// Packages are counted rather than time, which depends on the load.
func TestStagesBeginBeforeWhatGuestsUse(t *testing.T) {
	t.Parallel()
	bin := filepath.Join(t.TempDir(), "guest")
	if out, err := exec.Command("go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	initialised := func(args ...string) (names, sizes []string) {
		t.Helper()
		cmd := exec.Command(bin, args...)
		cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
		said := stderrOf(cmd)
		for line := range strings.Lines(said) {
			// init PACKAGE @0.1 ms, 0.02 ms clock, 1234 bytes, 5 allocs
			if f := strings.Fields(line); len(f) == 11 && f[0] == "init" {
				names, sizes = append(names, f[1]), append(sizes, f[7])
			}
		}
		return names, sizes
	}
	all, sizes := initialised()
	if len(all) < 80 {
		t.Fatalf("%d packages tell that they are initialised: the trace reads otherwise by now", len(all))
	}
	if at := slices.Index(all, "choir.dev/choiros/internal/guest/early"); at < 0 || at > 24 {
		t.Errorf("a guest is sealed behind %d packages: %v", at, all[:max(at, 0)])
	}
	for i, size := range sizes {
		n, err := strconv.Atoi(size)
		if err != nil {
			t.Fatalf("%s makes %q bytes: the trace reads otherwise by now", all[i], size)
		}
		if n > mostBeforeMain {
			t.Errorf("%s makes %d bytes before main, at most %d may be", all[i], n, mostBeforeMain)
		}
	}
	launcher, _ := initialised("launch", "no-number", "x")
	for _, name := range []string{"choir.dev/choiros/contract", "net/http", "crypto/tls"} {
		if !slices.Contains(all, name) || slices.Contains(launcher, name) {
			t.Errorf("a launcher begins behind %s", name)
		}
	}
}

// stderrOf returns what a program writes to standard error, whether or not it fails.
func stderrOf(cmd *exec.Cmd) string {
	var said bytes.Buffer
	cmd.Stderr = &said
	_ = cmd.Run() // each of these calls is made to fail
	return said.String()
}
