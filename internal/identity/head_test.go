package identity_test

import (
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/identity"
)

// copyAccounts copies the file of accounts, with its WAL, and its head if wanted.
func copyAccounts(t *testing.T, from, to string, head bool) {
	t.Helper()
	names := []string{"control.sqlite", "control.sqlite-wal"}
	if head {
		names = append(names, identity.HeadFile)
	}
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(from, name))
		if errors.Is(err, fs.ErrNotExist) {
			err = os.RemoveAll(filepath.Join(to, name))
		} else if err == nil {
			err = os.WriteFile(filepath.Join(to, name), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// refusesOlder checks that looking at the file and opening it are refused, with the reason, and
// that looking, which comes first in a start, changes nothing of it.
func refusesOlder(t *testing.T, dir, want string) {
	t.Helper()
	file := filepath.Join(dir, "control.sqlite")
	was, again := read(t, file), t.TempDir()
	copyAccounts(t, dir, again, true)
	for name, err := range map[string]error{"look": identity.Check(t.Context(), file), "open": opens(t, filepath.Join(again, "control.sqlite"))} {
		var older *identity.OlderError
		if !fault.Is(err, fault.Damaged) || !errors.As(err, &older) || !strings.Contains(err.Error(), want) || fault.HintOf(err) != identity.HintOlder {
			t.Errorf("%s: %v (%s); want %q", name, err, fault.HintOf(err), want)
		}
	}
	if read(t, file) != was {
		t.Error("what was refused was changed")
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func opens(t *testing.T, file string) error {
	t.Helper()
	s, err := identity.Open(t.Context(), file)
	if err != nil {
		return err
	}
	return s.Close()
}

// TestAnOlderFileOfAccountsIsDamage: a copy of the accounts from before the last change, and one
// whose WAL is lost or cut off, are told from the newest, and so is a head that is gone or
// damaged. Nothing is changed until somebody accepts the accounts as they are, which ends every
// session.
func TestAnOlderFileOfAccountsIsDamage(t *testing.T) {
	dir, before, during := t.TempDir(), t.TempDir(), t.TempDir()
	file := filepath.Join(dir, "control.sqlite")
	s, err := identity.Open(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	u := owner(t, s)
	if _, _, err := s.Claim(t.Context(), link(t, s, u.ID)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	copyAccounts(t, dir, before, true)
	if s, err = identity.Open(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.NewToken(t.Context(), u.ID, "one", identity.TokenScope{}); err != nil {
		t.Fatal(err)
	}
	if ids, err := s.RevokeAll(t.Context(), u.ID); err != nil || len(ids) != 1 {
		t.Fatal(ids, err)
	}
	copyAccounts(t, dir, during, true) // as a kill leaves it: the newest changes are in the WAL
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for name, at := range map[string]string{"the newest": dir, "an older one with its own head": before, "a killed one": during} {
		if err := errors.Join(identity.Check(t.Context(), filepath.Join(at, "control.sqlite")), opens(t, filepath.Join(at, "control.sqlite"))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}

	copyAccounts(t, before, during, false)
	refusesOlder(t, during, "is an older copy, or its control.sqlite-wal")
	// A transaction that its WAL has lost.
	lost := t.TempDir()
	if s, err = identity.Open(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.NewToken(t.Context(), u.ID, "two", identity.TokenScope{}); err != nil {
		t.Fatal(err)
	}
	copyAccounts(t, dir, lost, true)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wal := filepath.Join(lost, "control.sqlite-wal")
	st, err := os.Stat(wal)
	if err != nil || st.Size() == 0 {
		t.Fatalf("the WAL: %v", err)
	}
	if err := os.Truncate(wal, st.Size()-1); err != nil { // the newest transaction is not whole any more
		t.Fatal(err)
	}
	refusesOlder(t, lost, "is an older copy, or its control.sqlite-wal")
	if err := os.Remove(wal); err != nil {
		t.Fatal(err)
	}
	refusesOlder(t, lost, "is an older copy, or its control.sqlite-wal")

	head := filepath.Join(before, identity.HeadFile)
	whole := read(t, head)
	for what, content := range map[string]string{"it does not hold together": strings.Replace(whole, "0", "1", 1), "hold together": whole[:20], "together": ""} {
		if err := os.WriteFile(head, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		refusesOlder(t, before, what)
	}
	if err := os.Remove(head); err != nil {
		t.Fatal(err)
	}
	refusesOlder(t, before, "it is gone")

	for _, at := range []string{before, during} {
		file := filepath.Join(at, "control.sqlite")
		if err := errors.Join(identity.Accept(t.Context(), file), identity.Check(t.Context(), file)); err != nil {
			t.Fatal(err)
		}
		if s, err = identity.Open(t.Context(), file); err != nil {
			t.Fatal(err)
		}
		if ids, err := s.RevokeAll(t.Context(), u.ID); err != nil || len(ids) != 0 {
			t.Errorf("sessions after it was accepted: %v, %v", ids, err)
		}
		if got := owner(t, s); got.ID != u.ID {
			t.Errorf("the owner is %+v", got)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	// The one that was accepted counts on behind the one that it took the place of.
	copyAccounts(t, during, dir, true)
	if err := opens(t, file); err != nil {
		t.Error(err)
	}
}

// TestAFileFromBeforeChangesWereCountedIsOlder: a copy of the accounts of an earlier version, which
// counts no changes, is an older copy where a head is beside it, and can be accepted as well.
func TestAFileFromBeforeChangesWereCountedIsOlder(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "control.sqlite")
	if err := identity.Lay(t.Context(), file, identity.ChangesSince-1); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+file)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{
		"INSERT INTO users (id, name, created, claimed) VALUES ('u-1', 'Owner', 5, 6)",
		"INSERT INTO machine (one, owner) VALUES (1, 'u-1')",
		"INSERT INTO sessions (hash, id, user, kind, created, seen, expires) VALUES (x'01', 's-1', 'u-1', 'console', 5, 5, 1 << 60)",
	} {
		if _, err := db.Exec(q); err != nil {
			t.Fatal(q, err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	raised := t.TempDir()
	copyAccounts(t, dir, raised, false)
	if err := errors.Join(identity.Check(t.Context(), file), opens(t, filepath.Join(raised, "control.sqlite"))); err != nil {
		t.Fatalf("without a head: %v", err)
	}
	head := read(t, filepath.Join(raised, identity.HeadFile))
	for _, content := range []string{head, head[:20]} {
		if err := os.WriteFile(filepath.Join(dir, identity.HeadFile), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		refusesOlder(t, dir, "from before changes were counted")
	}
	if err := errors.Join(identity.Accept(t.Context(), file), identity.Check(t.Context(), file)); err != nil {
		t.Fatal(err)
	}
	s, err := identity.Open(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	if ids, err := s.RevokeAll(t.Context(), "u-1"); err != nil || len(ids) != 0 {
		t.Errorf("sessions after it was accepted: %v, %v", ids, err)
	}
	if u := owner(t, s); u.ID != "u-1" {
		t.Errorf("the owner is %+v", u)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestEachChangeOfTheAccountsIsCounted: what changes something counts once, wherever it is
// written, and what only asks, or changes nothing, does not.
func TestEachChangeOfTheAccountsIsCounted(t *testing.T) {
	dir := t.TempDir()
	s, err := identity.Open(t.Context(), filepath.Join(dir, "control.sqlite"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	u := owner(t, s)
	count := func() (n int) {
		t.Helper()
		db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "control.sqlite")+"?mode=ro")
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(db.QueryRowContext(t.Context(), "SELECT count FROM changes").Scan(&n), db.Close()); err != nil {
			t.Fatal(err)
		}
		if err := identity.Check(t.Context(), filepath.Join(dir, "control.sqlite")); err != nil {
			t.Fatal(err)
		}
		return n
	}
	secret := ""
	for _, c := range []struct {
		name string
		do   func() error
		adds int
	}{
		{"a question", func() error { _, err := s.Accounts(t.Context()); return err }, 0},
		{"ending no session", func() error { _, err := s.SignOut(t.Context(), "none"); return err }, 0},
		{"a token", func() (err error) {
			_, secret, err = s.NewToken(t.Context(), u.ID, "a", identity.TokenScope{})
			return err
		}, 1},
		{"a session", func() (err error) { _, secret, err = s.Claim(t.Context(), link(t, s, u.ID)); return err }, 2},
		{"signing out", func() error { _, err := s.SignOut(t.Context(), secret); return err }, 1},
		{"ending links", func() error { link(t, s, u.ID); _, err := s.RevokeAll(t.Context(), u.ID); return err }, 2},
	} {
		before := count()
		if err := c.do(); err != nil {
			t.Fatal(c.name, err)
		}
		if got := count() - before; got != c.adds {
			t.Errorf("%s counts %d times; want %d", c.name, got, c.adds)
		}
	}
}
