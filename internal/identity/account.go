package identity

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/grant"
)

// User is an account.
type User struct {
	ID      string
	Name    string
	Claimed bool // somebody has signed in to it with a browser
	Created time.Time
}

// Owner returns the account of the machine's owner, which always has every power; it is
// made when it is missing.
func (s *Store) Owner(ctx context.Context) (User, error) {
	const op = "identity.Owner"
	var u User
	err := s.tx(ctx, func(tx *sql.Tx) error {
		var err error
		u, err = scanUser(tx.QueryRowContext(ctx, "SELECT id, name, created, claimed FROM users WHERE id = (SELECT owner FROM machine)"))
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if u, err = s.newUser(ctx, tx, "Owner", grant.Powers()); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO machine (one, owner) VALUES (1, ?)", u.ID)
		return err
	})
	return u, fault.Wrap(op, err)
}

// User returns an account by its id.
func (s *Store) User(ctx context.Context, id string) (User, error) {
	const op = "identity.User"
	u, err := scanUser(s.db.QueryRowContext(ctx, "SELECT id, name, created, claimed FROM users WHERE id = ?", id))
	if errors.Is(err, sql.ErrNoRows) {
		return User{}, fault.New(op, fault.NotFound, "", errNoAccount)
	}
	return u, fault.Wrap(op, err)
}

func scanUser(row *sql.Row) (User, error) {
	var u User
	var created, claimed int64
	if err := row.Scan(&u.ID, &u.Name, &created, &claimed); err != nil {
		return User{}, err
	}
	u.Created, u.Claimed = fromMillis(created), claimed != 0
	return u, nil
}

// NewLink makes the token of a one-time link for an account: whoever posts it first signs
// in. It lasts LinkTTL, or until a session of the account is ended. An account has a few valid ones at most; the oldest is dropped.
func (s *Store) NewLink(ctx context.Context, user string) (token string, expires time.Time, err error) {
	return s.newLink(ctx, "identity.NewLink", user, "")
}

// NewLinkFrom is NewLink for who is signed in by a session or a token. The error is fault.Denied if that has ended.
func (s *Store) NewLinkFrom(ctx context.Context, user, session string) (token string, expires time.Time, err error) {
	return s.newLink(ctx, "identity.NewLinkFrom", user, session)
}

func (s *Store) newLink(ctx context.Context, op, user, session string) (token string, expires time.Time, err error) {
	token, hash := newSecret("")
	now := s.millis()
	end := now + LinkTTL.Milliseconds()
	err = s.tx(ctx, func(tx *sql.Tx) error {
		if session != "" {
			var found int
			err := tx.QueryRowContext(ctx, "SELECT (SELECT count(*) FROM sessions WHERE id = ?1 AND user = ?2 AND kind = 'console' AND expires > ?3) + (SELECT count(*) FROM tokens WHERE id = ?1 AND user = ?2)", session, user, now).Scan(&found)
			if err == nil && found == 0 {
				err = fault.New("", fault.Denied, "Sign in again.", errors.New("the session that asks has ended"))
			}
			if err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx, "DELETE FROM links WHERE expires <= ? OR used <> 0", now); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO links (hash, user, created, expires) VALUES (?, ?, ?, ?)", hash, user, now, end); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `DELETE FROM links WHERE user = ? AND hash NOT IN
			(SELECT hash FROM links WHERE user = ? ORDER BY created DESC, hash = ? DESC LIMIT ?)`, user, user, hash, maxLinks)
		return err
	})
	if err != nil {
		return "", time.Time{}, fault.Wrap(op, err)
	}
	return token, fromMillis(end), nil
}

// Claim uses a link up, opens a console session for its account and drops the account's
// other links. The error is fault.Denied when the link is unknown, used or expired: the
// answer is the same for all three.
func (s *Store) Claim(ctx context.Context, token string) (Session, string, error) {
	const op = "identity.Claim"
	refuse := denied(op, "choir open makes another for this machine's owner, and choir accounts link for somebody who was invited.", "this link is not valid any more")
	if !plausible(token) {
		return Session{}, "", refuse
	}
	var out Session
	var secret string
	err := s.tx(ctx, func(tx *sql.Tx) error {
		now := s.millis()
		var user string
		use := "UPDATE links SET used = ? WHERE hash = ? AND used = 0 AND expires > ? RETURNING user"
		if defence.Off(defence.IdentityUsed) {
			use = "UPDATE links SET used = ? WHERE hash = ? AND expires > ? RETURNING user"
		}
		err := tx.QueryRowContext(ctx, use, now, hashOf(token), now).Scan(&user)
		if errors.Is(err, sql.ErrNoRows) {
			return refuse
		}
		if err != nil {
			return err
		}
		if !defence.Off(defence.IdentityForget) {
			if _, err := tx.ExecContext(ctx, "DELETE FROM links WHERE user = ?", user); err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx, "UPDATE users SET claimed = ? WHERE id = ? AND claimed = 0", now, user); err != nil {
			return err
		}
		out, secret, err = s.openSession(ctx, tx, Session{User: user, Kind: Console}, nil, now+SessionTTL.Milliseconds())
		return err
	})
	if err != nil {
		return Session{}, "", fault.Wrap(op, err)
	}
	return out, secret, nil
}
