package identity_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/identity"
)

// used is a file with rows in every table, closed.
func used(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "control.sqlite")
	ctx := context.Background()
	s, err := identity.Open(ctx, file)
	if err != nil {
		t.Fatal(err)
	}
	u := owner(t, s)
	_, _, err = s.Claim(ctx, link(t, s, u.ID))
	if err != nil {
		t.Fatal(err)
	}
	link(t, s, u.ID)
	cid := contract.NewCID()
	if _, _, err := s.NewToken(ctx, u.ID, "a token"); err != nil {
		t.Fatal(err)
	}
	var calls []identity.Call
	for i := range 300 {
		calls = append(calls, identity.Call{ID: fmt.Sprint("call-", i), Computer: cid, At: time.Now(), Usage: contract.Usage{TokensIn: int64(10 + i), TokensOut: 5, CostUSD: float64(i) / 7}})
	}
	if err := s.Count(ctx, cid, identity.Counted{Sequence: 300, Link: "l"}, calls); err != nil {
		t.Fatal(err)
	}
	if err := s.Count(ctx, cid, identity.Counted{Sequence: 301, Link: "m"}, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := identity.Check(ctx, file); err != nil {
		t.Fatalf("a file that nobody damaged: %v", err)
	}
	return file
}

// dump is every row of every table.
func dump(t *testing.T, file string) string {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+file+"?mode=ro&immutable=1")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var b strings.Builder
	for _, table := range []string{"users", "links", "sessions", "tickets", "tokens", "computers", "spending", "counted"} {
		rows, err := db.Query("SELECT * FROM " + table + " ORDER BY 1")
		if err != nil {
			return err.Error()
		}
		columns, err := rows.Columns()
		for err == nil && rows.Next() {
			values, to := make([]any, len(columns)), make([]any, len(columns))
			for i := range values {
				to[i] = &values[i]
			}
			if err = rows.Scan(to...); err == nil {
				fmt.Fprintln(&b, table, values)
			}
		}
		if err != nil || rows.Err() != nil || rows.Close() != nil {
			return fmt.Sprint(err, rows.Err())
		}
	}
	return b.String()
}

// A bit that is changed anywhere in the file is seen, or it changes nothing that
// the file says: SQLite itself would serve another name or price.
func TestEveryChangedBitOfTheAccountsIsSeen(t *testing.T) {
	file := used(t)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := dump(t, file)
	if strings.Count(want, "\n") < 300 || !strings.Contains(want, "Owner") {
		t.Fatalf("the file says:\n%s", want)
	}
	dice := rand.New(rand.NewPCG(1, 2))
	seen, same := 0, 0
	damaged := filepath.Join(t.TempDir(), "control.sqlite")
	for i := range 600 {
		at, bit := dice.IntN(len(whole)), byte(1)<<dice.IntN(8)
		if i < 100 {
			at = i // the header
		}
		b := append([]byte(nil), whole...)
		b[at] ^= bit
		if err := os.WriteFile(damaged, b, 0o600); err != nil {
			t.Fatal(err)
		}
		err := identity.Check(t.Context(), damaged)
		switch {
		case err != nil:
			seen++
		case dump(t, damaged) != want:
			t.Errorf("bit %d of byte %d changes what the file says, and is not seen", bit, at)
		default:
			same++
		}
	}
	t.Logf("%d of 600 changed bits were seen, %d were of no consequence", seen, same)
	if seen < 200 {
		t.Errorf("only %d of 600 changed bits were seen", seen)
	}
}

// A value that was changed is damage with a way on, as the program starts and
// while it runs.
func TestAChangedValueOfTheAccountsIsDamage(t *testing.T) {
	file := used(t)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	i := strings.LastIndex(string(b), "Owner")
	b[i] ^= 4
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = identity.Open(t.Context(), file)
	if !fault.Is(err, fault.Damaged) || !strings.Contains(fault.HintOf(err), "choir recover") || !strings.Contains(err.Error(), "users") {
		t.Errorf("open: %v", err)
	}
	b[i] ^= 4
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := identity.Open(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.QuickCheck(t.Context()); err != nil {
		t.Errorf("a whole file: %v", err)
	}
	// Whoever writes beside the triggers is whoever damages it.
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("UPDATE spending SET sum = x'00' WHERE call = 'call-7'"); err != nil {
		t.Fatal(err)
	}
	if err := s.QuickCheck(t.Context()); !fault.Is(err, fault.Damaged) || !strings.Contains(err.Error(), "1 rows of spending") {
		t.Errorf("a changed row: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// The rows of a file of an earlier version get their sums, and stay as they are.
func TestAnEarlierFileGetsItsSums(t *testing.T) {
	file := used(t)
	want := dump(t, file)
	db, err := sql.Open("sqlite", "file:"+file)
	if err != nil {
		t.Fatal(err)
	}
	script := "DROP TABLE schema_sum; PRAGMA user_version = 2;"
	for _, table := range []string{"users", "links", "sessions", "tickets", "tokens", "computers", "spending", "counted"} {
		script += fmt.Sprintf("DROP TRIGGER %s_inserted; DROP TRIGGER %[1]s_updated; ALTER TABLE %[1]s DROP COLUMN sum;", table)
	}
	if _, err := db.Exec(script); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := identity.Check(t.Context(), file); err != nil {
		t.Fatalf("a file of an earlier version: %v", err)
	}
	s, err := identity.Open(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := dump(t, file); got != want {
		t.Errorf("the file says\n%s\nit said\n%s", got, want)
	}
	if err := identity.Check(t.Context(), file); err != nil {
		t.Errorf("after the migration: %v", err)
	}
}

func BenchmarkCheck(b *testing.B) {
	file := filepath.Join(b.TempDir(), "control.sqlite")
	s, err := identity.Open(b.Context(), file)
	if err != nil {
		b.Fatal(err)
	}
	cid := contract.NewCID()
	var calls []identity.Call
	for i := range 100_000 {
		calls = append(calls, identity.Call{ID: fmt.Sprint("call-", i), Computer: cid, At: time.Now(), Usage: contract.Usage{TokensIn: int64(i)}})
	}
	if err := s.Count(b.Context(), cid, identity.Counted{Sequence: 1, Link: "l"}, calls); err != nil {
		b.Fatal(err)
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := identity.Check(b.Context(), file); err != nil {
			b.Fatal(err)
		}
	}
}
