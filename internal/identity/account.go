package identity

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
)

// User is an account.
type User struct {
	ID      string
	Name    string
	Claimed bool // somebody has signed in to it with a browser
	Created time.Time
}

// Owner returns the account of the machine's owner, made when it is missing.
func (s *Store) Owner(ctx context.Context) (User, error) {
	const op = "identity.Owner"
	var u User
	err := s.tx(ctx, func(tx *sql.Tx) error {
		var err error
		u, err = scanUser(tx.QueryRowContext(ctx, "SELECT id, name, created, claimed FROM users ORDER BY created, id LIMIT 1"))
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		now := s.millis()
		u = User{ID: "u-" + contract.NewID(), Name: "Owner", Created: fromMillis(now)}
		_, err = tx.ExecContext(ctx, "INSERT INTO users (id, name, created) VALUES (?, ?, ?)", u.ID, u.Name, now)
		return err
	})
	return u, fault.Wrap(op, err)
}

// User returns an account by its id.
func (s *Store) User(ctx context.Context, id string) (User, error) {
	const op = "identity.User"
	u, err := scanUser(s.db.QueryRowContext(ctx, "SELECT id, name, created, claimed FROM users WHERE id = ?", id))
	if errors.Is(err, sql.ErrNoRows) {
		return User{}, fault.New(op, fault.NotFound, "", errors.New("there is no such account"))
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

// NewLink makes a one-time link's token for an account: whoever posts it first
// signs in. It lasts LinkTTL. An account has a few live ones at most; the
// oldest goes.
func (s *Store) NewLink(ctx context.Context, user string) (token string, expires time.Time, err error) {
	const op = "identity.NewLink"
	token, hash := newSecret("")
	now := s.millis()
	end := now + LinkTTL.Milliseconds()
	err = s.tx(ctx, func(tx *sql.Tx) error {
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

// Claim uses a link up and opens a console session for its account. Every
// other link of the account dies with it. fault.Denied when the link is
// unknown, used or expired: the answer is the same for all three.
func (s *Store) Claim(ctx context.Context, token string) (Session, string, error) {
	const op = "identity.Claim"
	refuse := denied(op, "Run choir up again: it prints a new link.", "this link is not valid any more")
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

// Token is an API token's record, without its secret.
type Token struct {
	ID, User, Name string
	Machine        bool // the one that the machine's owner keeps in a file
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
	t := Token{ID: "t-" + contract.NewID(), User: user, Name: name, Machine: name == machineToken}
	_, err := s.db.ExecContext(ctx, "INSERT INTO tokens (hash, id, user, name, created) VALUES (?, ?, ?, ?, ?)", hash, t.ID, user, name, s.millis())
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
	var t Token
	err := s.db.QueryRowContext(ctx, "SELECT id, user, name FROM tokens WHERE hash = ?", hashOf(secret)).Scan(&t.ID, &t.User, &t.Name)
	if errors.Is(err, sql.ErrNoRows) {
		return Token{}, refuse
	}
	t.Machine = t.Name == machineToken
	return t, fault.Wrap(op, err)
}

// RevokeToken makes an API token invalid. One that is not there is no error.
func (s *Store) RevokeToken(ctx context.Context, id string) error {
	_, err := s.db.ExecContext(ctx, "DELETE FROM tokens WHERE id = ?", id)
	return fault.Wrap("identity.RevokeToken", err)
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
			return secret, fault.Wrap(op, keepSecret(file, secret))
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
	if err := keepSecret(file, secret); err != nil {
		return "", fault.Wrap(op, err)
	}
	return secret, nil
}

// keepSecret makes a file hold a secret, for its owner only.
func keepSecret(file, secret string) error {
	if b, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(b)) == secret {
		return os.Chmod(file, 0o600)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return datadir.WriteFile(file, []byte(secret+"\n"), 0o600)
}

// Place is a computer's owner and the handle in its desktop's host name.
type Place struct {
	Computer contract.CID
	Owner    string
	Handle   string
}

// Adopt records a computer under an owner and gives it a handle from its name.
// A computer that is recorded already keeps both.
func (s *Store) Adopt(ctx context.Context, cid contract.CID, owner, name string) (Place, error) {
	const op = "identity.Adopt"
	p := Place{Computer: cid}
	err := s.tx(ctx, func(tx *sql.Tx) error {
		err := tx.QueryRowContext(ctx, "SELECT owner, handle FROM computers WHERE id = ?", string(cid)).Scan(&p.Owner, &p.Handle)
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		p.Owner = owner
		if p.Handle, err = freeHandle(ctx, tx, cid, name); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO computers (id, owner, handle, created) VALUES (?, ?, ?, ?)", string(cid), owner, p.Handle, s.millis())
		return err
	})
	return p, fault.Wrap(op, err)
}

// Rehandle gives a computer a handle from another name. Its desktop then has
// another origin, with storage of its own: only the first claim does this.
func (s *Store) Rehandle(ctx context.Context, cid contract.CID, name string) (Place, error) {
	const op = "identity.Rehandle"
	p := Place{Computer: cid}
	err := s.tx(ctx, func(tx *sql.Tx) error {
		handle, err := freeHandle(ctx, tx, cid, name)
		if err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, "UPDATE computers SET handle = ? WHERE id = ? RETURNING owner, handle", handle, string(cid)).Scan(&p.Owner, &p.Handle)
	})
	if errors.Is(err, sql.ErrNoRows) {
		err = fault.New("", fault.NotFound, "", fmt.Errorf("there is no computer %s", cid))
	}
	return p, fault.Wrap(op, err)
}

// Places returns every recorded computer, oldest first.
func (s *Store) Places(ctx context.Context) (_ []Place, err error) {
	const op = "identity.Places"
	rows, err := s.db.QueryContext(ctx, "SELECT id, owner, handle FROM computers ORDER BY created, id")
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	var out []Place
	for rows.Next() {
		var p Place
		if err := rows.Scan(&p.Computer, &p.Owner, &p.Handle); err != nil {
			return nil, fault.Wrap(op, err)
		}
		out = append(out, p)
	}
	return out, fault.Wrap(op, rows.Err())
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
	var p Place
	err := s.db.QueryRowContext(ctx, "SELECT id, owner, handle FROM computers WHERE "+column+" = ?", value).Scan(&p.Computer, &p.Owner, &p.Handle)
	if errors.Is(err, sql.ErrNoRows) {
		return Place{}, fault.New(op, fault.NotFound, "", errors.New("there is no such computer"))
	}
	return p, fault.Wrap(op, err)
}

// maxHandle leaves room for a suffix within a DNS label.
const maxHandle = 40

// freeHandle makes a DNS label from name that no other computer has.
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

// slug keeps what a DNS label may hold. A label that starts with xn-- would be
// read as punycode; hyphens in a row become one.
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
