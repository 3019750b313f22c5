package identity

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// Newest is the newest version of the file.
var Newest = len(migrations)

// MembersSince is the version from which on computers have members.
const MembersSince = membersSince

// Lay makes an empty file of a version.
func Lay(ctx context.Context, path string, version int) error {
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		return err
	}
	s := &Store{db: db, now: time.Now}
	return errors.Join(s.migrate(ctx, version), db.Close())
}

// Kept is how many answers are kept.
func (s *Store) Kept() int {
	s.answers.mu.Lock()
	defer s.answers.mu.Unlock()
	return len(s.answers.kept)
}

// LoseWatch closes the connection by which answers notice what changed.
func (s *Store) LoseWatch() error { return s.answers.watch.Close() }
