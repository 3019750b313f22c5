package identity

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
)

// Bounds of tokens for git.
const (
	maxGitTokens = 256 // of an account
	// MostGitDays is the longest lifetime of one.
	MostGitDays = 366
)

// gitTokensSince is the version from which on there are tokens for git.
const gitTokensSince = 5

// summedGitTokens are the tables that this version added.
var summedGitTokens = []summedTable{
	{"git_tokens", []string{"hash", "id", "user", "name", "computer", "repository", "write", "parent", "created", "expires"}},
}

// addGitTokens is the migration that adds tokens for git. They have a table of their own,
// so that nothing takes them for API tokens.
func addGitTokens() string {
	return `
CREATE TABLE git_tokens (
  hash       BLOB    PRIMARY KEY,
  id         TEXT    NOT NULL UNIQUE,
  user       TEXT    NOT NULL REFERENCES users (id) ON DELETE CASCADE,
  name       TEXT    NOT NULL,
  computer   TEXT    NOT NULL REFERENCES computers (id) ON DELETE CASCADE,
  repository TEXT    NOT NULL, -- where it lies; empty: the history of the computer's own files
  write      INTEGER NOT NULL, -- may push
  parent     TEXT    NOT NULL, -- the API token that made it, with which it ends; empty: a person
  created    INTEGER NOT NULL,
  expires    INTEGER NOT NULL,
  sum        BLOB    NOT NULL DEFAULT x''
) STRICT, WITHOUT ROWID;
CREATE INDEX git_tokens_by_user ON git_tokens (user);
` + summedGitTokens[0].triggers()
}

// GitScope is what a token for git allows: one repository of one computer.
type GitScope struct {
	Computer   contract.CID
	Repository string
	Write      bool
	Expires    time.Time
}

// NewGitToken makes a token for git for an account; parent is the API token that asked for
// it, "" for a person. The secret is returned only here.
func (s *Store) NewGitToken(ctx context.Context, user, parent, name string, scope GitScope) (Token, string, error) {
	const op = "identity.NewGitToken"
	secret, hash := newSecret("choir_git_")
	now := s.millis()
	scope.Expires = fromMillis(scope.Expires.UnixMilli())
	t := Token{ID: "g-" + contract.NewID(), User: user, Name: name, Created: fromMillis(now), Git: &scope}
	if d := scope.Expires.Sub(t.Created); d <= 0 || d > MostGitDays*24*time.Hour {
		return Token{}, "", fault.New(op, fault.Invalid, "Choose a shorter time.", errors.New("a token for git is good for a year at most"))
	}
	err := s.tx(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "DELETE FROM git_tokens WHERE expires <= ?", now); err != nil {
			return err
		}
		if err := atMost(ctx, tx, maxGitTokens, "tokens for git of this account", "Revoke one first.", "SELECT count(*) FROM git_tokens WHERE user = ?", user); err != nil {
			return err
		}
		// The token that asks may have been revoked, or the account removed as a member, in
		// the meantime. The new token expires no later than the one that asked for it.
		var ends int64
		if err := tx.QueryRowContext(ctx, "SELECT coalesce(max(expires), 0) FROM tokens WHERE id = ?", parent).Scan(&ends); err != nil {
			return err
		}
		if ends > 0 && ends < scope.Expires.UnixMilli() {
			scope.Expires = fromMillis(ends)
		}
		res, err := tx.ExecContext(ctx, `INSERT INTO git_tokens (hash, id, user, name, computer, repository, write, parent, created, expires)
			SELECT ?, ?, ?3, ?, ?5, ?, ?, ?8, ?, ? WHERE (?8 = '' OR EXISTS (SELECT 1 FROM tokens WHERE id = ?8 AND user = ?3))
			AND EXISTS (SELECT 1 FROM members WHERE computer = ?5 AND user = ?3)`,
			hash, t.ID, user, name, string(scope.Computer), scope.Repository, scope.Write, parent, now, scope.Expires.UnixMilli())
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return cmp.Or(err, denied("", "Sign in again.", "the token that asks for one has been revoked, or its account is no member any more"))
		}
		return nil
	})
	if err != nil {
		return Token{}, "", fault.Wrap(op, err)
	}
	return t, secret, nil
}

// GitToken checks a secret that git was given: a token for git, or an API token, which may
// do what its account may. The error is fault.Denied when it is unknown, revoked or
// expired.
func (s *Store) GitToken(ctx context.Context, secret string) (Token, error) {
	const op = "identity.GitToken"
	if !strings.HasPrefix(secret, "choir_git_") {
		return s.Token(ctx, secret)
	}
	refuse := denied(op, "Make another one: choir git url", "the token for git is not valid, or has expired")
	if !plausible(secret) {
		return Token{}, refuse
	}
	t, err := scanGitToken(s.db.QueryRowContext(ctx, "SELECT "+gitTokenColumns+" FROM git_tokens WHERE hash = ?", hashOf(secret)))
	if errors.Is(err, sql.ErrNoRows) {
		return Token{}, refuse
	}
	if err != nil {
		return Token{}, fault.Wrap(op, err)
	}
	if s.millis() >= t.Git.Expires.UnixMilli() && !defence.Off(defence.GitExpiry) {
		return Token{}, refuse
	}
	return t, nil
}

const gitTokenColumns = "id, user, name, computer, repository, write, created, expires"

func scanGitToken(row interface{ Scan(...any) error }) (Token, error) {
	t := Token{Git: &GitScope{}}
	var created, expires int64
	err := row.Scan(&t.ID, &t.User, &t.Name, &t.Git.Computer, &t.Git.Repository, &t.Git.Write, &created, &expires)
	t.Created, t.Git.Expires = fromMillis(created), fromMillis(expires)
	t.Expires, t.May = t.Git.Expires, []contract.Capability{contract.CanRead}
	if t.Git.Write {
		t.May = append(t.May, contract.CanWrite)
	}
	return t, err
}

// gitTokens lists an account's valid tokens for git, oldest first.
func (s *Store) gitTokens(ctx context.Context, user string) ([]Token, error) {
	return scanAll(ctx, s.db, func(rows *sql.Rows) (Token, error) { return scanGitToken(rows) },
		"SELECT "+gitTokenColumns+" FROM git_tokens WHERE user = ? AND expires > ? ORDER BY created, id", user, s.millis())
}

// endGitTokens removes the tokens that a condition selects, and returns their ids.
func endGitTokens(ctx context.Context, tx *sql.Tx, chosen string, args ...any) ([]string, error) {
	return scanAll(ctx, tx, func(rows *sql.Rows) (id string, err error) { return id, rows.Scan(&id) },
		"DELETE FROM git_tokens WHERE "+chosen+" RETURNING id", args...)
}
