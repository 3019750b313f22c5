package state

import (
	"context"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
)

// BlobRefs returns every blob that the projected log refers to, in whatever
// field of whatever type, and the first event that does. What is not among
// them, and is older than any append under way, can go.
func (s *Store) BlobRefs(ctx context.Context) (map[contract.BlobRef]uint64, error) {
	return s.refs(ctx, "state.BlobRefs", "SELECT ref, seq FROM blob_refs")
}

// NamedBlobs returns the blobs without which something the log holds can't be
// read: data of events, outputs of tools, diffs and artifacts of results, and
// what tasks were given; each with an event that names it. Unlike BlobRefs it
// leaves out hashes of content that is kept elsewhere.
func (s *Store) NamedBlobs(ctx context.Context) (map[contract.BlobRef]uint64, error) {
	return s.refs(ctx, "state.NamedBlobs", `SELECT dataref, min(seq) FROM events WHERE dataref <> '' GROUP BY dataref
		UNION ALL SELECT output_ref, min(returned_seq) FROM tool_calls WHERE output_ref <> '' GROUP BY output_ref
		UNION ALL SELECT result ->> '$.diff_ref', finished_seq FROM attempts WHERE result <> '' AND result ->> '$.diff_ref' <> ''
		UNION ALL SELECT a.value ->> '$.ref', finished_seq FROM attempts, json_each(attempts.result, '$.artifacts') a WHERE attempts.result <> ''
		UNION ALL SELECT i.value ->> '$.blob', tasks.seq FROM tasks, json_each(tasks.task, '$.inputs') i WHERE i.value ->> '$.blob' <> ''`)
}

// refs reads rows of a reference and an event.
func (s *Store) refs(ctx context.Context, op, query string) (map[contract.BlobRef]uint64, error) {
	rows, err := s.read.QueryContext(ctx, query)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	defer rows.Close()
	out := map[contract.BlobRef]uint64{}
	for rows.Next() {
		var ref contract.BlobRef
		var seq int64
		if err := rows.Scan(&ref, &seq); err != nil {
			return nil, fault.Wrap(op, err)
		}
		out[ref] = uint64(seq)
	}
	return out, fault.Wrap(op, rows.Err())
}
