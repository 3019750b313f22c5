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
	"choir.dev/choiros/internal/grant"
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
	if _, _, err := s.NewToken(ctx, u.ID, "a token", identity.TokenScope{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Adopt(ctx, cid, u.ID, "Studio"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.NewGitToken(ctx, u.ID, "", "git", identity.GitScope{Computer: cid, Repository: "workspace/app", Expires: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.NewInvitation(ctx, cid, grant.Editor, u.ID); err != nil {
		t.Fatal(err)
	}
	var calls []identity.Call
	for i := range 400 {
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
	for _, table := range []string{"users", "links", "sessions", "tickets", "tokens", "computers", "members", "powers", "machine", "invitations", "git_tokens", "spending", "counted", "changes"} {
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

// A bit that is changed anywhere in the file is noticed, or changes nothing that the file
// says: SQLite itself would return a changed name or price.
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
	copyAccounts(t, filepath.Dir(file), filepath.Dir(damaged), true)
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

// A value that was changed is damage with a hint, when the program starts and while it
// runs.
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
	// The value is changed past the triggers, as a disk would.
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

// A file of an earlier version opens: its rows get their sums and stay as they are, the
// first account becomes the machine's owner with every power, whatever its clock said, and
// the owner of a computer stays its owner.
func TestAnEarlierFileOpens(t *testing.T) {
	for version := 1; version < identity.Newest; version++ {
		file := filepath.Join(t.TempDir(), "control.sqlite")
		if err := identity.Lay(t.Context(), file, version); err != nil {
			t.Fatal(err)
		}
		db, err := sql.Open("sqlite", "file:"+file)
		if err != nil {
			t.Fatal(err)
		}
		a, b := contract.NewCID(), contract.NewCID()
		computers := []string{fmt.Sprintf("INSERT INTO computers (id, owner, handle, created) VALUES ('%s', 'u-1', 'studio', 8), ('%s', 'u-2', 'lab', 9)", a, b)}
		if version >= identity.MembersSince {
			computers = []string{
				fmt.Sprintf("INSERT INTO computers (id, handle, created) VALUES ('%s', 'studio', 8), ('%s', 'lab', 9)", a, b),
				fmt.Sprintf("INSERT INTO members (id, computer, user, role, created) VALUES ('m-%[1]s', '%[1]s', 'u-1', 'owner', 8), ('m-%[2]s', '%[2]s', 'u-2', 'owner', 9)", a, b),
				"INSERT INTO machine (one, owner) VALUES (1, 'u-1')",
				"INSERT INTO powers (id, user, power, created) SELECT 'p-' || value, 'u-1', value, 5 FROM json_each('[\"secrets\",\"models\",\"machine\",\"computers\",\"accounts\"]')",
			}
		}
		token := "INSERT INTO tokens (hash, id, user, name, created) VALUES (x'02', 't-1', 'u-1', 'ci', 9)"
		if version >= identity.ScopesSince {
			token = "INSERT INTO tokens (hash, id, user, name, created, may) VALUES (x'02', 't-1', 'u-1', 'ci', 9, '*')"
		}
		for _, q := range append([]string{
			"INSERT INTO users (id, name, created, claimed) VALUES ('u-2', 'Second', 7, 0), ('u-1', 'Owner', 5, 6)",
			"INSERT INTO sessions (hash, id, user, kind, created, seen, expires) VALUES (x'01', 's-1', 'u-1', 'console', 5, 5, 1 << 60)",
			token,
		}, computers...) {
			if _, err := db.Exec(q); err != nil {
				t.Fatal(q, err)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if err := identity.Check(t.Context(), file); err != nil {
			t.Fatalf("version %d: %v", version, err)
		}
		s, err := identity.Open(t.Context(), file)
		if err != nil {
			t.Fatalf("version %d: %v", version, err)
		}
		if u := owner(t, s); u.ID != "u-1" || !u.Claimed {
			t.Errorf("version %d: the machine is %+v's", version, u)
		}
		for _, want := range []struct {
			account string
			cid     contract.CID
			role    grant.Role
			powers  int
		}{{"u-1", a, grant.Owner, len(grant.Powers())}, {"u-1", b, grant.None, len(grant.Powers())}, {"u-2", b, grant.Owner, 0}, {"u-2", a, grant.None, 0}} {
			h, err := s.Held(t.Context(), want.account, want.cid)
			if err != nil || h.Account != want.account || h.Role != want.role || len(h.Powers) != want.powers {
				t.Errorf("version %d: %s holds %+v, %v", version, want.account, h, err)
			}
		}
		if p, err := s.ByHandle(t.Context(), "studio"); err != nil || p.Computer != a {
			t.Errorf("version %d: %+v, %v", version, p, err)
		}
		if list, err := s.Tokens(t.Context(), "u-1"); err != nil || len(list) != 1 || list[0].ID != "t-1" || !list[0].Whole || !list[0].Expires.IsZero() {
			t.Errorf("version %d: %+v, %v", version, list, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := identity.Check(t.Context(), file); err != nil {
			t.Errorf("version %d, after the migration: %v", version, err)
		}
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
