package state

import (
	"context"
	"fmt"
)

// HasProjection reports whether a type has one.
func HasProjection(eventType string) bool { _, ok := projections[eventType]; return ok }

// WithSchema opens at an older schema.
var WithSchema = withSchema

// LimitPages bounds the file as a full disk would.
func (s *Store) LimitPages(ctx context.Context, n int) error {
	var got int // SQLite does not go below what the file has
	return s.write.conn.QueryRowContext(ctx, fmt.Sprintf("PRAGMA max_page_count = %d", n)).Scan(&got)
}
