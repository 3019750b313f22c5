package engine

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/publish"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Kept lists the tasks' trees that outlived their overlays, and removes the refs of the
// oldest as far as it is asked to. What they hold goes as all else that no ref reaches:
// chunks when they are collected, git's objects never.
func (e *Engine) Kept(ctx context.Context, req wire.KeptRequest) (wire.KeptReply, error) {
	const op = "keeper.Kept"
	e.mu.Lock()
	defer e.mu.Unlock()
	reply := wire.KeptReply{Trees: []wire.KeptTree{}}
	refs, err := e.store.Refs(ctx, publish.TaskRefs)
	if err != nil {
		return reply, fault.Wrap(op, err)
	}
	for _, ref := range refs {
		id, kept := strings.CutSuffix(strings.TrimPrefix(ref, publish.TaskRefs+"/"), wire.KeptSuffix)
		if !kept {
			continue
		}
		commit, err := e.store.Ref(ctx, ref)
		if err != nil || commit == "" {
			continue // damaged, which a scrub tells; nobody can go on from it, and it is not removed unread
		}
		c, err := e.store.Commit(ctx, commit)
		if err != nil {
			continue
		}
		reply.Trees = append(reply.Trees, wire.KeptTree{ID: id, Commit: commit, At: max(c.At, c.Time*1000)})
	}
	slices.SortFunc(reply.Trees, func(a, b wire.KeptTree) int {
		return cmp.Or(cmp.Compare(b.At, a.At), strings.Compare(a.ID, b.ID))
	})
	stay := []wire.KeptTree{}
	for i, t := range reply.Trees {
		if t.ID == req.But && req.But != "" || t.At >= req.Before*1000 && (req.Most <= 0 || i < req.Most) {
			stay = append(stay, t)
			continue
		}
		if err := e.store.DeleteRef(ctx, publish.TaskRef(t.ID+wire.KeptSuffix)); err != nil {
			return reply, fault.Wrap(op, err)
		}
		reply.Removed = append(reply.Removed, t.ID)
	}
	reply.Trees = stay
	return reply, nil
}
