package state

import (
	"context"
	"database/sql"
	"errors"
	"sync"
)

// maxReads bounds how many prepared queries are kept. There are fewer: only lists with
// filters have more than one text.
const maxReads = 256

// reads are the store's queries, parsed once for each connection: parsing costs as much as
// most of the answers.
type reads struct {
	mu sync.Mutex
	by map[string]*sql.Stmt
}

// ready returns a prepared query, preparing it if need be; nil when there is no room for
// it.
func (r *reads) ready(ctx context.Context, db *sql.DB, query string) (*sql.Stmt, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if st := r.by[query]; st != nil || len(r.by) == maxReads {
		return st, nil
	}
	st, err := db.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	if r.by == nil {
		r.by = map[string]*sql.Stmt{}
	}
	r.by[query] = st
	return st, nil
}

func (r *reads) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, st := range r.by {
		errs = append(errs, st.Close())
	}
	r.by = nil
	return errors.Join(errs...)
}

// query runs a query that returns rows.
func (s *Store) query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	st, err := s.reads.ready(ctx, s.read, query)
	switch {
	case err != nil:
		return nil, err
	case st == nil:
		return s.read.QueryContext(ctx, query, args...)
	}
	return st.QueryContext(ctx, args...)
}

// row runs a query that returns one row and scans it; sql.ErrNoRows without one.
func (s *Store) row(ctx context.Context, query string, args []any, into ...any) error {
	rows, err := s.query(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	if !rows.Next() {
		return errors.Join(rows.Err(), sql.ErrNoRows)
	}
	return errors.Join(rows.Scan(into...), rows.Close())
}
