package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestALogWithNothingInItSaysSo shows that logs without entries print nothing on standard output,
// and the reason on standard error.
func TestALogWithNothingInItSaysSo(t *testing.T) {
	dir := t.TempDir()
	said, err := os.Create(filepath.Join(dir, "said"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	stderr := os.Stderr
	os.Stderr = said
	code := commandLine().Execute([]string{"logs", "--data", dir})
	os.Stderr = stderr
	b, err := os.ReadFile(said.Name())
	if err != nil || code != 0 || !strings.Contains(string(b), "nothing is logged in "+filepath.Join(dir, logDir)) {
		t.Errorf("code %d, %q, %v", code, b, err)
	}
}
