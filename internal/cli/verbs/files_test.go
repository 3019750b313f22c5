package verbs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAFileGoesIntoADirectoryUnderItsOwnName shows that get names the file that it writes as cp
// does.
func TestAFileGoesIntoADirectoryUnderItsOwnName(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ local, want string }{
		{"", "a.txt"},
		{dir, filepath.Join(dir, "a.txt")},
		{dir + "/", filepath.Join(dir, "a.txt")},
		{file, file},
		{filepath.Join(dir, "new"), filepath.Join(dir, "new")},
	} {
		args := []string{"workspace/a.txt"}
		if x.local != "" {
			args = append(args, x.local)
		}
		if got, err := localName(args); err != nil || got != x.want {
			t.Errorf("to %q: %q, %v; want %q", x.local, got, err, x.want)
		}
	}
	if got, err := localName([]string{"workspace/a.txt", dir + "/none/"}); err == nil {
		t.Errorf("into a directory that is not there: %q", got)
	}
}

// TestADirectoryIsNotPut shows that put refuses a directory, names the verb to use instead, and
// sends nothing.
func TestADirectoryIsNotPut(t *testing.T) {
	err := filesPut().Asks(t.Context(), nil, nil, []string{t.TempDir(), "workspace/p"})
	if err == nil || !strings.Contains(err.Error(), "is a directory; choir add") {
		t.Errorf("%v", err)
	}
}
