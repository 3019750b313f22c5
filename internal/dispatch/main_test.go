package dispatch_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMain has the checks of these tests use the Python that python3 is in the end:
// what a version manager puts in its place is a script that starts forty processes
// first, which took more time than all else here.
func TestMain(m *testing.M) {
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		fmt.Fprintln(os.Stderr, "these tests need python3:", err)
		os.Exit(1)
	}
	if err := os.Setenv("PATH", filepath.Dir(strings.TrimSpace(string(out)))+":"+os.Getenv("PATH")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
