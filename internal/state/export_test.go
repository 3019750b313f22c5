package state

import (
	"context"
	"fmt"
	"strings"
)

// HasProjection reports whether events of a type are projected.
func HasProjection(eventType string) bool { _, ok := projections[eventType]; return ok }

// WithSchema opens a store with an older schema.
var WithSchema = withSchema

// LimitPages bounds the file as a full disk would.
func (s *Store) LimitPages(ctx context.Context, n int) error {
	var got int // SQLite does not go below the file's present size
	return s.write.conn.QueryRowContext(ctx, fmt.Sprintf("PRAGMA max_page_count = %d", n)).Scan(&got)
}

// Plans makes the store report SQLite's query plan for each query of a list when it is made.
func (s *Store) Plans(tell func(op, plan string)) {
	s.asked = func(op, query string, args []any) {
		rows, err := s.read.Query("EXPLAIN QUERY PLAN "+query, args...)
		if err != nil {
			tell(op, err.Error())
			return
		}
		defer rows.Close()
		var lines []string
		for rows.Next() {
			var id, parent, unused int
			var detail string
			if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
				detail = err.Error()
			}
			lines = append(lines, detail)
		}
		tell(op, strings.Join(lines, "; "))
	}
}
