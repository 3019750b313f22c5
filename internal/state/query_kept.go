package state

import (
	"context"
	"database/sql"

	"choir.dev/choiros/contract"
)

// KeptTree is the tree of an attempt that was not published, as its result names it. Its
// ref may have been removed since.
type KeptTree struct {
	contract.KeptTree
	Run     string
	Task    string
	Attempt int
	Seq     uint64 // of the result
}

// KeptTree returns the kept tree with a commit id.
func (s *Store) KeptTree(ctx context.Context, commit string) (KeptTree, error) {
	return one(ctx, s, "state.KeptTree", "kept tree "+commit, func(r *sql.Rows) (k KeptTree, err error) {
		return k, r.Scan(&k.Commit, &k.Base, &k.Paths, &k.Run, &k.Task, &k.Attempt, &k.Seq)
	}, `SELECT commit_id, base, paths, run, task, attempt, seq FROM kept_trees WHERE commit_id = ?`, commit)
}
