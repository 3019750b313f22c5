package identity

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/fault"
)

// Token is an API token's record, without its secret.
type Token struct {
	ID, User, Name string
	Created        time.Time
	Machine        bool      // the one that the machine's owner keeps in a file
	Git            *GitScope // of one for git, which is good for nothing else
}

// machineToken is the name of that one.
const machineToken = "this machine"

// NewToken makes an API token for an account. The secret is returned once.
func (s *Store) NewToken(ctx context.Context, user, name string) (Token, string, error) {
	if name == machineToken {
		return Token{}, "", fault.New("identity.NewToken", fault.Invalid, "Choose another name.", errors.New("the name is taken by the machine's own token"))
	}
	return s.newToken(ctx, user, name)
}

func (s *Store) newToken(ctx context.Context, user, name string) (Token, string, error) {
	const op = "identity.NewToken"
	secret, hash := newSecret("choir_")
	now := s.millis()
	t := Token{ID: "t-" + contract.NewID(), User: user, Name: name, Created: fromMillis(now), Machine: name == machineToken}
	err := s.tx(ctx, func(tx *sql.Tx) error {
		if err := atMost(ctx, tx, maxTokens, "API tokens of this account", "Revoke one first.", "SELECT count(*) FROM tokens WHERE user = ?", user); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO tokens (hash, id, user, name, created) VALUES (?, ?, ?, ?, ?)", hash, t.ID, user, name, now)
		return err
	})
	if err != nil {
		return Token{}, "", fault.Wrap(op, err)
	}
	return t, secret, nil
}

// Token checks an API token. fault.Denied when it is unknown or revoked.
func (s *Store) Token(ctx context.Context, secret string) (Token, error) {
	const op = "identity.Token"
	refuse := denied(op, "Set CHOIR_TOKEN to a valid token, or unset it to use the running instance's own.", "the API token is not valid")
	if !plausible(secret) {
		return Token{}, refuse
	}
	hash := hashOf(secret)
	t, err := remembered(ctx, s, tokenOf(hash), func(ctx context.Context) (t Token, keep bool, err error) {
		err = s.db.QueryRowContext(ctx, "SELECT id, user, name FROM tokens WHERE hash = ?", hash).Scan(&t.ID, &t.User, &t.Name)
		t.Machine = t.Name == machineToken
		return t, true, err
	})
	if errors.Is(err, sql.ErrNoRows) {
		return Token{}, refuse
	}
	return t, fault.Wrap(op, err)
}

// tokenOf asks whose token has a hash.
type tokenOf string

// Tokens lists an account's API tokens, oldest first, then those for git.
func (s *Store) Tokens(ctx context.Context, user string) ([]Token, error) {
	const op = "identity.Tokens"
	out, err := scanAll(ctx, s.db, func(rows *sql.Rows) (Token, error) {
		var t Token
		var created int64
		err := rows.Scan(&t.ID, &t.User, &t.Name, &created)
		t.Machine, t.Created = t.Name == machineToken, fromMillis(created)
		return t, err
	}, "SELECT id, user, name, created FROM tokens WHERE user = ? ORDER BY created, id", user)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	git, err := s.gitTokens(ctx, user)
	return append(out, git...), fault.Wrap(op, err)
}

// RevokeToken makes one of an account's tokens invalid, and those for git that it
// made, and returns their ids. fault.NotFound when the account has none of that id:
// somebody else's is as if it were not there. The machine's own is not revoked so,
// for the programs that this user starts need it.
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

// MachineToken returns the API token that the machine's owner keeps in file
// (mode 0600): the one there if it is still valid, else the one that was given
// out before ("" for none) if that is, for the file may have gone with the keys
// beside it, else a new one, which replaces those it made before.
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
	if _, err := s.db.ExecContext(ctx, "DELETE FROM tokens WHERE user = ? AND name = ?", owner.ID, machineToken); err != nil {
		return "", fault.Wrap(op, err)
	}
	_, secret, err := s.newToken(ctx, owner.ID, machineToken)
	if err != nil {
		return "", fault.Wrap(op, err)
	}
	if err := s.keepSecret(file, secret); err != nil {
		return "", fault.Wrap(op, err)
	}
	return secret, nil
}

// keepSecret makes a file hold a secret, for its owner only.
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
