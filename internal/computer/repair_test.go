package computer

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer/boxes"
	"choir.dev/choiros/internal/computer/consistency"
	"choir.dev/choiros/internal/fault"
)

// TestAttack49_AnotherHistoryIsNotTakenForWhole shows that a history that ends before the place
// that the log knows, or elsewhere, is damage, and that nothing is written to it.
func TestAttack49_AnotherHistoryIsNotTakenForWhole(t *testing.T) {
	d := openShell(t)
	d.byUser("one\n")
	first := d.checkpoint(contract.CheckpointInitial)
	d.byUser("two\n")
	d.checkpoint(contract.CheckpointManual)
	d.fatal(d.state.CaughtUp(t.Context(), d.log))
	branch := func(dir string) string { return filepath.Join(dir, "workspace/.git/refs/heads/main") }
	for name, damage := range map[string]func(dir string) error{
		"an older history":              func(dir string) error { return os.WriteFile(branch(dir), []byte(first+"\n"), 0o644) },
		"a history without its branch":  func(dir string) error { return os.Remove(branch(dir)) },
		"a branch that names no commit": func(dir string) error { return os.WriteFile(branch(dir), nil, 0o644) },
		"another computer's history": func(dir string) error {
			return os.WriteFile(branch(dir), []byte(strings.Repeat("5", 40)+"\n"), 0o644)
		},
		"a workspace without a history": func(dir string) error { return os.RemoveAll(filepath.Join(dir, "workspace/.git")) },
		"a link to another history": func(dir string) error {
			git := filepath.Join(dir, "workspace/.git")
			return errors.Join(os.Rename(git, filepath.Join(dir, "elsewhere")), os.Symlink("../elsewhere", git))
		},
		"a computer without a workspace": func(dir string) error { return os.RemoveAll(filepath.Join(dir, "workspace")) },
		"":                               func(string) error { return nil },
	} {
		dir := t.TempDir()
		d.fatal(errors.Join(os.CopyFS(filepath.Join(dir, "workspace"), os.DirFS(filepath.Join(d.dir, "workspace"))), damage(dir)))
		on := openVolumes(t, dir)
		c := consistency.Check{CID: d.cid, Volumes: on.v, State: d.state, Log: d.log, Keeper: new(boxes.Keeper)}
		err := c.Run(t.Context())
		switch {
		case name == "" && err != nil:
			t.Errorf("the history as it is: %v", err)
		case name != "" && err == nil:
			t.Errorf("%s was taken for whole", name)
		case name != "" && (!fault.Is(err, fault.Damaged) || fault.HintOf(err) == "" || !strings.Contains(err.Error(), "workspace")):
			t.Errorf("%s: %v", name, err)
		}
		d.fatal(on.v.Close())
	}
}
