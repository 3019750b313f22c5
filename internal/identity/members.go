package identity

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/grant"
)

// InvitationTTL is how long an invitation can be accepted.
const InvitationTTL = 7 * 24 * time.Hour

// Bounds.
const (
	maxAccounts    = 1000
	maxMembers     = 100 // of a computer
	maxInvitations = 32  // of a computer that wait
	maxTokens      = 64  // of an account
)

// membersSince is the schema version from which on computers have members.
const membersSince = 4

// addMembers is the migration from one owner to members: the account that owned a computer
// becomes its owner, and the first account becomes the machine's owner.
func addMembers() string {
	var b strings.Builder
	b.WriteString(`
CREATE TABLE kept AS SELECT id, owner, handle, created FROM computers;
DROP TABLE computers;
CREATE TABLE computers (
  id      TEXT    PRIMARY KEY,
  handle  TEXT    NOT NULL UNIQUE, -- the first label of its desktop's host name
  created INTEGER NOT NULL,
  sum     BLOB    NOT NULL DEFAULT x''
) STRICT, WITHOUT ROWID;
CREATE TABLE members (
  id       TEXT    PRIMARY KEY,
  computer TEXT    NOT NULL REFERENCES computers (id) ON DELETE CASCADE,
  user     TEXT    NOT NULL REFERENCES users (id) ON DELETE CASCADE,
  role     TEXT    NOT NULL CHECK (role IN ('viewer', 'editor', 'owner')),
  created  INTEGER NOT NULL,
  sum      BLOB    NOT NULL DEFAULT x'',
  UNIQUE (user, computer)
) STRICT, WITHOUT ROWID;
CREATE INDEX members_by_computer ON members (computer);
CREATE TABLE powers (
  id      TEXT    PRIMARY KEY,
  user    TEXT    NOT NULL REFERENCES users (id) ON DELETE CASCADE,
  power   TEXT    NOT NULL,
  created INTEGER NOT NULL,
  sum     BLOB    NOT NULL DEFAULT x'',
  UNIQUE (user, power)
) STRICT, WITHOUT ROWID;
-- Whose machine this is: an account that can't go and keeps every power.
CREATE TABLE machine (
  one   INTEGER PRIMARY KEY CHECK (one = 1),
  owner TEXT    NOT NULL REFERENCES users (id),
  sum   BLOB    NOT NULL DEFAULT x''
) STRICT;
CREATE TABLE invitations (
  hash     BLOB    PRIMARY KEY,
  id       TEXT    NOT NULL UNIQUE,
  computer TEXT    NOT NULL REFERENCES computers (id) ON DELETE CASCADE,
  role     TEXT    NOT NULL CHECK (role IN ('viewer', 'editor', 'owner')),
  user     TEXT    NOT NULL REFERENCES users (id) ON DELETE CASCADE, -- who invites
  created  INTEGER NOT NULL,
  expires  INTEGER NOT NULL,
  sum      BLOB    NOT NULL DEFAULT x''
) STRICT, WITHOUT ROWID;
CREATE INDEX invitations_by_computer ON invitations (computer);
`)
	for _, t := range summedMembers {
		b.WriteString(t.triggers())
	}
	b.WriteString(`
INSERT INTO computers (id, handle, created) SELECT id, handle, created FROM kept;
INSERT INTO members (id, computer, user, role, created) SELECT 'm-' || id, id, owner, 'owner', created FROM kept;
DROP TABLE kept;
INSERT INTO machine (one, owner) SELECT 1, id FROM users ORDER BY created, id LIMIT 1;
`)
	for _, p := range []string{"secrets", "models", "machine", "computers", "accounts"} { // the powers of that version
		fmt.Fprintf(&b, "INSERT INTO powers (id, user, power, created) SELECT 'p-' || id || '-%[1]s', id, '%[1]s', created FROM users WHERE id = (SELECT owner FROM machine);\n", p)
	}
	return b.String()
}

// Member is an account's place in a computer.
type Member struct {
	Account string
	Name    string // the account's
	Role    grant.Role
	Since   time.Time
}

// Held returns what an account was granted: its powers, and its role in a computer. An
// account that does not exist holds nothing.
func (s *Store) Held(ctx context.Context, account string, cid contract.CID) (grant.Holder, error) {
	h, err := remembered(ctx, s, heldBy{account, cid}, func(ctx context.Context) (h grant.Holder, keep bool, err error) {
		var powers string
		err = s.db.QueryRowContext(ctx, `SELECT id, coalesce((SELECT role FROM members WHERE user = users.id AND computer = ?), ''),
			coalesce((SELECT group_concat(power) FROM powers WHERE user = users.id), '') FROM users WHERE id = ?`, string(cid), account).Scan(&h.Account, &h.Role, &powers)
		for p := range strings.SplitSeq(powers, ",") {
			if p != "" {
				h.Powers = append(h.Powers, grant.Power(p))
			}
		}
		return h, cid == "" || h.Role != grant.None, err
	})
	if errors.Is(err, sql.ErrNoRows) {
		return grant.Holder{}, nil
	}
	h.Powers = slices.Clone(h.Powers)
	return h, fault.Wrap("identity.Held", err)
}

