package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestGeneratedFileIsFresh(t *testing.T) {
	const root = "../../.."
	want, err := generate(root)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(root, output)); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is stale; run go generate ./internal/rpc (%v)", output, err)
	}
}
