package state

import (
	"context"
	"database/sql"
	"time"

	"choir.dev/choiros/contract"
)

// Appended is how much people, apps and programs have appended to a log since some time.
type Appended struct {
	Events int
	Bytes  int64 // of data that stand in the events
	// Blobs are the other events' data, each with how many have it.
	Blobs map[contract.BlobRef]int
}

// Appended counts their events since then.
func (s *Store) Appended(ctx context.Context, since time.Time) (Appended, error) {
	type row struct {
		ref   contract.BlobRef
		n     int
		bytes int64
	}
	rows, err := all(ctx, s, "state.Appended", func(r *sql.Rows) (v row, err error) { return v, r.Scan(&v.ref, &v.n, &v.bytes) },
		`SELECT dataref, count(*), coalesce(sum(length(CAST(data AS BLOB))), 0) FROM events WHERE origin GLOB '*/user' AND time >= ? GROUP BY dataref`, stamp(since))
	out := Appended{Blobs: map[contract.BlobRef]int{}}
	for _, r := range rows {
		out.Events += r.n
		if r.ref == "" {
			out.Bytes += r.bytes
		} else {
			out.Blobs[r.ref] = r.n
		}
	}
	return out, err
}
