//go:build !defenceswitches

package attack_test

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"choir.dev/choiros/console"
	"choir.dev/choiros/desktop"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/test/choirtest"
)

// TestPagesHaveNoSwitches shows that neither the desktop, in source and as it is built, nor the
// console contains switches. To switch a defence off there, the suite takes its text out of the
// files, so the text must be in them; the edited text is the control.
func TestPagesHaveNoSwitches(t *testing.T) {
	traces := []string{mark, "DEFENCES_OFF", "defences-off", "defenceswitches"}
	names := slices.Concat(slices.Collect(maps.Keys(scripts)), slices.Collect(maps.Keys(sources)))
	for _, n := range names {
		traces = append(traces, string(n))
	}
	build, _ := desktop.Build()
	looked := 0
	for what, files := range map[string]fs.FS{"the desktop's source": desktop.Source(), "the desktop's build": build, "the console": console.Files()} {
		err := fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			b, err := fs.ReadFile(files, path)
			for _, trace := range traces {
				if bytes.Contains(b, []byte(trace)) {
					t.Errorf("%s: %s holds %q", what, path, trace)
				}
			}
			looked++
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if looked < 100 {
		t.Errorf("only %d files were looked through", looked)
	}
	for of, all := range map[fs.FS]map[defence.Name]script{desktop.Source(): sources, console.Files(): scripts} {
		for name, s := range all {
			b, err := fs.ReadFile(of, s.file)
			if err != nil {
				t.Fatal(err)
			}
			if without := s.in(t, string(b)); without == string(b) {
				t.Errorf("%s: without it, %s is what it was", name, s.file)
			}
		}
	}
	if text := edits(t, outboxFile); !strings.Contains(text, mark) {
		t.Errorf("the edited source does not hold %q: the search for it proves nothing", mark)
	}
}

// TestReleaseHasNoSwitches builds the released program and its guest, and shows that they contain
// nothing of the switches. The build with switches is the control.
func TestReleaseHasNoSwitches(t *testing.T) {
	if defence.Tag != "" || defence.Off(defence.EgressRules) || len(defence.BoxArgs()) != 0 {
		t.Fatal("an ordinary build has switches")
	}
	// These are parts that the switches need: the variable, the file, the function.
	traces := []string{"DEFENCES_OFF_FILE", "/defences-off", "internal/defence.Off", "egress.hidden-name"}
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
