package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// needless lists what docs/backup.md says a copy need not contain.
var needless = []string{"cache", "reserve", "runtime.json", "choir.lock", "logs", "computers/*/snapshots", "computers/*/boxes", "computers/*/removing", "computers/*/dependencies", "computers/*/builds",
	"computers/*/state.sqlite*", "computers/*/keeper.lock"}

// TestBackup does what docs/backup.md says: a copy of the data directory of a stopped choir, with
// or without what it need not contain, is complete and can be used in another place, and an earlier
// choir refuses a directory that a later one wrote.
func TestBackup(t *testing.T) {
	t.Parallel()
	dir := choirtest.Scratch(t)
	data := filepath.Join(dir, "data")
	in := choirtest.Start(t, choirtest.Options{Data: data})
	in.Must(t, "prompt", "--wait", `write "buy milk" to workspace/list.txt`)
	if r, err := in.RunInput(t.Context(), []byte("a secret value"), "secrets", "set", "DEPLOY"); err != nil || r.Code != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	archive := filepath.Join(dir, "computer.tar")
	in.Must(t, "export", archive)
	if out, err := exec.CommandContext(t.Context(), "tar", "-tf", archive).CombinedOutput(); err != nil || !strings.Contains(string(out), "workspace/list.txt") || !strings.Contains(string(out), "events") {
		t.Errorf("the archive: %v\n%s", err, out)
	}
	var before []view.Checkpoint
	in.JSON(t, &before, "checkpoints", "--limit", "0")
	in.Must(t, "stop", "--data", data)
	<-in.Done()

	whole, small := filepath.Join(dir, "elsewhere", "whole"), filepath.Join(dir, "elsewhere", "small")
	if err := os.MkdirAll(filepath.Dir(whole), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{whole, small} {
		if out, err := exec.CommandContext(t.Context(), "cp", "-a", data, to).CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
	}
	for _, part := range needless {
		found, err := filepath.Glob(filepath.Join(small, part))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			if err := os.RemoveAll(f); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, copied := range []string{whole, small} {
		if out, err := exec.CommandContext(t.Context(), choirtest.Binary(t), "doctor", "--data", copied).CombinedOutput(); err != nil || !strings.Contains(string(out), "are whole") {
			t.Errorf("doctor of %s: %v\n%s", copied, err, out)
		}
		there := choirtest.Start(t, choirtest.Options{Data: copied})
		if got := there.Must(t, "files", "cat", "workspace/list.txt"); strings.TrimSpace(got) != "buy milk" {
			t.Errorf("%s has %q", copied, got)
		}
		var again []view.Checkpoint
		if there.JSON(t, &again, "checkpoints", "--limit", "0"); len(again) < len(before) {
			t.Errorf("%s has %d checkpoints of %d", copied, len(again), len(before))
		}
		if got := there.Must(t, "secrets", "ls"); !strings.Contains(got, "DEPLOY") {
			t.Errorf("%s has the secrets %q", copied, got)
		}
		there.Must(t, "prompt", "--wait", `write "and bread" to workspace/more.txt`)
		there.Must(t, "undo")
		there.Must(t, "rebuild", "--check")
		there.Must(t, "stop", "--data", copied)
		<-there.Done()
	}

	// This directory was written by a later version.
	if err := os.WriteFile(filepath.Join(small, "version"), []byte("99\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), choirtest.Binary(t), "doctor", "--data", small).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "newer version") {
		t.Errorf("an earlier choir on later data: %v\n%s", err, out)
	}
}
