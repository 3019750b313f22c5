// Package past answers questions about what has happened in one computer: runs, documents,
// checkpoints, approvals, egress and the log itself. It reads the state's indexes and, for
// events that are not projected yet, the log.
package past

import (
	"context"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/blob"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/view"
)

// Past is what has happened in a computer whose log and state are open.
type Past struct {
	cid   contract.CID
	log   *ledger.Log
	state *state.Store
	blobs blob.Store
	// info describes the computer as it is now.
	info func(context.Context) (view.Computer, error)
}

// New makes a Past. info describes the computer as it is now.
func New(cid contract.CID, log *ledger.Log, s *state.Store, blobs blob.Store, info func(context.Context) (view.Computer, error)) *Past {
	return &Past{cid: cid, log: log, state: s, blobs: blobs, info: info}
}
