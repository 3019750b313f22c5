package identity

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/grant"
)

// Account is an account with what it was granted on the machine.
type Account struct {
	User
	Powers  []grant.Power
	Machine bool // whether it is the machine's owner
}

// Accounts lists every account, oldest first.
func (s *Store) Accounts(ctx context.Context) ([]Account, error) {
	out, err := s.accounts(ctx, "")
	return out, fault.Wrap("identity.Accounts", err)
}

// Account returns an account by its id.
func (s *Store) Account(ctx context.Context, id string) (Account, error) {
	const op = "identity.Account"
	out, err := s.accounts(ctx, "WHERE id = ?", id)
	if err == nil && len(out) == 0 {
		err = fault.New("", fault.NotFound, "", errNoAccount)
	}
	if err != nil {
		return Account{}, fault.Wrap(op, err)
	}
	return out[0], nil
}

func (s *Store) accounts(ctx context.Context, where string, args ...any) ([]Account, error) {
	return scanAll(ctx, s.db, func(rows *sql.Rows) (Account, error) {
		var a Account
		var created, claimed int64
		var powers string
		err := rows.Scan(&a.ID, &a.Name, &created, &claimed, &a.Machine, &powers)
		a.Created, a.Claimed = fromMillis(created), claimed != 0
		for p := range strings.SplitSeq(powers, ",") {
			if p != "" {
				a.Powers = append(a.Powers, grant.Power(p))
			}
		}
		return a, err
	}, `SELECT id, name, created, claimed, id = (SELECT owner FROM machine),
		coalesce((SELECT group_concat(power) FROM powers WHERE user = users.id), '') FROM users `+where+` ORDER BY created, id`, args...)
}

// NewAccount makes an account that nobody has signed in to yet. The caller has checked who
// asks, and that they hold the powers they give.
func (s *Store) NewAccount(ctx context.Context, name string, powers []grant.Power) (User, error) {
	const op = "identity.NewAccount"
	var u User
	err := s.tx(ctx, func(tx *sql.Tx) error {
		err := atMost(ctx, tx, maxAccounts, "accounts", "Remove one first.", "SELECT count(*) FROM users")
		if err == nil {
			u, err = s.newUser(ctx, tx, name, powers)
		}
		return err
	})
	return u, fault.Wrap(op, err)
}

func (s *Store) newUser(ctx context.Context, tx *sql.Tx, name string, powers []grant.Power) (User, error) {
	now := s.millis()
	u := User{ID: "u-" + contract.NewID(), Name: name, Created: fromMillis(now)}
	if _, err := tx.ExecContext(ctx, "INSERT INTO users (id, name, created) VALUES (?, ?, ?)", u.ID, name, now); err != nil {
		return User{}, err
	}
	return u, s.givePowers(ctx, tx, u.ID, powers)
}

func (s *Store) givePowers(ctx context.Context, tx *sql.Tx, account string, powers []grant.Power) error {
	for _, p := range slices.Compact(slices.Sorted(slices.Values(powers))) {
		if !p.Known() {
			return fault.New("", fault.Invalid, "", fmt.Errorf("there is no power %.40q", string(p)))
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO powers (id, user, power, created) VALUES (?, ?, ?, ?)", "p-"+contract.NewID(), account, string(p), s.millis()); err != nil {
			return err
		}
	}
	return nil
}

// SetPowers gives an account these powers and no others.
func (s *Store) SetPowers(ctx context.Context, account string, powers []grant.Power) error {
	return fault.Wrap("identity.SetPowers", s.tx(ctx, func(tx *sql.Tx) error {
		if err := notTheMachines(ctx, tx, account, "keeps every power"); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "DELETE FROM powers WHERE user = ?", account); err != nil {
			return err
		}
		return s.givePowers(ctx, tx, account, powers)
	}))
}

// RemoveAccount removes an account with its sessions, tokens and memberships, and returns
// the ids of the sessions that ended. It is refused while the account is the only owner of
// a computer.
func (s *Store) RemoveAccount(ctx context.Context, account string) (ended []string, err error) {
	err = s.tx(ctx, func(tx *sql.Tx) error {
		if err := notTheMachines(ctx, tx, account, "can't be removed"); err != nil {
			return err
		}
		var alone int
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM members AS m WHERE user = ?1 AND role = 'owner' AND NOT EXISTS
			(SELECT 1 FROM members WHERE computer = m.computer AND user <> ?1 AND role = 'owner')`, account).Scan(&alone); err != nil {
			return err
		}
		if alone > 0 {
			return fault.New("", fault.Conflict, "Make somebody else an owner of them first.", fmt.Errorf("the account is the only owner of %d computers", alone))
		}
		if ended, err = endSessions(ctx, tx, "user = ?", account); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "DELETE FROM users WHERE id = ?", account)
		return err
	})
	return ended, fault.Wrap("identity.RemoveAccount", err)
}

// notTheMachines refuses the machine's owner, and an account that does not exist.
func notTheMachines(ctx context.Context, tx *sql.Tx, account, why string) error {
	var machines bool
	err := tx.QueryRowContext(ctx, "SELECT id = (SELECT owner FROM machine) FROM users WHERE id = ?", account).Scan(&machines)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return fault.New("", fault.NotFound, "", errNoAccount)
	case err != nil:
		return err
	case machines:
		return fault.New("", fault.Conflict, "", errors.New("the account of the machine's owner "+why))
	}
	return nil
}

var errNoAccount = errors.New("there is no such account")

// atMost refuses another row when the count has reached its limit.
func atMost(ctx context.Context, tx *sql.Tx, most int, what, hint, count string, args ...any) error {
	var n int
	if err := tx.QueryRowContext(ctx, count, args...).Scan(&n); err != nil {
		return err
	}
	if n >= most {
		return fault.New("", fault.Exhausted, hint, fmt.Errorf("there are %d %s, which is as many as there may be", n, what))
	}
	return nil
}

// scanAll reads every row of a query's answer.
func scanAll[T any](ctx context.Context, db interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}, scan func(*sql.Rows) (T, error), query string, args ...any) (out []T, err error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, rows.Err()
}

// endSessions removes sessions and returns their ids.
func endSessions(ctx context.Context, tx *sql.Tx, where string, args ...any) ([]string, error) {
	ids, err := scanAll(ctx, tx, func(rows *sql.Rows) (id string, err error) { return id, rows.Scan(&id) }, "SELECT id FROM sessions WHERE "+where, args...)
	if err != nil {
		return nil, err
	}
	_, err = tx.ExecContext(ctx, "DELETE FROM sessions WHERE "+where, args...)
	return ids, err
}