// heldBy is the key of the question what an account holds in a computer.
type heldBy struct {
	account  string
	computer contract.CID
}

// Mine returns the computers that an account is a member of, oldest first, with
// its role in each.
func (s *Store) Mine(ctx context.Context, account string) (map[contract.CID]grant.Role, error) {
	type mine struct {
		cid  contract.CID
		role grant.Role
	}
	roles, err := remembered(ctx, s, rolesOf(account), func(ctx context.Context) (map[contract.CID]grant.Role, bool, error) {
		list, err := scanAll(ctx, s.db, func(rows *sql.Rows) (m mine, err error) { return m, rows.Scan(&m.cid, &m.role) },
			"SELECT computer, role FROM members WHERE user = ?", account)
		out := make(map[contract.CID]grant.Role, len(list))
		for _, m := range list {
			out[m.cid] = m.role
		}
		return out, len(out) > 0, err
	})
	return maps.Clone(roles), fault.Wrap("identity.Mine", err)
}

// rolesOf is the key of the question which computers an account is a member of.
type rolesOf string

// Members lists a computer's members, in the order in which they joined.
func (s *Store) Members(ctx context.Context, cid contract.CID) ([]Member, error) {
	const op = "identity.Members"
	out, err := scanAll(ctx, s.db, func(rows *sql.Rows) (m Member, err error) {
		var since int64
		err = rows.Scan(&m.Account, &m.Name, &m.Role, &since)
		m.Since = fromMillis(since)
		return m, err
	}, "SELECT users.id, users.name, role, members.created FROM members JOIN users ON users.id = user WHERE computer = ? ORDER BY members.created, users.id", string(cid))
	return out, fault.Wrap(op, err)
}

func (s *Store) addMember(ctx context.Context, tx *sql.Tx, cid contract.CID, account string, role grant.Role) error {
	if err := atMost(ctx, tx, maxMembers, "members of this computer", "Remove one first.", "SELECT count(*) FROM members WHERE computer = ?", string(cid)); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO members (id, computer, user, role, created) VALUES (?, ?, ?, ?, ?)", "m-"+contract.NewID(), string(cid), account, string(role), s.millis())
	return err
}

var errNoMember = errors.New("there is no such member")

// SetRole gives a member another role. It returns the desktop sessions that ended by it,
// which get their new permissions when they come back, and the tokens for git that ended
// because they may no longer push. A computer keeps an owner.
func (s *Store) SetRole(ctx context.Context, cid contract.CID, account string, role grant.Role) ([]string, error) {
	return s.change(ctx, "identity.SetRole", cid, account, role, "UPDATE members SET role = ?3 WHERE computer = ?1 AND user = ?2", role)
}

// RemoveMember takes a member out of a computer, and returns the desktop sessions
// and tokens for git that ended by it. A computer keeps an owner.
func (s *Store) RemoveMember(ctx context.Context, cid contract.CID, account string) ([]string, error) {
	return s.change(ctx, "identity.RemoveMember", cid, account, grant.None, "DELETE FROM members WHERE computer = ?1 AND user = ?2")
}

func (s *Store) change(ctx context.Context, op string, cid contract.CID, account string, role grant.Role, how string, more ...any) (ended []string, err error) {
	err = s.tx(ctx, func(tx *sql.Tx) error {
		var was grant.Role
		var others int
		err := tx.QueryRowContext(ctx, `SELECT role, (SELECT count(*) FROM members WHERE computer = ?1 AND user <> ?2 AND role = 'owner')
			FROM members WHERE computer = ?1 AND user = ?2`, string(cid), account).Scan(&was, &others)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return fault.New("", fault.NotFound, "", errNoMember)
		case err != nil:
			return err
		case was == grant.Owner && role != grant.Owner && others == 0:
			return fault.New("", fault.Conflict, "Make somebody else an owner first.", errors.New("this is the computer's only owner"))
		}
		if _, err := tx.ExecContext(ctx, how, append([]any{string(cid), account}, more...)...); err != nil {
			return err
		}
		if role != grant.Owner {
			// Invitations that the member made are void.
			if _, err := tx.ExecContext(ctx, "DELETE FROM invitations WHERE computer = ? AND user = ?", string(cid), account); err != nil {
				return err
			}
		}
		if ended, err = endSessions(ctx, tx, "user = ? AND computer = ?", account, string(cid)); err != nil {
			return err
		}
		// A token for git that lost its permission does not get it back with a later role.
		tokens, err := endGitTokens(ctx, tx, "user = ? AND computer = ? AND (? OR write AND ?)", account, string(cid), role == grant.None, !role.AtLeast(grant.Editor))
		ended = append(ended, tokens...)
		return err
	})
	return ended, fault.Wrap(op, err)
}

