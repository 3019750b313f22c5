package newfile_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"choir.dev/choiros/internal/newfile"
)

func table(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, "CREATE TABLE t (x TEXT) STRICT; INSERT INTO t VALUES ('first')")
	return err
}

func names(t *testing.T, dir string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// TestSQLite shows that a new database has its first contents, is in WAL mode, can be read by its
// owner only, and has no temporary file beside it. An empty file is filled as a new one, and an
// existing database is left alone.
func TestSQLite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a b.sqlite")
	for _, stale := range []string{"", "-wal", ".new", ".new-wal"} { // left by a start that was killed
		if err := os.WriteFile(path+stale, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path+"-wal", []byte("of an earlier file"), 0o600); err != nil {
		t.Fatal(err)
	}
	if made, err := newfile.SQLite(t.Context(), path, newfile.Synced, table); err != nil || !made {
		t.Fatal(made, err)
	}
	if got := names(t, dir); len(got) != 1 {
		t.Errorf("there are %q", got)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	if made, err := newfile.SQLite(t.Context(), path, newfile.Synced, func(context.Context, *sql.DB) error { return errors.New("it is made again") }); err != nil || made {
		t.Error(made, err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var x, mode string
	if err := errors.Join(db.QueryRow("SELECT x FROM t").Scan(&x), db.QueryRow("PRAGMA journal_mode").Scan(&mode)); err != nil || x != "first" || mode != "wal" {
		t.Errorf("%q in mode %q, %v", x, mode, err)
	}
}

// TestAFileThatFailsIsNone shows that nothing is left when the contents can't be written.
func TestAFileThatFailsIsNone(t *testing.T) {
	dir := t.TempDir()
	why := errors.New("no")
	_, err := newfile.SQLite(t.Context(), filepath.Join(dir, "x.sqlite"), newfile.Synced, func(ctx context.Context, db *sql.DB) error {
		return errors.Join(table(ctx, db), why)
	})
	if got := names(t, dir); !errors.Is(err, why) || len(got) != 0 {
		t.Errorf("%v, and there are %q", err, got)
	}
	if err := os.Mkdir(filepath.Join(dir, "taken"), 0o755); err != nil {
		t.Fatal(err)
	}
	err = newfile.Files(dir, newfile.Synced, newfile.Content{Name: "taken", Bytes: []byte("x")}, newfile.Content{Name: "b", Bytes: []byte("y")})
	if got := names(t, dir); err == nil || len(got) != 1 {
		t.Errorf("%v, and there are %q", err, got)
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	want := map[string]string{"a": "1", "b": "2", "c": "3"}
	if err := newfile.Files(dir, newfile.Synced, newfile.Content{Name: "a", Bytes: []byte("1")}, newfile.Content{Name: "b", Bytes: []byte("2")}, newfile.Content{Name: "c", Bytes: []byte("3")}); err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); len(got) != len(want) {
		t.Fatalf("there are %q", got)
	}
	for name, content := range want {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || string(b) != content {
			t.Errorf("%s holds %q, %v", name, b, err)
		}
		if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", st, err)
		}
	}
}
