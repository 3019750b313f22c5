//go:build !defenceswitches

package attack_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/test/choirtest"
)

// TestReleaseHasNoSwitches builds what people run, and its guest, and looks for
// anything of the switches in them. The build that has them is the control.
func TestReleaseHasNoSwitches(t *testing.T) {
	if defence.Tag != "" || defence.Off(defence.EgressRules) || len(defence.BoxArgs()) != 0 {
		t.Fatal("an ordinary build has switches")
	}
	// What the switches can't be without: the variable, the file, the function.
	traces := []string{"CHOIR_DEFENCES_OFF", "/defences-off", "internal/defence.Off", "egress.hidden-name"}
	build := func(tag, pkg string) []byte {
		t.Helper()
		path := filepath.Join(t.TempDir(), "built")
		cmd := exec.Command("go", "build", "-tags="+tag, "-o", path, pkg)
		cmd.Dir = choirtest.Root()
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", pkg, err, out)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, tag := range []string{"embedguest", ""} {
		release := build(tag, "./cmd/choir")
		for _, trace := range traces {
			if bytes.Contains(release, []byte(trace)) {
				t.Errorf("choir, built with %q, holds %q", tag, trace)
			}
		}
	}
	guest := build("", "./cmd/choir-guest")
	for _, trace := range traces {
		if bytes.Contains(guest, []byte(trace)) {
			t.Errorf("the guest holds %q", trace)
		}
	}
	switched := build("defenceswitches", "./cmd/choir")
	for _, trace := range traces {
		if !bytes.Contains(switched, []byte(trace)) {
			t.Errorf("the control does not hold %q: the search for it proves nothing", trace)
		}
	}
}