// Invitation lets somebody into a computer.
type Invitation struct {
	ID      string
	Role    grant.Role
	By      string // the account that invites
	Expires time.Time
}

// NewInvitation makes the token of a link that makes one account a member of a computer.
// The caller has checked that by may invite; that by is still an owner is checked here in
// the same transaction, for invitations are dropped with their maker's membership.
func (s *Store) NewInvitation(ctx context.Context, cid contract.CID, role grant.Role, by string) (Invitation, string, error) {
	const op = "identity.NewInvitation"
	token, hash := newSecret("")
	now := s.millis()
	v := Invitation{ID: "i-" + contract.NewID(), Role: role, By: by, Expires: fromMillis(now + InvitationTTL.Milliseconds())}
	err := s.tx(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "DELETE FROM invitations WHERE expires <= ?", now); err != nil {
			return err
		}
		var owns bool
		if err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM members WHERE computer = ? AND user = ? AND role = 'owner')", string(cid), by).Scan(&owns); err != nil {
			return err
		}
		if !owns {
			return denied("", "Ask one of its owners.", "you are no owner of this computer any more")
		}
		if err := atMost(ctx, tx, maxInvitations, "invitations to this computer", "Take one back first.", "SELECT count(*) FROM invitations WHERE computer = ?", string(cid)); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO invitations (hash, id, computer, role, user, created, expires) VALUES (?, ?, ?, ?, ?, ?, ?)",
			hash, v.ID, string(cid), string(role), by, now, v.Expires.UnixMilli())
		return err
	})
	if err != nil {
		return Invitation{}, "", fault.Wrap(op, err)
	}
	return v, token, nil
}

// Invitations lists a computer's open invitations, oldest first.
func (s *Store) Invitations(ctx context.Context, cid contract.CID) ([]Invitation, error) {
	const op = "identity.Invitations"
	out, err := scanAll(ctx, s.db, func(rows *sql.Rows) (v Invitation, err error) {
		var expires int64
		err = rows.Scan(&v.ID, &v.Role, &v.By, &expires)
		v.Expires = fromMillis(expires)
		return v, err
	}, "SELECT id, role, user, expires FROM invitations WHERE computer = ? AND expires > ? ORDER BY created, id", string(cid), s.millis())
	return out, fault.Wrap(op, err)
}

// TakeBack revokes an invitation.
func (s *Store) TakeBack(ctx context.Context, cid contract.CID, id string) error {
	const op = "identity.TakeBack"
	res, err := s.exec(ctx, "DELETE FROM invitations WHERE id = ? AND computer = ?", id, string(cid))
	if err != nil {
		return fault.Wrap(op, err)
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return errors.Join(err, fault.New(op, fault.NotFound, "", errors.New("there is no such invitation")))
	}
	return nil
}

// Accept uses an invitation up and makes an account a member. The error is fault.Conflict
// when the account is one already with at least that role, and the invitation then stays
// usable for whoever it was meant for. It is fault.Denied when the invitation is unknown,
// used, revoked or expired: the answer is the same for all.
func (s *Store) Accept(ctx context.Context, token, account string) (contract.CID, grant.Role, error) {
	const op = "identity.Accept"
	refuse := denied(op, "Ask for another one.", "this invitation is not valid any more")
	if !plausible(token) {
		return "", "", refuse
	}
	var cid contract.CID
	var role grant.Role
	err := s.tx(ctx, func(tx *sql.Tx) error {
		use := "DELETE FROM invitations WHERE hash = ? AND expires > ? RETURNING computer, role"
		if defence.Off(defence.IdentityInvited) {
			use = "SELECT computer, role FROM invitations WHERE hash = ? AND expires > ?"
		}
		err := tx.QueryRowContext(ctx, use, hashOf(token), s.millis()).Scan(&cid, &role)
		if errors.Is(err, sql.ErrNoRows) {
			return refuse
		}
		if err != nil {
			return err
		}
		var had grant.Role
		err = tx.QueryRowContext(ctx, "SELECT role FROM members WHERE computer = ? AND user = ?", string(cid), account).Scan(&had)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return s.addMember(ctx, tx, cid, account, role)
		case err != nil:
			return err
		case had.AtLeast(role):
			return fault.New("", fault.Conflict, "The invitation is still good: give it to who is to join, who uses it as themselves.",
				fmt.Errorf("you are a member of this computer already, as %s", had))
		}
		_, err = tx.ExecContext(ctx, "UPDATE members SET role = ? WHERE computer = ? AND user = ?", string(role), string(cid), account)
		return err
	})
	if err != nil {
		return "", "", fault.Wrap(op, err)
	}
	return cid, role, nil
}
