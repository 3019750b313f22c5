package identity

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/grant"
)

// Place is where a computer's desktop is.
type Place struct {
	Computer contract.CID
	Handle   string // the first label of its desktop's host name
}

// Adopt records a computer, gives it a handle from its name, and makes an account
// its owner. One that is recorded already keeps its handle and its members.
func (s *Store) Adopt(ctx context.Context, cid contract.CID, owner, name string) (Place, error) {
	const op = "identity.Adopt"
	p := Place{Computer: cid}
	err := s.tx(ctx, func(tx *sql.Tx) error {
		err := tx.QueryRowContext(ctx, "SELECT handle FROM computers WHERE id = ?", string(cid)).Scan(&p.Handle)
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if p.Handle, err = freeHandle(ctx, tx, cid, name); err != nil {
			return err
		}
		if _, err = tx.ExecContext(ctx, "INSERT INTO computers (id, handle, created) VALUES (?, ?, ?)", string(cid), p.Handle, s.millis()); err != nil {
			return err
		}
		return s.addMember(ctx, tx, cid, owner, grant.Owner)
	})
	return p, fault.Wrap(op, err)
}

// Forget undoes Adopt for a computer that was never finished: nobody has seen a desktop
// under its handle, so another may have it.
func (s *Store) Forget(ctx context.Context, cid contract.CID) error {
	const op = "identity.Forget"
	err := s.tx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM computers WHERE id = ?", string(cid))
		return err
	})
	return fault.Wrap(op, err)
}

// Rehandle gives a computer a handle from another name. Its desktop then has another
// origin, with storage of its own, so only the first claim does this.
func (s *Store) Rehandle(ctx context.Context, cid contract.CID, name string) (Place, error) {
	const op = "identity.Rehandle"
	p := Place{Computer: cid}
	err := s.tx(ctx, func(tx *sql.Tx) error {
		handle, err := freeHandle(ctx, tx, cid, name)
		if err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, "UPDATE computers SET handle = ? WHERE id = ? RETURNING handle", handle, string(cid)).Scan(&p.Handle)
	})
	if errors.Is(err, sql.ErrNoRows) {
		err = fault.New("", fault.NotFound, "", fmt.Errorf("there is no computer %s", cid))
	}
	return p, fault.Wrap(op, err)
}

// Places returns every recorded computer, oldest first.
func (s *Store) Places(ctx context.Context) ([]Place, error) {
	const op = "identity.Places"
	out, err := scanAll(ctx, s.db, func(rows *sql.Rows) (p Place, err error) {
		return p, rows.Scan(&p.Computer, &p.Handle)
	}, "SELECT id, handle FROM computers ORDER BY created, id")
	return out, fault.Wrap(op, err)
}

// ByHandle finds the computer with a handle.
func (s *Store) ByHandle(ctx context.Context, handle string) (Place, error) {
	return s.place(ctx, "handle", handle)
}

// ByID finds a recorded computer.
func (s *Store) ByID(ctx context.Context, cid contract.CID) (Place, error) {
	return s.place(ctx, "id", string(cid))
}

func (s *Store) place(ctx context.Context, column, value string) (Place, error) {
	const op = "identity.Place"
	p, err := remembered(ctx, s, placeBy{column, value}, func(ctx context.Context) (p Place, keep bool, err error) {
		err = s.db.QueryRowContext(ctx, "SELECT id, handle FROM computers WHERE "+column+" = ?", value).Scan(&p.Computer, &p.Handle)
		return p, true, err
	})
	if errors.Is(err, sql.ErrNoRows) {
		return Place{}, fault.Wrap(op, grant.NoComputer())
	}
	return p, fault.Wrap(op, err)
}

// placeBy is the key of the question which computer has a value in a column.
type placeBy struct{ column, value string }

// maxHandle leaves room for a suffix within a DNS label.
const maxHandle = 40

// freeHandle makes of name a DNS label that no other computer has.
func freeHandle(ctx context.Context, tx *sql.Tx, cid contract.CID, name string) (string, error) {
	base := slug(name)
	if base == "" {
		base = "computer"
	}
	for n := 1; n < 1000; n++ {
		handle := base
		if n > 1 {
			handle = fmt.Sprintf("%s-%d", base, n)
		}
		var other string
		err := tx.QueryRowContext(ctx, "SELECT id FROM computers WHERE handle = ? AND id <> ?", handle, string(cid)).Scan(&other)
		if errors.Is(err, sql.ErrNoRows) {
			return handle, nil
		}
		if err != nil {
			return "", err
		}
	}
	return base + "-" + string(cid), nil
}

// slug keeps the characters that a DNS label may hold. Consecutive hyphens become one, for
// a label that starts with xn-- would be read as punycode.
func slug(name string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() >= maxHandle {
			break
		}
	}
	return strings.Trim(b.String(), "-")
}
