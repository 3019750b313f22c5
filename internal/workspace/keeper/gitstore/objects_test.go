package gitstore_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

const rootEnv = "CHOIR_TEST_OBJECTS"

// An object has its name when it is on disk, and not before, however many are
// written together: what a power cut leaves torn under a name no git packs, and
// what a killed keeper leaves there is taken for kept by who writes the same.
func TestObjectsAreOnDiskBeforeTheyHaveNames(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Fatal("this test needs strace: install it, for example with: apt-get install strace")
	}
	trace := filepath.Join(t.TempDir(), "trace")
	cmd := exec.CommandContext(t.Context(), strace, "-f", "-o", trace, "-e", "trace=link,linkat,syncfs", os.Args[0], "-test.run=^TestWriteManyChild$")
	cmd.Env = append(os.Environ(), rootEnv+"="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	var calls []byte // since the repository is there, each kind once in a row
	for _, m := range regexp.MustCompile(`(?m)^\d+ +(link|syncfs)[^=]*= 0$`).FindAllStringSubmatch(string(b), -1) {
		if n := len(calls); n == 0 || calls[n-1] != m[1][0] || m[1] == "syncfs" {
			calls = append(calls, m[1][0])
		}
	}
	if string(calls) != "ssls" { // the repository, the objects, their names
		t.Errorf("synced and named in the order %q:\n%s", calls, b)
	}
}

// TestWriteManyChild is what the test above watches.
func TestWriteManyChild(t *testing.T) {
	root := os.Getenv(rootEnv)
	if root == "" {
		t.Skip("runs in a process of its own")
	}
	s := gitstore.NewStore(gitstore.StoreOptions{Root: root, Git: "git", Limits: wire.Limits{}.WithDefaults(), Crash: func(string) {}})
	if _, err := s.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	var objects []gitstore.Object
	for n := range 2 * disk.SyncEachNew {
		objects = append(objects, gitstore.Object{Kind: "blob", Content: fmt.Append(nil, n)})
	}
	if _, err := s.Write(t.Context(), objects); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
