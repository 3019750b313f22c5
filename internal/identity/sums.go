package identity

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"modernc.org/sqlite"

	"choir.dev/choiros/internal/fault"
)

// SQLite keeps no checksums: if a disk changes a bit of a value, the changed value is read.
// So every row has the sum of its values, which triggers write and check compares, and the
// schema has one with its version (docs/adr/0138).

// rowSum is the SQL function that adds values up. It is part of the format.
const rowSum = "row_sum"

// sumBytes is how much of a SHA-256 is kept: it guards against disks, not against
// attackers.
const sumBytes = 16

func init() {
	sqlite.MustRegisterDeterministicScalarFunction(rowSum, -1, func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
		h := sha256.New()
		var b []byte
		for _, a := range args {
			b = b[:0]
			switch v := a.(type) {
			case nil:
				b = append(b, 'n')
			case int64:
				b = binary.BigEndian.AppendUint64(append(b, 'i'), uint64(v))
			case float64:
				b = binary.BigEndian.AppendUint64(append(b, 'f'), math.Float64bits(v))
			case string:
				b = append(binary.BigEndian.AppendUint64(append(b, 't'), uint64(len(v))), v...)
			case []byte:
				b = append(binary.BigEndian.AppendUint64(append(b, 'b'), uint64(len(v))), v...)
			default:
				return nil, fmt.Errorf("%s of a %T", rowSum, a)
			}
			h.Write(b)
		}
		return h.Sum(nil)[:sumBytes], nil
	})
}

// summedTable is a table whose rows have a sum: its key first, then the other columns that
// the sum covers.
type summedTable struct {
	table   string
	columns []string
}

// summedOf are the tables that have sums in files of a version. A migration that changes a
// table replaces its triggers and computes its sums again; never change what a released
// migration made.
func summedOf(version int) []summedTable {
	if version < membersSince {
		return summedFirst
	}
	members := slices.Concat(summedFirst[:5], summedFirst[6:], summedMembers)
	if version < gitTokensSince {
		return members
	}
	if version < scopesSince {
		return slices.Concat(members, summedGitTokens)
	}
	scopes := slices.Concat(members[:4], summedScopes, members[5:], summedGitTokens)
	if version < changesSince {
		return scopes
	}
	if version < devicesSince {
		return slices.Concat(scopes, summedChanges)
	}
	return slices.Concat(scopes[:2], summedDevices, scopes[3:], summedChanges)
}

// summedFirst are the tables of the first version with sums.
var summedFirst = []summedTable{
	{"users", []string{"id", "name", "created", "claimed"}},
	{"links", []string{"hash", "user", "created", "expires", "used"}},
	{"sessions", []string{"hash", "id", "user", "kind", "computer", "parent", "created", "seen", "expires"}},
	{"tickets", []string{"hash", "session", "computer", "expires"}},
	{"tokens", []string{"hash", "id", "user", "name", "created"}},
	{"computers", []string{"id", "owner", "handle", "created"}},
	{"spending", []string{"call", "computer", "day", "tokens_in", "tokens_out", "cost_usd"}},
	{"counted", []string{"computer", "sequence", "link"}},
}

// summedMembers are the tables that the version with members added.
var summedMembers = []summedTable{
	{"computers", []string{"id", "handle", "created"}},
	{"members", []string{"id", "computer", "user", "role", "created"}},
	{"powers", []string{"id", "user", "power", "created"}},
	{"machine", []string{"one", "owner"}},
	{"invitations", []string{"hash", "id", "computer", "role", "user", "created", "expires"}},
}

// addSums is the migration that gives every row its sum.
func addSums() string {
	var b strings.Builder
	b.WriteString("CREATE TABLE schema_sum (one INTEGER PRIMARY KEY CHECK (one = 1), sum BLOB NOT NULL) STRICT;\n")
	for _, t := range summedFirst {
		fmt.Fprintf(&b, "ALTER TABLE %s ADD COLUMN sum BLOB NOT NULL DEFAULT x'';\nUPDATE %[1]s SET sum = %s;\n%s", t.table, sumOf(t.table, t.columns), t.triggers())
	}
	return b.String()
}

// triggers are the SQL triggers that write a table's sums.
func (t summedTable) triggers() string {
	var b strings.Builder
	for _, on := range [][2]string{{"inserted", "INSERT"}, {"updated", "UPDATE OF " + strings.Join(t.columns, ", ")}} {
		fmt.Fprintf(&b, "CREATE TRIGGER %s_%s AFTER %s ON %[1]s BEGIN UPDATE %[1]s SET sum = %[4]s WHERE %[5]s = NEW.%[5]s; END;\n", t.table, on[0], on[1], sumOf(t.table, t.columns), t.columns[0])
	}
	return b.String()
}

func sumOf(table string, columns []string) string {
	return fmt.Sprintf("%s('%s', %s)", rowSum, table, strings.Join(columns, ", "))
}

// sumsSince is the version from which on rows have sums.
const sumsSince = 3

// schemaSum is the sum of the schema and of the version that it is said to have.
const schemaSum = "SELECT " + rowSum + "(?, group_concat(coalesce(sql, ''), ';')) FROM (SELECT sql FROM sqlite_schema ORDER BY type, name)"

// sumSchema stores the schema's sum after a migration to a version.
func sumSchema(ctx context.Context, tx *sql.Tx, version int) error {
	if version < sumsSince {
		return nil
	}
	_, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO schema_sum (one, sum) VALUES (1, ("+schemaSum+"))", version)
	return err
}

// checkSums compares the schema and every row with their sums: fault.Damaged when one
// differs.
func checkSums(ctx context.Context, db *sql.DB) error {
	damaged := func(format string, args ...any) error {
		return fault.New("", fault.Damaged, "", fmt.Errorf(format, args...))
	}
	var version, sums int
	if err := db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return err
	}
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema WHERE name = 'schema_sum'").Scan(&sums); err != nil {
		return err
	}
	if version < sumsSince && sums == 0 {
		return nil // the file is of an earlier version
	}
	var same bool
	err := db.QueryRowContext(ctx, "SELECT sum = ("+schemaSum+") FROM schema_sum", version).Scan(&same)
	if err != nil && !errors.Is(err, sql.ErrNoRows) && ctx.Err() != nil {
		return err
	}
	if err != nil || !same {
		return damaged("its schema is other than it was written")
	}
	if version > len(migrations()) {
		return nil // a newer version wrote it, and only that one knows its sums
	}
	for _, t := range summedOf(version) {
		var other int
		if err := db.QueryRowContext(ctx, fmt.Sprintf("SELECT count(*) FROM %s WHERE sum <> %s", t.table, sumOf(t.table, t.columns))).Scan(&other); err != nil {
			return err
		}
		if other > 0 {
			return damaged("%d rows of %s are other than they were written", other, t.table)
		}
	}
	return nil
}
