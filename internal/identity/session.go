package identity

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
)

// Kind says what a session covers.
type Kind string

// The kinds of session.
const (
	Console Kind = "console" // the console and all the account's computers
	Desktop Kind = "desktop" // one computer's desktop, nothing else
)

// Session is a signed-in browser. ID names it in logs and on the bus; the
// secret in its cookie is not kept.
type Session struct {
	ID       string
	Root     string // the console session that it depends on, or itself
	User     string
	Kind     Kind
	Computer contract.CID // of a desktop's session
	Expires  time.Time    // absolute
}

// rootOf is the SQL expression for a session's Root.
const rootOf = "coalesce((SELECT above.id FROM sessions AS above WHERE above.hash = sessions.parent), id)"

const noSession = "this session has ended"

// Session checks a session's secret and kind, and notes that it was used.
// fault.Denied when it is unknown, of another kind, expired or was idle too long.
func (s *Store) Session(ctx context.Context, secret string, kind Kind) (Session, error) {
	const op = "identity.Session"
	refuse := denied(op, "Sign in again with a new link: run choir up.", noSession)
	if !plausible(secret) {
		return Session{}, refuse
	}
	hash := hashOf(secret)
	kept, err := remembered(ctx, s, sessionOf(hash), func(ctx context.Context) (k keptSession, keep bool, err error) {
		err = s.db.QueryRowContext(ctx, "SELECT id, "+rootOf+", user, kind, computer, seen, expires FROM sessions WHERE hash = ?", hash).
			Scan(&k.ID, &k.Root, &k.User, &k.Kind, &k.Computer, &k.seen, &k.expires)
		return k, true, err
	})
	out, seen, expires, now := kept.Session, kept.seen, kept.expires, s.millis()
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return Session{}, refuse
	case err != nil:
		return Session{}, fault.Wrap(op, err)
	case out.Kind != kind && !defence.Off(defence.IdentityKind):
		return Session{}, refuse
	case (now >= expires || now-seen >= idle(kind).Milliseconds()) && !defence.Off(defence.IdentityExpiry):
		if _, err := s.exec(ctx, "DELETE FROM sessions WHERE hash = ?", hash); err != nil {
			return Session{}, fault.Wrap(op, err)
		}
		return Session{}, refuse
	}
	if now-seen >= touchEvery.Milliseconds() {
		// Using a desktop keeps the console session alive that it depends on.
		if _, err := s.exec(ctx, `UPDATE sessions SET seen = ?1 WHERE hash = ?2
			OR hash = (SELECT parent FROM sessions WHERE hash = ?2)`, now, hash); err != nil {
			return Session{}, fault.Wrap(op, err)
		}
	}
	out.Expires = fromMillis(expires)
	return out, nil
}

// sessionOf is the key of the question whose session has a hash; principalOf, of which
// desktop session has an id.
type (
	sessionOf   string
	principalOf string
)

// keptSession is a session's row. Whether it has expired is decided when it is used.
type keptSession struct {
	Session
	seen, expires int64
}

func idle(k Kind) time.Duration {
	if k == Desktop {
		return DesktopIdle
	}
	return SessionIdle
}

// openSession inserts a session and drops the account's oldest when it has too many.
func (s *Store) openSession(ctx context.Context, tx *sql.Tx, ses Session, parent []byte, expires int64) (Session, string, error) {
	secret, hash := newSecret("")
	now := s.millis()
	ses.ID = "s-" + contract.NewID()
	ses.Expires = fromMillis(expires)
	_, err := tx.ExecContext(ctx, "INSERT INTO sessions (hash, id, user, kind, computer, parent, created, seen, expires) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
		hash, ses.ID, ses.User, string(ses.Kind), string(ses.Computer), parent, now, now, expires)
	if err != nil {
		return Session{}, "", err
	}
	if _, err := tx.ExecContext(ctx, "DELETE FROM sessions WHERE expires <= ?", now); err != nil {
		return Session{}, "", err
	}
	_, err = tx.ExecContext(ctx, `DELETE FROM sessions WHERE user = ?1 AND kind = ?2 AND hash <> ?3 AND hash NOT IN
		(SELECT hash FROM sessions WHERE user = ?1 AND kind = ?2 ORDER BY seen DESC LIMIT ?4)`, ses.User, string(ses.Kind), hash, maxSessions)
	return ses, secret, err
}

// NewTicket makes a secret with which a console session enters one of its computers'
// desktops: Enter accepts it once, within TicketTTL. The caller has checked that the
// computer is the account's.
func (s *Store) NewTicket(ctx context.Context, consoleSecret string, cid contract.CID) (string, error) {
	const op = "identity.NewTicket"
	secret, hash := newSecret("")
	parent, now := hashOf(consoleSecret), s.millis()
	err := s.tx(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "DELETE FROM tickets WHERE expires <= ?", now); err != nil {
			return err
		}
		var live int
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM tickets WHERE session = ?", parent).Scan(&live); err != nil {
			return err
		}
		if live >= maxTickets {
			return fault.New("", fault.Exhausted, "Wait half a minute.", errors.New("too many tickets are waiting to be used"))
		}
		res, err := tx.ExecContext(ctx, "INSERT INTO tickets (hash, session, computer, expires) SELECT ?, hash, ?, ? FROM sessions WHERE hash = ? AND kind = 'console' AND expires > ?",
			hash, string(cid), now+TicketTTL.Milliseconds(), parent, now)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, denied("", "Sign in again.", noSession))
		}
		return nil
	})
	return secret, fault.Wrap(op, err)
}

