package dispatch_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMain has the checks of these tests share a Python that keeps the byte code of its library.
// Otherwise each check compiles it anew, which took most of the time here and is tested where
// checks are. The program is the one that python3 runs in the end, because the wrapper of a version
// manager starts forty processes first.
func TestMain(m *testing.M) {
	code, err := withPython(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(code)
}

func withPython(run func() int) (code int, err error) {
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		return 0, fmt.Errorf("these tests need python3: %w", err)
	}
	dir, err := os.MkdirTemp("", "python")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	script := fmt.Sprintf("#!/bin/sh\nunset PYTHONDONTWRITEBYTECODE\nexec '%s' -X pycache_prefix='%s' \"$@\"\n", strings.TrimSpace(string(out)), filepath.Join(dir, "bytecode"))
	if err := os.WriteFile(filepath.Join(dir, "python3"), []byte(script), 0o755); err != nil {
		return 0, err
	}
	if err := os.Setenv("PATH", dir+":"+os.Getenv("PATH")); err != nil {
		return 0, err
	}
	return run(), nil
}
