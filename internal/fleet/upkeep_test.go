package fleet

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/identity"
	"choir.dev/choiros/internal/supervise"
	"choir.dev/choiros/test/choirtest"
)

// TestTheMachineIsLookedAfter shows that when the file of accounts is damaged while it is open, or
// the disk fills up, every computer's user is told since when and what to do, and that the notice
// goes away when the cause does.
func TestTheMachineIsLookedAfter(t *testing.T) {
	dir, err := datadir.Open(filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	made, err := identity.Open(t.Context(), dir.Path("control.sqlite"))
	if err != nil {
		t.Fatal(err)
	}
	if err := made.Close(); err != nil { // this moves everything into the one file
		t.Fatal(err)
	}
	accounts, err := identity.Open(t.Context(), dir.Path("control.sqlite"))
	if err != nil {
		t.Fatal(err)
	}
	defer accounts.Close()
	var said bytes.Buffer
	fl := &Fleet{Options: Options{Dir: dir, Spending: accounts, Logger: slog.New(slog.NewTextHandler(&said, nil))}}
	fl.ctx, fl.cancel = context.WithCancel(t.Context())
	if f := fl.checkAccounts(t.Context()); f.Status != "ok" {
		t.Errorf("a whole file: %+v", f)
	}
	name := dir.Path("control.sqlite")
	whole, err := os.ReadFile(name)
	if err != nil || len(whole) < 3*4096 {
		t.Fatalf("%d bytes, %v", len(whole), err)
	}
	broken := bytes.Clone(whole)
	for i := 4096; i < len(broken); i++ {
		broken[i] ^= 0xff
	}
	if err := os.WriteFile(name, broken, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		f := fl.checkAccounts(t.Context())
		if f.Status != "fail" || !strings.HasPrefix(f.Detail, "control.sqlite: ") || !strings.Contains(f.Detail, ", since 2") || !strings.Contains(f.Hint, "choir recover") {
			t.Errorf("a damaged file: %+v", f)
		}
	}
	if got := strings.Join(fl.notices(), "; "); !strings.Contains(got, "control.sqlite: ") || !strings.Contains(got, "choir recover") {
		t.Errorf("the user is told %q", got)
	}
	if n := strings.Count(said.String(), "level=WARN"); n != 1 {
		t.Errorf("the program's log says it %d times:\n%s", n, said.String())
	}
	if err := os.WriteFile(name, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if f := fl.checkAccounts(t.Context()); f.Status != "ok" || len(fl.notices()) > 0 {
		t.Errorf("a whole file again: %+v; %q", f, fl.notices())
	}

	f := fl.noticed(&fl.upkeep.space, spaceLeft(datadir.Room{Bytes: 100 << 20, Files: 1 << 20}))
	if got := strings.Join(fl.notices(), "; "); f.Status != "warn" || !strings.Contains(got, "100 MB are free for the data directory, since 2") || !strings.Contains(got, "Free some on") {
		t.Errorf("a full disk: %+v; %q", f, got)
	}
	if f := fl.noticed(&fl.upkeep.space, spaceLeft(datadir.Room{Bytes: 100 << 30, Files: 1 << 20})); f.Status != "ok" || len(fl.notices()) > 0 {
		t.Errorf("a disk with space: %+v; %q", f, fl.notices())
	}

	// A disk can have space left and no room for another file.
	few := datadir.Room{Bytes: 100 << 30, Files: 12}
	if f := spaceLeft(few); f.Status != "warn" || !strings.Contains(f.Detail, "only 12 files can be made") || f.Hint == "" {
		t.Errorf("a disk with room for few files: %+v", f)
	}
	if err := errors.Join(os.MkdirAll(dir.Path("cache", "x"), 0o700), os.WriteFile(dir.Path("cache", "x", "y"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if f, err := Space(t.Context(), dir.Path(), few); err != nil || f.Status != "warn" || !strings.Contains(f.Detail, "cache 0 MB in 2 files") {
		t.Errorf("what takes the files: %+v, %v", f, err)
	}
	if room, err := dir.Free(); err != nil || room.Bytes <= 0 || room.Files <= 0 {
		t.Errorf("free: %+v, %v", room, err)
	}

	// The machine is checked without a request, and the checks end with the fleet.
	fl.parts = supervise.New(t.Context(), supervise.Options{Name: "machine"})
	fl.ownUpkeep()
	choirtest.Eventually(t, 20*time.Second, "somebody looks at the space", func() bool {
		fl.upkeep.mu.Lock()
		defer fl.upkeep.mu.Unlock()
		return fl.upkeep.space.Status != ""
	})
	fl.cancel()
	fl.parts.Close()
}
