package gitstore_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/objects"
	"choir.dev/choiros/internal/workspace/keeper/wire"
	"choir.dev/choiros/test/choirtest"
)

const rootEnv = "CHOIR_TEST_OBJECTS"

// TestObjectsAreOnDiskBeforeTheyHaveNames shows that an object gets its name only when it is on
// disk, however many are written together. Git would not replace what a power cut left torn under
// an object's name, and whoever writes the same object again would take what a killed keeper left
// there for stored.
func TestObjectsAreOnDiskBeforeTheyHaveNames(t *testing.T) {
	choirtest.NotInBox(t, "tracing of system calls")
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Fatal("this test needs strace: install it, for example with: apt-get install strace")
	}
	trace := filepath.Join(t.TempDir(), "trace")
	cmd := exec.CommandContext(t.Context(), strace, "-f", "-y", "-o", trace, "-e", "trace=link,linkat,pwrite64,fsync", os.Args[0], "-test.run=^TestWriteManyChild$")
	cmd.Env = append(os.Environ(), rootEnv+"="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	var calls []byte // each kind once in a row
	for _, m := range regexp.MustCompile(`(?m)^\d+ +(?:(l)ink(?:at)?\(|(p)write64\(\d+<[^>]*/journal>|f(s)ync\(\d+<[^>]*/journal>)`).FindAllStringSubmatch(string(b), -1) {
		call := (m[1] + m[2] + m[3])[0]
		if n := len(calls); n == 0 || calls[n-1] != call || call == 's' {
			calls = append(calls, call)
		}
	}
	if string(calls) != "psl"+"ps" { // the entry is written and synced, then the names are made, and the journal begins anew
		t.Errorf("written, synced and named in the order %q:\n%s", calls, b)
	}
}

// TestWriteManyChild is the process that the test above follows.
func TestWriteManyChild(t *testing.T) {
	root := os.Getenv(rootEnv)
	if root == "" {
		t.Skip("runs in a process of its own")
	}
	s := gitstore.NewStore(gitstore.StoreOptions{Root: root, Git: "git", Limits: wire.Limits{}.WithDefaults(), Crash: func(string) {}})
	if _, err := s.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	var many []objects.Object
	for n := range 40 {
		many = append(many, objects.Object{Kind: "blob", Content: fmt.Append(nil, n)})
	}
	if _, err := s.Write(t.Context(), many); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
