package state

import (
	"context"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
)

// BlobRefs returns every blob that the projected log refers to, in whatever field of
// whatever type, and the first event that does. A blob that is not among them, and is older
// than any append under way, can be removed.
func (s *Store) BlobRefs(ctx context.Context) (map[contract.BlobRef]uint64, error) {
	return s.refs(ctx, "state.BlobRefs", "SELECT ref, seq FROM blob_refs")
}

// NeededBlobs returns the blobs without which something the log holds can't be
// read, as contract.Needed says, each with the first event that names it so.
// Unlike BlobRefs it leaves out hashes of content that is kept elsewhere.
func (s *Store) NeededBlobs(ctx context.Context) (map[contract.BlobRef]uint64, error) {
	return s.refs(ctx, "state.NeededBlobs", "SELECT ref, needed FROM blob_refs WHERE needed <> 0")
}

// refs reads rows of a reference and an event.
func (s *Store) refs(ctx context.Context, op, query string) (map[contract.BlobRef]uint64, error) {
	rows, err := s.query(ctx, query)
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
