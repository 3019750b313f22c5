package identity

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
)

// scopesSince is the version from which on API tokens have a scope and an expiry.
const scopesSince = 6

// summedScopes is the table of API tokens from then on.
var summedScopes = []summedTable{
	{"tokens", []string{"hash", "id", "user", "name", "created", "may", "expires"}},
}

// addScopes is the migration that gives API tokens a scope and an expiry. Existing ones may
// do what their account may and do not expire. A row without a scope allows nothing.
func addScopes() string {
	return `
DROP TRIGGER tokens_inserted;
DROP TRIGGER tokens_updated;
ALTER TABLE tokens ADD COLUMN may TEXT NOT NULL DEFAULT ''; -- capabilities, one space between; '` + whole + `': all that its account may
ALTER TABLE tokens ADD COLUMN expires INTEGER NOT NULL DEFAULT 0; -- 0: never
` + summedScopes[0].triggers() + `
UPDATE tokens SET may = '` + whole + `';
`
}

// whole is the scope of a token that may do all that its account may.
const whole = "*"

// MostTokenDays is the longest lifetime of a token that expires.
const MostTokenDays = 366

// Token is a token's record, without its secret.
type Token struct {
	ID, User, Name string
	Created        time.Time
	Machine        bool // the one that the machine's owner keeps in a file
	// Whole says that it may do what its account may; otherwise May lists what it was made
	// for.
	Whole   bool
	May     []contract.Capability
	Expires time.Time // zero: never
	Git     *GitScope // set if it is a token for git, which is accepted for nothing else
}

// Scope is the most that the token allows, whatever its account may do.
func (t Token) Scope() contract.CapabilitySet {
	if t.Whole {
		return contract.Everything()
	}
	return contract.SetOf(t.May...)
}

// machineToken is the name of the machine owner's token.
const machineToken = "this machine"

// TokenScope is what an API token is made for.
type TokenScope struct {
	May     []contract.Capability // nil: what its account may
	Expires time.Time             // zero: never
}

func (scope TokenScope) text() string {
	if scope.May == nil {
		return whole
	}
	var words []string
	for _, c := range contract.SetOf(scope.May...).List() {
		words = append(words, string(c))
	}
	return strings.Join(words, " ")
}

// NewToken makes an API token for an account. The secret is returned once.
func (s *Store) NewToken(ctx context.Context, user, name string, scope TokenScope) (Token, string, error) {
	if name == machineToken {
		return Token{}, "", fault.New("identity.NewToken", fault.Invalid, "Choose another name.", errors.New("the name is taken by the machine's own token"))
	}
	return s.newToken(ctx, user, name, scope)
}

func (s *Store) newToken(ctx context.Context, user, name string, scope TokenScope) (Token, string, error) {
	const op = "identity.NewToken"
	secret, hash := newSecret("choir_")
	now := s.millis()
	expires := int64(0)
	if !scope.Expires.IsZero() {
		expires = scope.Expires.UnixMilli()
		if d := expires - now; d <= 0 || d > (MostTokenDays*24*time.Hour).Milliseconds() {
			return Token{}, "", fault.New(op, fault.Invalid, "Choose a shorter time, or none.", errors.New("a token that ends is good for a year at most"))
		}
	}
	id := "t-" + contract.NewID()
	err := s.tx(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "DELETE FROM tokens WHERE user = ? AND expires > 0 AND expires <= ?", user, now); err != nil {
			return err
		}
		if err := atMost(ctx, tx, maxTokens, "API tokens of this account", "Revoke one first.", "SELECT count(*) FROM tokens WHERE user = ?", user); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO tokens (hash, id, user, name, created, may, expires) VALUES (?, ?, ?, ?, ?, ?, ?)", hash, id, user, name, now, scope.text(), expires)
		return err
	})
	if err != nil {
		return Token{}, "", fault.Wrap(op, err)
	}
	return tokenOfRow(id, user, name, now, scope.text(), expires), secret, nil
}

const tokenColumns = "id, user, name, created, may, expires"

func scanToken(row interface{ Scan(...any) error }) (Token, error) {
	var id, user, name, may string
	var created, expires int64
	err := row.Scan(&id, &user, &name, &created, &may, &expires)
	return tokenOfRow(id, user, name, created, may, expires), err
}

// tokenOfRow makes a record of a row. Capabilities that this version does not know are left
// out.
func tokenOfRow(id, user, name string, created int64, may string, expires int64) Token {
	t := Token{ID: id, User: user, Name: name, Created: fromMillis(created), Machine: name == machineToken, Whole: may == whole}
	if !t.Whole {
		for word := range strings.FieldsSeq(may) {
			t.May = append(t.May, contract.Capability(word))
		}
		t.May = contract.SetOf(t.May...).List()
	}
	if expires > 0 {
		t.Expires = fromMillis(expires)
	}
	return t
}

