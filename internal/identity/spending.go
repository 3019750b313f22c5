package identity

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
)

// Call is what one call of a model consumed.
type Call struct {
	ID       string // of the call; the same one again is not counted twice
	Computer contract.CID
	At       time.Time
	Usage    contract.Usage
}

// Counted says up to which event a computer's log was counted. The zero value means that
// nothing was.
type Counted struct {
	Sequence uint64
	Link     contract.Link // of that event, so that another log is not mistaken for this one
}

// Counted returns how far a computer's log was counted.
func (s *Store) Counted(ctx context.Context, cid contract.CID) (Counted, error) {
	var c Counted
	err := s.db.QueryRowContext(ctx, "SELECT sequence, link FROM counted WHERE computer = ?", cid).Scan(&c.Sequence, &c.Link)
	if errors.Is(err, sql.ErrNoRows) {
		return Counted{}, nil
	}
	return c, fault.Wrap("identity.Counted", err)
}

// Count records, in one transaction, the calls that a computer's log holds up to an event.
// A call that was recorded already stays as it is.
func (s *Store) Count(ctx context.Context, cid contract.CID, to Counted, calls []Call) error {
	return fault.Wrap("identity.Count", s.tx(ctx, func(tx *sql.Tx) error {
		if err := spend(ctx, tx, calls...); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO counted (computer, sequence, link) VALUES (?, ?, ?)
			ON CONFLICT (computer) DO UPDATE SET sequence = excluded.sequence, link = excluded.link`, cid, to.Sequence, to.Link)
		return err
	}))
}

// Spend records a call that is in no log: the test of a model.
func (s *Store) Spend(ctx context.Context, c Call) error {
	return fault.Wrap("identity.Spend", s.tx(ctx, func(tx *sql.Tx) error { return spend(ctx, tx, c) }))
}

func spend(ctx context.Context, tx *sql.Tx, calls ...Call) error {
	for _, c := range calls {
		if _, err := tx.ExecContext(ctx, "INSERT OR IGNORE INTO spending (call, computer, day, tokens_in, tokens_out, cost_usd) VALUES (?, ?, ?, ?, ?, ?)",
			c.ID, c.Computer, c.At.UTC().Format(time.DateOnly), c.Usage.TokensIn, c.Usage.TokensOut, c.Usage.CostUSD); err != nil {
			return err
		}
	}
	return nil
}

// Spent sums up calls: those of a computer or, when cid is empty, of all computers
// including removed ones, and the tests of models; those of a UTC day (YYYY-MM-DD) or, when
// day is empty, of all days.
func (s *Store) Spent(ctx context.Context, cid contract.CID, day string) (contract.Usage, error) {
	query, args := "SELECT coalesce(sum(tokens_in), 0), coalesce(sum(tokens_out), 0), coalesce(sum(cost_usd), 0.0) FROM spending WHERE 1", []any{}
	if cid != "" {
		query, args = query+" AND computer = ?", append(args, cid)
	}
	if day != "" {
		query, args = query+" AND day = ?", append(args, day)
	}
	var u contract.Usage
	err := s.db.QueryRowContext(ctx, query, args...).Scan(&u.TokensIn, &u.TokensOut, &u.CostUSD)
	return u, fault.Wrap("identity.Spent", err)
}
