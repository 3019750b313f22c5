package image_test

import (
	"os"
	"path/filepath"
	"testing"

	"choir.dev/choiros/internal/guest/image"
)

func TestPath(t *testing.T) {
	dir := t.TempDir()
	path, err := image.Path(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !image.Embedded() {
		if self, _ := os.Executable(); path != self {
			t.Fatalf("got %s, want this binary %s", path, self)
		}
		return
	}
	if filepath.Dir(path) != dir {
		t.Fatalf("%s is not in %s", path, dir)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// A damaged copy is replaced, not trusted.
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, good[:len(good)/2], 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := image.Path(dir); err != nil {
		t.Fatal(err)
	}
	if again, _ := os.ReadFile(path); string(again) != string(good) {
		t.Fatal("the damaged copy was kept")
	}
}
