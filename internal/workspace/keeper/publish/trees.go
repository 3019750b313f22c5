package publish

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// KeptTrees lists the tasks' trees that outlived their overlays, and removes the refs of the
// oldest as far as it is asked to. What they hold goes as all else that no ref reaches:
// chunks when they are collected, git's objects never.
func (mv *Mover) KeptTrees(ctx context.Context, req wire.KeptRequest) (wire.KeptReply, error) {
	reply := wire.KeptReply{Trees: []wire.KeptTree{}}
	refs, err := mv.store.Refs(ctx, TaskRefs)
	if err != nil {
		return reply, err
	}
	for _, ref := range refs {
		id, kept := strings.CutSuffix(strings.TrimPrefix(ref, TaskRefs+"/"), wire.KeptSuffix)
		if !kept {
			continue
		}
		commit, err := mv.store.Ref(ctx, ref)
		var c wire.Commit
		if err == nil && commit != "" {
			c, err = mv.store.Commit(ctx, commit)
		}
		if ctx.Err() != nil {
			return reply, context.Cause(ctx)
		}
		if err != nil || commit == "" {
			continue // damaged: nobody can go on from it, and it is not removed unread
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
		if err := mv.store.DeleteRef(ctx, TaskRef(t.ID+wire.KeptSuffix)); err != nil {
			return reply, err
		}
		reply.Removed = append(reply.Removed, t.ID)
	}
	reply.Trees = stay
	return reply, nil
}
