package identity

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"choir.dev/choiros/internal/fault"
)

// devicesSince is the schema version from which on it is kept what a session's browser is.
const devicesSince = 8

// summedDevices is the table of sessions from that version on.
var summedDevices = []summedTable{
	{"sessions", []string{"hash", "id", "user", "kind", "computer", "parent", "created", "seen", "expires", "device"}},
}

// addDevices is the migration that keeps what a session's browser is. Of existing ones it is not known.
func addDevices() string {
	return `
DROP TRIGGER sessions_inserted;
DROP TRIGGER sessions_updated;
ALTER TABLE sessions ADD COLUMN device TEXT NOT NULL DEFAULT ''; -- in words, such as Firefox on Linux
` + summedDevices[0].triggers() + `
UPDATE sessions SET device = '';
`
}

// SignedIn is a browser that is signed in to the console.
type SignedIn struct {
	ID, Device             string
	Created, Used, Expires time.Time
}

// Describe keeps what the browser of a session is, in words.
func (s *Store) Describe(ctx context.Context, session, device string) error {
	_, err := s.exec(ctx, "UPDATE sessions SET device = ? WHERE id = ?", device, session)
	return fault.Wrap("identity.Describe", err)
}

// SignedIn lists an account's console sessions that are valid, the one used last first.
func (s *Store) SignedIn(ctx context.Context, user string) (out []SignedIn, err error) {
	const op = "identity.SignedIn"
	now := s.millis()
	err = s.tx(ctx, func(tx *sql.Tx) error {
		out, err = scanAll(ctx, tx, func(rows *sql.Rows) (v SignedIn, err error) {
			var created, used, expires int64
			err = rows.Scan(&v.ID, &v.Device, &created, &used, &expires)
			v.Created, v.Used, v.Expires = fromMillis(created), fromMillis(used), fromMillis(min(expires, used+SessionIdle.Milliseconds()))
			return v, err
		}, "SELECT id, device, created, seen, expires FROM sessions WHERE user = ? AND kind = 'console' AND expires > ? AND seen > ? ORDER BY seen DESC, id",
			user, now, now-SessionIdle.Milliseconds())
		return err
	})
	return out, fault.Wrap(op, err)
}

// EndSession ends one of an account's console sessions and the desktop sessions that depend on it, with the account's links,
// any of which that session may have made, and returns the ids of all that ended. fault.NotFound when the account has none with this id.
func (s *Store) EndSession(ctx context.Context, user, id string) (ids []string, err error) {
	const op = "identity.EndSession"
	err = s.tx(ctx, func(tx *sql.Tx) error {
		ids, err = endSessions(ctx, tx, "id = ?1 AND user = ?2 AND kind = 'console' OR parent = (SELECT above.hash FROM sessions AS above WHERE above.id = ?1 AND above.user = ?2 AND above.kind = 'console')", id, user)
		if err == nil && len(ids) == 0 {
			err = fault.New("", fault.NotFound, "Look at the list again.", errors.New("this session has ended already"))
		}
		if err == nil {
			_, err = tx.ExecContext(ctx, "DELETE FROM links WHERE user = ?", user)
		}
		return err
	})
	return ids, fault.Wrap(op, err)
}
