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
	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/fault"
)

// 49: a history that ends before, or elsewhere than, the log knows is damage, and
// nothing is written to it.
func TestAttack49_AnotherHistoryIsNotTakenForWhole(t *testing.T) {
	d := openShell(t)
	d.byUser("one\n")
	first := d.checkpoint(contract.CheckpointInitial)
	d.byUser("two\n")
	d.checkpoint(contract.CheckpointManual)
	d.fatal(d.state.CaughtUp(t.Context(), d.log))
	branch := func(c consistency.Check) string { return filepath.Join(c.Dir, "workspace/.git/refs/heads/main") }
	for name, damage := range map[string]func(c consistency.Check) error{
		"an older history":              func(c consistency.Check) error { return os.WriteFile(branch(c), []byte(first+"\n"), 0o644) },
		"a history without its branch":  func(c consistency.Check) error { return os.Remove(branch(c)) },
		"a branch that names no commit": func(c consistency.Check) error { return os.WriteFile(branch(c), nil, 0o644) },
		"another computer's history": func(c consistency.Check) error {
			return os.WriteFile(branch(c), []byte(strings.Repeat("5", 40)+"\n"), 0o644)
		},
		"a workspace without a history":  func(c consistency.Check) error { return os.RemoveAll(filepath.Join(c.Dir, "workspace/.git")) },
		"a computer without a workspace": func(c consistency.Check) error { return os.RemoveAll(filepath.Join(c.Dir, "workspace")) },
		"":                               func(consistency.Check) error { return nil },
	} {
		dir, err := datadir.Open(t.TempDir())
		d.fatal(err)
		c := consistency.Check{CID: d.cid, Dir: dir.Computer(d.cid), State: d.state, Log: d.log, Keeper: new(boxes.Keeper)}
		d.fatal(errors.Join(os.CopyFS(filepath.Join(c.Dir, "workspace"), os.DirFS(filepath.Join(d.dir, "workspace"))), damage(c)))
		err = c.Run(t.Context())
		switch {
		case name == "" && err != nil:
			t.Errorf("the history as it is: %v", err)
		case name != "" && err == nil:
			t.Errorf("%s was taken for whole", name)
		case name != "" && (!fault.Is(err, fault.Damaged) || fault.HintOf(err) == "" || !strings.Contains(err.Error(), "workspace")):
			t.Errorf("%s: %v", name, err)
		}
		d.fatal(dir.Close())
	}
}
