package recovery_test

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/identity"
	"choir.dev/choiros/internal/recovery"
)

// Damage to the file of accounts is described with the same words by the inspection before
// a start, by the opening, and by an inspection while it is open.
func TestDamagedAccountsAreSaidInOneWay(t *testing.T) {
	dir := fill(t)
	file := dir.Path("control.sqlite")
	store, err := identity.Open(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Owner(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(dir.Complete(), dir.Mark()); err != nil { // what is there is written down
		t.Fatal(err)
	}
	if store, err = identity.Open(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i := range min(len(b), 16) { // it is no longer a database
		b[i] ^= 0xff
	}
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	report := inspect(t, dir)
	if len(report.Accounts) != 1 || report.Accounts[0].File != "control.sqlite" {
		t.Fatalf("found %+v", report.Accounts)
	}
	want := fault.Text(recovery.Error([]bus.Damage{report.Accounts[0]}))
	again := store.QuickCheck(t.Context())
	_, opened := identity.Open(t.Context(), file)
	for name, err := range map[string]error{"looked at again": again, "opened": opened} {
		if got := fault.Text(err); got != want || !fault.Is(err, fault.Damaged) || fault.HintOf(err) != identity.HintDamaged {
			t.Errorf("%s: %q (%v); before a start: %q", name, got, err, want)
		}
	}
}

// TestOlderAccountsGoOnOnceSomebodySaysSo: accounts that are not the newest are reported and left
// alone; recovery keeps a copy of them aside, says what to look at, and goes on with them.
func TestOlderAccountsGoOnOnceSomebodySaysSo(t *testing.T) {
	dir := fill(t)
	file := dir.Path("control.sqlite")
	change := func() (account string) {
		t.Helper()
		store, err := identity.Open(t.Context(), file)
		if err != nil {
			t.Fatal(err)
		}
		u, err := store.Owner(t.Context())
		if err == nil {
			_, _, err = store.NewToken(t.Context(), u.ID, "a token", identity.TokenScope{})
		}
		if err = errors.Join(err, store.Close()); err != nil {
			t.Fatal(err)
		}
		return u.ID
	}
	was := change()
	if err := errors.Join(dir.Complete(), dir.Mark()); err != nil {
		t.Fatal(err)
	}
	older, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	change()
	if report := inspect(t, dir); len(report.Accounts) != 0 || report.AccountsRefusal() != nil {
		t.Fatalf("found %+v in whole ones", report.Accounts)
	}
	if err := os.WriteFile(file, older, 0o600); err != nil {
		t.Fatal(err)
	}
	report := inspect(t, dir)
	if err := report.AccountsRefusal(); !fault.Is(err, fault.Damaged) || fault.HintOf(err) != identity.HintOlder || !strings.Contains(err.Error(), "an older copy") {
		t.Fatalf("found %+v: %v (%s)", report.Accounts, err, fault.HintOf(err))
	}
	result, err := recovery.Recover(t.Context(), recovery.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if kept, err := os.ReadFile(dir.Path(result.Aside, "control.sqlite")); err != nil || !bytes.Equal(kept, older) || !strings.Contains(strings.Join(result.Shared, ""), "it goes on as it is") {
		t.Errorf("aside: %v; said: %q", err, result.Shared)
	}
	if report := inspect(t, dir); len(report.Accounts) != 0 {
		t.Errorf("after that: %+v", report.Accounts)
	}
	if now := change(); now != was {
		t.Errorf("the owner is %s; was %s", now, was)
	}
}
