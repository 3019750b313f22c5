package state

import (
	"context"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
)

// BlobRefs returns every blob that the projected log refers to: data too large
// for their events, tools' outputs, and the diffs and artifacts of results.
// What is not among them, and is older than any append under way, can go.
func (s *Store) BlobRefs(ctx context.Context) (map[contract.BlobRef]bool, error) {
	const op = "state.BlobRefs"
	rows, err := s.read.QueryContext(ctx, `
		SELECT dataref FROM events WHERE dataref <> ''
		UNION SELECT output_ref FROM tool_calls WHERE output_ref <> ''
		UNION SELECT result ->> '$.diff_ref' FROM attempts WHERE result <> '' AND result ->> '$.diff_ref' IS NOT NULL
		UNION SELECT a.value ->> '$.ref' FROM attempts, json_each(attempts.result, '$.artifacts') a WHERE attempts.result <> ''
		UNION SELECT i.value ->> '$.blob' FROM tasks, json_each(tasks.task, '$.inputs') i WHERE i.value ->> '$.blob' IS NOT NULL`)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	defer rows.Close()
	out := map[contract.BlobRef]bool{}
	for rows.Next() {
		var ref contract.BlobRef
		if err := rows.Scan(&ref); err != nil {
			return nil, fault.Wrap(op, err)
		}
		out[ref] = true
	}
	return out, fault.Wrap(op, rows.Err())
}
