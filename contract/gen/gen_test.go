package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestGeneratedFilesAreFresh(t *testing.T) {
	const root = "../.."
	files, err := generate(root)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range files {
		got, err := os.ReadFile(filepath.Join(root, path))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is stale; run go generate ./contract (%v)", path, err)
		}
	}
	old, err := published(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range old {
		if _, ok := files[path]; !ok {
			t.Errorf("%s is no longer generated; run go generate ./contract", path)
		}
	}
}
