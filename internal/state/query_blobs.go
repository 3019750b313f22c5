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
	const op = "state.BlobRefs"
	rows, err := s.read.QueryContext(ctx, "SELECT ref, seq FROM blob_refs")
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

// NamedBlobs returns the blobs without which something the log holds can't be
// read: data of events and outputs of tools, each with an event that names it.
// Unlike BlobRefs it leaves out hashes of content that is kept elsewhere.
func (s *Store) NamedBlobs(ctx context.Context) (map[contract.BlobRef]uint64, error) {
	const op = "state.NamedBlobs"
	rows, err := s.read.QueryContext(ctx, `SELECT dataref, min(seq) FROM events WHERE dataref <> '' GROUP BY dataref
		UNION ALL SELECT output_ref, min(returned_seq) FROM tool_calls WHERE output_ref <> '' GROUP BY output_ref`)
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
