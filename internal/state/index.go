package state

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"

	"choir.dev/choiros/internal/fault"
)

// LastSeq is the newest sequence the index covers; the appender keeps what is
// newer itself.
func (s *Store) LastSeq(context.Context) (uint64, error) { return s.Last(), nil }

// ByID finds the first event with a contract.Origin and id. Digest is contract.Digest
// of the event. Without one, ok is false.
func (s *Store) ByID(ctx context.Context, origin, id string) (seq uint64, digest [sha256.Size]byte, ok bool, err error) {
	var sum []byte
	err = s.row(ctx, "SELECT seq, digest FROM events WHERE origin = ? AND id = ? AND duplicate = 0", []any{origin, id}, &seq, &sum)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, digest, false, nil
	case err != nil:
		return 0, digest, false, fault.Wrap("state.ByID", err)
	case len(sum) != sha256.Size:
		return 0, digest, false, fault.New("state.ByID", fault.Invalid, "Run choir rebuild.", fmt.Errorf("event %d has a digest of %d bytes", seq, len(sum)))
	}
	copy(digest[:], sum)
	return seq, digest, true, nil
}

// LastBySubject is the sequence of the newest event about subject, 0 when
// there is none.
func (s *Store) LastBySubject(ctx context.Context, subject string) (uint64, error) {
	if subject == "" {
		return 0, nil
	}
	var seq uint64
	err := s.row(ctx, "SELECT coalesce(max(seq), 0) FROM events WHERE subject = ? AND subject <> ''", []any{subject}, &seq)
	return seq, fault.Wrap("state.LastBySubject", err)
}
