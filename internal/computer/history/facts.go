package history

import (
	"context"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer/facts"
	"choir.dev/choiros/internal/memory"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/view"
)

// factsOf returns the facts that an event is about, and what undoing it undoes; nothing if it is about none.
func factsOf(id string, data contract.Payload) ([]string, view.UndoneKind) {
	switch p := data.(type) {
	case *contract.MemoryRemembered:
		return []string{id}, view.UndoneRemember
	case *contract.MemoryRestored:
		return p.Facts, view.UndoneRemember
	case *contract.MemoryForgotten:
		return p.Facts, view.UndoneForget
	}
	return nil, ""
}

// undoFacts has facts forgotten that were remembered, with what follows from them, or kept again that were forgotten.
func (h *History) undoFacts(ctx context.Context, a act, r view.RestoreRequest) (view.Restored, error) {
	out := view.Restored{DryRun: r.DryRun, Changes: []contract.Change{}, Kept: []view.Kept{}, Unkept: view.Unkept{Paths: []view.UnkeptPath{}}}
	var rows []state.Fact
	var err error
	switch m := h.options.Memory; {
	case r.DryRun:
		rows, err = h.wouldChange(ctx, a)
	case a.What == view.UndoneForget:
		rows, err = m.Restore(ctx, r.By, a.facts)
	default:
		rows, err = m.Forget(ctx, r.By, a.facts...)
	}
	if err != nil {
		return out, err
	}
	out.Facts = facts.Of(rows)
	if !r.DryRun {
		out.Sequence = h.options.Log.Last()
	}
	return out, nil
}

// wouldChange lists the facts that an undo would change, as they would be then.
func (h *History) wouldChange(ctx context.Context, a act) ([]state.Fact, error) {
	kept, err := h.options.Memory.Kept(ctx)
	if err != nil {
		return nil, err
	}
	rows := memory.Following(kept, a.facts...)
	if a.What == view.UndoneForget {
		rows = nil
		for _, id := range a.facts {
			f, err := h.options.State.Fact(ctx, id)
			if err != nil {
				return nil, err
			}
			if !f.Kept {
				rows = append(rows, f)
			}
		}
	}
	for i := range rows {
		rows[i].Kept = a.What == view.UndoneForget
	}
	return rows, nil
}
