package computer

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/fault"
)

// Only what is wrong with the history itself is a reason to give it up.
func TestOnlyAHurtHistoryIsGivenUp(t *testing.T) {
	damaged := func(err error) error { return fault.Wrap("wake", fault.New("", fault.Damaged, "Recover it.", err)) }
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"an event that is missing": {damaged(errors.New("event 5 is missing")), false},
		"the history":              {errors.Join(damaged(ofHistory{errors.New("it ends at nothing")}), errors.New("it did not close")), true},
		"nothing":                  {nil, false},
	} {
		if got := HurtHistory(c.err); got != c.want {
			t.Errorf("%s: the histories %v are given up", name, got)
		}
	}
}

// What was not looked at, for want of open files say, is no damage at all.
func TestWhatWasNotLookedAtIsNoDamage(t *testing.T) {
	cid := contract.NewCID()
	dir, err := datadir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close() // only gives the lock back
	c := &Computer{machine: &Machine{Dir: dir}, cid: cid, logger: slog.New(slog.DiscardHandler)}
	if err := os.MkdirAll(c.path("workspace", ".git", "refs", "heads"), 0o700); err != nil {
		t.Fatal(err)
	}
	var old, few unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	few = old
	few.Cur = 0
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	_, err = c.branch()
	if rerr := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); rerr != nil {
		t.Fatal(rerr)
	}
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(fault.HintOf(err), "ulimit") {
		t.Errorf("with no files to open the branch is %v (%s)", err, fault.CodeOf(err))
	}
}

// 49: a history that ends before, or elsewhere than, the log knows is damage, and
// nothing is written to it.
func TestAttack49_AnotherHistoryIsNotTakenForWhole(t *testing.T) {
	d := openShell(t)
	d.byUser("one\n")
	first := d.checkpoint(contract.CheckpointInitial)
	d.byUser("two\n")
	d.checkpoint(contract.CheckpointManual)
	d.fatal(d.state.CaughtUp(t.Context(), d.log))
	branch := func(c *Computer) string { return c.path("workspace", ".git", "refs", "heads", "main") }
	for name, damage := range map[string]func(c *Computer) error{
		"an older history":              func(c *Computer) error { return os.WriteFile(branch(c), []byte(first+"\n"), 0o644) },
		"a history without its branch":  func(c *Computer) error { return os.Remove(branch(c)) },
		"a branch that names no commit": func(c *Computer) error { return os.WriteFile(branch(c), nil, 0o644) },
		"another computer's history": func(c *Computer) error {
			return os.WriteFile(branch(c), []byte(strings.Repeat("5", 40)+"\n"), 0o644)
		},
		"a workspace without a history":  func(c *Computer) error { return os.RemoveAll(c.path("workspace", ".git")) },
		"a computer without a workspace": func(c *Computer) error { return os.RemoveAll(c.path("workspace")) },
		"":                               func(*Computer) error { return nil },
	} {
		dir, err := datadir.Open(t.TempDir())
		d.fatal(err)
		c := &Computer{machine: &Machine{Dir: dir}, cid: d.cid, state: d.state, log: d.log, logger: d.logger}
		d.fatal(errors.Join(os.CopyFS(c.path("workspace"), os.DirFS(filepath.Join(d.dir, "workspace"))), damage(c)))
		err = c.compareHistory(t.Context())
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
