// Package schema brings a state file to the tables that this build knows, one migration after the other.
package schema

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"sort"
	"strconv"
	"strings"

	"choir.dev/choiros/internal/fault"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// ApplicationID marks the file as ours for file(1) and for Migrate: "choi".
const ApplicationID = 0x63686f69

type migration struct {
	version int
	name    string
	sql     string
}

// loadMigrations returns the embedded migrations in order, 1, 2, 3 …
func loadMigrations() ([]migration, error) {
	names, err := fs.Glob(migrationFiles, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	sort.Strings(names)
	out := make([]migration, 0, len(names))
	for i, name := range names {
		base := strings.TrimPrefix(name, "migrations/")
		number, _, _ := strings.Cut(base, "_")
		if n, err := strconv.Atoi(number); err != nil || n != i+1 {
			return nil, fmt.Errorf("migration %s is not number %d", base, i+1)
		}
		body, err := migrationFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		out = append(out, migration{i + 1, base, string(body)})
	}
	return out, nil
}

// Scripts are the SQL scripts of all migrations, in order.
func Scripts() ([]string, error) {
	all, err := loadMigrations()
	out := make([]string, len(all))
	for i, m := range all {
		out[i] = m.sql
	}
	return out, err
}

// Version is the newest schema this build knows.
func Version() int {
	m, err := loadMigrations()
	if err != nil {
		panic("schema: embedded migrations: " + err.Error()) // only possible in a broken build, which any test finds
	}
	return len(m)
}

// Migrate brings the file to version upTo, one transaction per step. The error is fault.Invalid for a file of
// another program and fault.Newer for one of a later build.
func Migrate(ctx context.Context, conn *sql.Conn, upTo int) error {
	const op = "state.migrate"
	steps, err := loadMigrations()
	if err != nil {
		return fault.Wrap(op, err)
	}
	var appID, have int
	if err := conn.QueryRowContext(ctx, "PRAGMA application_id").Scan(&appID); err != nil {
		return fault.New(op, fault.Invalid, "The state file can't be read; move it aside and the log will rebuild it.", err)
	}
	if err := conn.QueryRowContext(ctx, "PRAGMA user_version").Scan(&have); err != nil {
		return fault.Wrap(op, err)
	}
	if appID != 0 && appID != ApplicationID {
		return fault.New(op, fault.Invalid, "Point the data directory at one that choir made.", fmt.Errorf("the file has application id %#x, which is not choir's", appID))
	}
	if appID == 0 {
		var tables int
		if err := conn.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&tables); err != nil {
			return fault.Wrap(op, err)
		}
		if tables > 0 {
			return fault.New(op, fault.Invalid, "Point the data directory at one that choir made.", errors.New("the file is an SQLite database of another program"))
		}
	}
	if have > len(steps) {
		return fault.New(op, fault.Newer, "Start a newer choir, or the one that wrote this data directory.",
			fmt.Errorf("the state has schema %d; this build knows %d", have, len(steps)))
	}
	for _, m := range steps {
		if m.version <= have || m.version > upTo {
			continue
		}
		script := fmt.Sprintf("BEGIN IMMEDIATE;\n%s\nPRAGMA application_id = %d;\nPRAGMA user_version = %d;\nCOMMIT;", m.sql, ApplicationID, m.version)
		if _, err := conn.ExecContext(ctx, script); err != nil {
			return errors.Join(fault.New(op, "", "", fmt.Errorf("%s: %w", m.name, err)), Rollback(ctx, conn))
		}
	}
	return nil
}

// Rollback ends a transaction that failed. SQLite has ended it by itself after some errors, and then there is
// nothing to do.
func Rollback(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
	if err != nil && strings.Contains(err.Error(), "no transaction is active") {
		return nil
	}
	return err
}
