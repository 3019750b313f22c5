package identity

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"time"
)

// Newest is the newest version of the schema.
var Newest = len(migrations())

// MembersSince is the version from which on computers have members.
const MembersSince = membersSince

// ScopesSince is the version from which on tokens have scopes.
const ScopesSince = scopesSince

// ChangesSince is the version from which on changes are counted.
const ChangesSince = changesSince

// Lay makes an empty file of a version of the schema.
func Lay(ctx context.Context, path string, version int) error {
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		return err
	}
	s := &Store{db: db, now: time.Now}
	return errors.Join(s.migrate(ctx, version), db.Close())
}

// Kept is how many answers are in memory.
func (s *Store) Kept() int {
	s.answers.mu.Lock()
	defer s.answers.mu.Unlock()
	return len(s.answers.kept)
}

// LoseWatch makes the connection fail that detects changes of the file.
func (s *Store) LoseWatch() {
	s.answers.mu.Lock()
	defer s.answers.mu.Unlock()
	s.answers.asks = lost{s.answers.asks.(asking)}
}

type asking interface {
	driver.Stmt
	driver.StmtQueryContext
}

type lost struct{ asking }

func (lost) QueryContext(context.Context, []driver.NamedValue) (driver.Rows, error) {
	return nil, errors.New("the disk is gone")
}

// NewSecret draws a secret.
func NewSecret(prefix string) string {
	secret, _ := newSecret(prefix)
	return secret
}