// Token checks an API token. fault.Denied when it is unknown, revoked or has expired.
func (s *Store) Token(ctx context.Context, secret string) (Token, error) {
	const op = "identity.Token"
	refuse := denied(op, "Set CHOIR_TOKEN to a valid token, or unset it to use the running instance's own.", "the API token is not valid, or has expired")
	if !plausible(secret) {
		return Token{}, refuse
	}
	hash := hashOf(secret)
	t, err := remembered(ctx, s, tokenOf(hash), func(ctx context.Context) (Token, bool, error) {
		t, err := scanToken(s.db.QueryRowContext(ctx, "SELECT "+tokenColumns+" FROM tokens WHERE hash = ?", hash))
		return t, true, err
	})
	if errors.Is(err, sql.ErrNoRows) {
		return Token{}, refuse
	}
	if err == nil && s.ended(t) {
		return Token{}, refuse
	}
	t.May = slices.Clone(t.May) // a copy, which the caller may change
	return t, fault.Wrap(op, err)
}

// tokenOf is the key of the question whose token has a hash.
type tokenOf string

// ended says whether a token has expired. It is asked at each use, for remembered tokens do
// not change when they expire.
func (s *Store) ended(t Token) bool {
	return !t.Expires.IsZero() && s.millis() >= t.Expires.UnixMilli() && !defence.Off(defence.GrantExpiry)
}

// Tokens lists an account's valid API tokens, oldest first, then those for git.
func (s *Store) Tokens(ctx context.Context, user string) ([]Token, error) {
	const op = "identity.Tokens"
	out, err := scanAll(ctx, s.db, func(rows *sql.Rows) (Token, error) { return scanToken(rows) },
		"SELECT "+tokenColumns+" FROM tokens WHERE user = ? AND (expires = 0 OR expires > ?) ORDER BY created, id", user, s.millis())
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	git, err := s.gitTokens(ctx, user)
	return append(out, git...), fault.Wrap(op, err)
}

// RevokeToken revokes one of an account's tokens, and the tokens for git that it made, and
// returns their ids. The error is fault.NotFound when the account has none of that id, even
// if somebody else has. The machine's own token can't be revoked this way, for the programs
// of the machine's user need it.
func (s *Store) RevokeToken(ctx context.Context, user, id string) (ended []string, err error) {
	const op = "identity.RevokeToken"
	err = s.tx(ctx, func(tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, "DELETE FROM tokens WHERE id = ? AND user = ? AND name <> ?", id, user, machineToken)
		if err != nil {
			return err
		}
		of := "id = ?1 AND parent <> ?1"
		if n, err := res.RowsAffected(); err != nil {
			return err
		} else if n > 0 {
			of, ended = "parent = ?1", append(ended, id)
		}
		git, err := endGitTokens(ctx, tx, of+" AND user = ?2", id, user)
		ended = append(ended, git...)
		return err
	})
	if err == nil && len(ended) == 0 {
		err = fault.New("", fault.NotFound, "", errors.New("there is no such token"))
	}
	return ended, fault.Wrap(op, err)
}

// MachineToken returns the API token that the machine's owner keeps in file (mode 0600). It
// is the one in the file if that is still valid; otherwise the one given out before ("" for
// none) if that is valid, for the file may have been lost with the keys beside it;
// otherwise a new one, which replaces those made before.
func (s *Store) MachineToken(ctx context.Context, file, given string) (string, error) {
	const op = "identity.MachineToken"
	b, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fault.Wrap(op, err)
	}
	for _, secret := range []string{strings.TrimSpace(string(b)), given} {
		if secret == "" {
			continue
		}
		t, err := s.Token(ctx, secret)
		if err == nil && t.Machine {
			return secret, fault.Wrap(op, s.keepSecret(file, secret))
		}
		if err != nil && !fault.Is(err, fault.Denied) {
			return "", fault.Wrap(op, err)
		}
	}
	owner, err := s.Owner(ctx)
	if err != nil {
		return "", fault.Wrap(op, err)
	}
	if _, err := s.exec(ctx, "DELETE FROM tokens WHERE user = ? AND name = ?", owner.ID, machineToken); err != nil {
		return "", fault.Wrap(op, err)
	}
	_, secret, err := s.newToken(ctx, owner.ID, machineToken, TokenScope{})
	if err != nil {
		return "", fault.Wrap(op, err)
	}
	if err := s.keepSecret(file, secret); err != nil {
		return "", fault.Wrap(op, err)
	}
	return secret, nil
}

// keepSecret writes a secret into a file, readable by its owner only.
func (s *Store) keepSecret(file, secret string) error {
	if b, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(b)) == secret {
		return os.Chmod(file, 0o600)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	write := datadir.WriteFile
	if s.unsynced.Load() {
		write = datadir.WritePassing
	}
	return write(file, []byte(secret+"\n"), 0o600)
}
