package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestHiddenLoad(t *testing.T) {
	if _, err := Load(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	p := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(p, []byte("# c\n\na=1\noops\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(p)
	var s *SyntaxError
	if !errors.As(err, &s) || s.File != p || s.Line != 4 || !strings.Contains(err.Error(), p) || !strings.Contains(err.Error(), "4") {
		t.Errorf("got %v", err)
	}
}
