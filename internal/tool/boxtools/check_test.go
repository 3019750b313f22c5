package boxtools_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"choir.dev/choiros/internal/associate/verify"
	"choir.dev/choiros/internal/tool/boxtools"
)

// TestACheckRunsWithWhatTheBaseJudgesBy shows that the files that judge a change are restored,
// whatever the change left in their places, and that nothing outside the tree is touched by that.
func TestACheckRunsWithWhatTheBaseJudgesBy(t *testing.T) {
	base, tree, outside := t.TempDir(), t.TempDir(), t.TempDir()
	lay := func(dir, name, text string, mode os.FileMode) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to, dir, name string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	lay(base, "p/edited", "base", 0o644)
	lay(base, "p/deleted", "base", 0o755)
	lay(base, "p/dir/in", "base", 0o644)
	lay(base, "p/linked/in", "base", 0o644)
	link("edited", filepath.Join(base, "p"), "was-a-link")
	lay(tree, "p/edited", "task", 0o644)
	lay(tree, "p/added", "task", 0o644)
	lay(tree, "p/dir", "a file where a folder was", 0o644)
	lay(tree, "p/was-a-link", "task", 0o644)
	lay(tree, "p/kept", "task", 0o644)
	lay(base, "p/lib.rs", "old code\n#[cfg(test)]\nold tests\n", 0o644)
	lay(tree, "p/lib.rs", "new code\n#[cfg(test)]\nnew tests\n", 0o600)
	lay(outside, "in", "outside", 0o644)
	link(outside, filepath.Join(tree, "p"), "linked")

	b, err := boxtools.New(boxtools.Options{Root: tree, Base: base, Env: []string{"PATH=" + os.Getenv("PATH")}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	args, err := json.Marshal(map[string]any{
		"argv": []string{"sh", "-c", `cat edited deleted dir/in linked/in was-a-link kept; test -x deleted && test -L was-a-link && test ! -e added && test ! -L linked && grep -q "new code" lib.rs && grep -q "old tests" lib.rs && ! grep -q "new tests" lib.rs`},
		"cwd":  "p", "runner": verify.ExitCode,
		"restore": []string{"p/edited", "p/added", "p/deleted", "p/dir/in", "p/linked/in", "p/was-a-link", "p/never/was", "p/lib.rs"},
	})
	if err != nil {
		t.Fatal(err)
	}
	res, err := b.Call(t.Context(), "check", args, "")
	if err != nil || !res.OK || res.Command.ExitCode != 0 || res.Command.Stdout != "basebasebasebasebasetask" {
		t.Fatalf("%+v %v", res, err)
	}
	if got, err := os.ReadFile(filepath.Join(outside, "in")); err != nil || string(got) != "outside" {
		t.Errorf("what a link led to is now %q, %v", got, err)
	}
	if got, err := os.ReadFile(filepath.Join(base, "p/edited")); err != nil || string(got) != "base" {
		t.Errorf("the base is now %q, %v", got, err)
	}
	for _, bad := range []string{"../x", "/etc/passwd", ".git/config", "."} {
		args, err := json.Marshal(map[string]any{"argv": []string{"true"}, "runner": "exit code", "cwd": ".", "restore": []string{bad}})
		if err != nil {
			t.Fatal(err)
		}
		if res, err := b.Call(t.Context(), "check", args, ""); err != nil || res.OK {
			t.Errorf("%s was put back: %+v %v", bad, res, err)
		}
	}
}

// TestACheckTellsOfManyTests shows that the names of all kept tests are reported, however long the
// list is, because a suite must not fail for having many tests. Only what a person reads of it is
// cut.
func TestACheckTellsOfManyTests(t *testing.T) {
	tree := t.TempDir()
	const tests = 9000
	script := fmt.Sprintf(`i=0; while [ $i -lt %d ]; do i=$((i+1)); echo '{"Action":"output","Package":"example.test/a/package/with/a/name","Output":"--- PASS: TestOfSomething\\n"}'
		echo '{"Action":"pass","Package":"example.test/a/package/with/a/name","Test":"TestOfSomethingWithALongNameNumber'$i'"}'; done`, tests)
	args, err := json.Marshal(map[string]any{"argv": []string{"sh", "-c", script}, "cwd": ".", "runner": verify.GoTest})
	if err != nil {
		t.Fatal(err)
	}
	b, err := boxtools.New(boxtools.Options{Root: tree, Env: []string{"PATH=" + os.Getenv("PATH")}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	res, err := b.Call(t.Context(), boxtools.Check, args, "")
	if err != nil || !res.OK || res.Command.ExitCode != 0 {
		t.Fatalf("%v %+v", err, res.Command)
	}
	var count verify.Count
	if err := json.Unmarshal(res.Data, &count); err != nil || count.Check() != nil || count.Passed != tests || len(count.Tests) != tests {
		t.Errorf("%d passed, %d are told, %v", count.Passed, len(count.Tests), err)
	}
	if len(res.Output) > boxtools.MaxOutput {
		t.Errorf("a person is to read %d bytes", len(res.Output))
	}
}