// Enter uses a ticket up and opens a session for the desktop of cid, which
// must be the computer the ticket was made for. It ends with the console
// session that asked, at the latest. fault.Denied otherwise.
func (s *Store) Enter(ctx context.Context, ticket string, cid contract.CID) (Session, string, error) {
	const op = "identity.Enter"
	refuse := denied(op, "Open the computer from the console.", "this ticket is not valid any more")
	if !plausible(ticket) {
		return Session{}, "", refuse
	}
	var out Session
	var secret string
	err := s.tx(ctx, func(tx *sql.Tx) error {
		now := s.millis()
		var parent []byte
		var computer string
		var expires int64
		// The ticket is deleted whatever computer it is for: one that is used for another
		// computer is spent.
		use := "DELETE FROM tickets WHERE hash = ? RETURNING session, computer, expires"
		if defence.Off(defence.IdentityTicket) {
			use = "SELECT session, computer, expires FROM tickets WHERE hash = ?"
		}
		err := tx.QueryRowContext(ctx, use, hashOf(ticket)).Scan(&parent, &computer, &expires)
		if errors.Is(err, sql.ErrNoRows) {
			return nil // refused below; nothing to undo
		}
		if err != nil {
			return err
		}
		if now >= expires || computer != string(cid) {
			return nil
		}
		var user string
		var end int64
		if err := tx.QueryRowContext(ctx, "SELECT user, expires FROM sessions WHERE hash = ? AND kind = 'console'", parent).Scan(&user, &end); err != nil {
			return err
		}
		if now >= end {
			return nil
		}
		out, secret, err = s.openSession(ctx, tx, Session{User: user, Kind: Desktop, Computer: cid}, parent, end)
		return err
	})
	if err != nil {
		return Session{}, "", fault.Wrap(op, err)
	}
	if secret == "" {
		return Session{}, "", refuse
	}
	return out, secret, nil
}

// SignOut ends a console session and the desktop sessions that depend on it, with its account's links, any of which it may have
// made, and returns the ids of all that ended.
func (s *Store) SignOut(ctx context.Context, secret string) ([]string, error) {
	const op = "identity.SignOut"
	if _, err := s.exec(ctx, "DELETE FROM links WHERE user = (SELECT user FROM sessions WHERE hash = ?)", hashOf(secret)); err != nil {
		return nil, fault.Wrap(op, err)
	}
	return s.end(ctx, op, "hash = ?1 OR parent = ?1", hashOf(secret))
}

// RevokeAll ends every session of an account, with its links and tickets, and
// returns the ids of the sessions that ended. API tokens stay.
func (s *Store) RevokeAll(ctx context.Context, user string) ([]string, error) {
	if _, err := s.exec(ctx, "DELETE FROM links WHERE user = ?", user); err != nil {
		return nil, fault.Wrap("identity.RevokeAll", err)
	}
	return s.end(ctx, "identity.RevokeAll", "user = ?1", user)
}

func (s *Store) end(ctx context.Context, op, where string, arg any) (ids []string, err error) {
	err = s.tx(ctx, func(tx *sql.Tx) error {
		ids, err = endSessions(ctx, tx, where, arg)
		return err
	})
	return ids, fault.Wrap(op, err)
}

// Valid says whether a session or an API token with this id exists.
func (s *Store) Valid(ctx context.Context, id string) (bool, error) {
	expires, err := remembered(ctx, s, expiryOf(id), func(ctx context.Context) (expires int64, keep bool, err error) {
		err = s.db.QueryRowContext(ctx, `SELECT 0 FROM sessions WHERE id = ?1 UNION ALL SELECT expires FROM tokens WHERE id = ?1
			UNION ALL SELECT max(expires, 1) FROM git_tokens WHERE id = ?1`, id).Scan(&expires)
		return expires, true, err
	})
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil && (expires == 0 || expires > s.millis()), fault.Wrap("identity.Valid", err)
}

// expiryOf asks when what has an id ends, 0: when somebody ends it.
type expiryOf string

// ByPrincipal returns the desktop session with an id, which is its principal on
// the bus. fault.Denied when it has ended.
func (s *Store) ByPrincipal(ctx context.Context, id string) (Session, error) {
	const op = "identity.ByPrincipal"
	kept, err := remembered(ctx, s, principalOf(id), func(ctx context.Context) (k keptSession, keep bool, err error) {
		err = s.db.QueryRowContext(ctx, "SELECT id, "+rootOf+", user, kind, computer, expires FROM sessions WHERE id = ? AND kind = 'desktop'", id).
			Scan(&k.ID, &k.Root, &k.User, &k.Kind, &k.Computer, &k.expires)
		return k, true, err
	})
	if errors.Is(err, sql.ErrNoRows) || err == nil && s.millis() >= kept.expires {
		return Session{}, denied(op, "Reload the console.", noSession)
	}
	kept.Expires = fromMillis(kept.expires)
	return kept.Session, fault.Wrap(op, err)
}
