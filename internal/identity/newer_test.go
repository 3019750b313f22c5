package identity_test

import (
	"database/sql"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/identity"
)

// TestANewersFileIsLeftAsItIs shows that what a newer version wrote, and left in the WAL when it was
// killed, is refused without a byte being written: neither opening the file nor looking at it moves the
// WAL into it, with the index of the WAL beside it or without, as in a copy.
func TestANewersFileIsLeftAsItIs(t *testing.T) {
	s, _, file := open(t)
	owner(t, s)
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(1)
	if _, err := db.Exec(raise); err != nil {
		t.Fatal(err)
	}
	for _, parts := range [][]string{{"", "-wal", "-shm"}, {"", "-wal"}} {
		dir := t.TempDir()
		killed := filepath.Join(dir, "control.sqlite")
		for _, part := range parts {
			b, err := os.ReadFile(file + part)
			if err == nil {
				err = os.WriteFile(killed+part, b, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		before := contents(t, dir)
		for what, err := range map[string]error{"open": opens(t, killed), "check": identity.Check(t.Context(), killed), "newer": identity.Newer(t.Context(), killed)} {
			if !fault.Is(err, fault.Newer) || fault.HintOf(err) == "" {
				t.Errorf("%s of %q: %v", what, parts, err)
			}
		}
		if !maps.Equal(contents(t, dir), before) {
			t.Errorf("with %q, what was refused was changed", parts)
		}
	}
	whole := filepath.Join(t.TempDir(), "control.sqlite")
	if err := identity.Newer(t.Context(), whole); err != nil {
		t.Errorf("of no file: %v", err)
	}
	if err := opens(t, whole); err != nil {
		t.Error(err)
	}
	if err := identity.Newer(t.Context(), whole); err != nil {
		t.Errorf("of this version's: %v", err)
	}
}

// raise makes a file of accounts one of a newer version. Every version stores the sum of its schema;
// without the right one this would count as damage.
const raise = "PRAGMA user_version = 99; UPDATE schema_sum SET sum = (SELECT row_sum(99, group_concat(coalesce(sql, ''), ';')) FROM (SELECT sql FROM sqlite_schema ORDER BY type, name))"

// contents are the files of a directory.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, f := range list {
		b, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[f.Name()] = string(b)
	}
	return files
}
