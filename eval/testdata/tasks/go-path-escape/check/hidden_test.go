package files

import (
	"os"
	"path/filepath"
	"testing"
)

func TestHiddenOpen(t *testing.T) {
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	for name, text := range map[string]string{"root/in/a.txt": "a", "secret.txt": "s", "root2/b.txt": "b"} {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	os.Symlink("../secret.txt", filepath.Join(root, "link"))
	os.Symlink("..", filepath.Join(root, "up"))
	os.Symlink("in/a.txt", filepath.Join(root, "fine"))
	for name, ok := range map[string]bool{"in/a.txt": true, "./in/../in/a.txt": true, "fine": true, "../secret.txt": false, "....//secret.txt": false, "link": false, "up/secret.txt": false,
		filepath.Join(dir, "secret.txt"): false, "../root2/b.txt": false, "none": false} {
		f, err := Open(root, name)
		if (err == nil) != ok {
			t.Errorf("Open(%q): %v", name, err)
		}
		if f != nil {
			f.Close()
		}
	}
}
