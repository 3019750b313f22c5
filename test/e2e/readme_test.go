package e2e_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/test/choirtest"
	"choir.dev/choiros/test/modelserver"
)

// TestREADME does what the README says, line by line, as a reader would in a shell: with a model
// that answers, a folder of the named name, and a checkpoint's id in place of ID. It also checks
// that the targets of make that the README names exist.
func TestREADME(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(choirtest.Root(), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	s := modelserver.New(modelserver.Script{Turns: turnsOf("director", "", modelserver.Turn{Repeat: true, Calls: report("done", "Done.").Calls})}).Start()
	t.Cleanup(s.Close)
	in := choirtest.Start(t, choirtest.Options{Env: []string{"ANTHROPIC_BASE_URL=" + s.URL(), "CHOIR_LOOPS_DIRECT_WORDS=0"}})
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "my-project"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "my-project", "README"), []byte("mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	lines, targets := 0, 0
	for _, m := range regexp.MustCompile(`(?m)^ {4}(.*)$`).FindAllStringSubmatch(string(page), -1) {
		line, _, _ := strings.Cut(m[1], "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		if target, ok := strings.CutPrefix(line, "make "); ok {
			targets++
			if out, err := exec.CommandContext(ctx, "make", "-C", choirtest.Root(), "--dry-run", target).CombinedOutput(); err != nil {
				t.Errorf("make %s: %v\n%s", target, err, out)
			}
			cancel()
			continue
		}
		lines++
		if strings.Contains(line, " ID") {
			var all []checkpoint
			in.JSON(t, &all, "checkpoints")
			line = strings.ReplaceAll(line, " ID", " "+all[len(all)-1].ID)
		}
		cmd := exec.CommandContext(ctx, "sh", "-c", line)
		cmd.Dir = dir
		cmd.Stdin = strings.NewReader(newKey())
		cmd.Env = []string{"PATH=" + filepath.Dir(choirtest.Binary(t)) + ":" + os.Getenv("PATH"), "HOME=" + dir, "CHOIR_URL=" + in.URL, "CHOIR_TOKEN=" + in.Token}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
		cancel()
	}
	if lines < 4 || targets < 2 {
		t.Errorf("%d lines and %d targets of the README were tried: they are not found any more", lines, targets)
	}
}
