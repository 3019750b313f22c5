package computer

import (
	"context"

	"choir.dev/choiros/internal/computer/parts"
	"choir.dev/choiros/internal/view"
)

// Health says how the computer and its parts are, and what its open runs wait for. Apart from its
// name it comes from memory.
func (c *Computer) Health(ctx context.Context) (view.ComputerHealth, error) {
	row, err := c.state.Computer(ctx)
	if err != nil {
		return view.ComputerHealth{}, err
	}
	h := view.ComputerHealth{ID: c.cid, Name: row.Name, State: view.StateAwake, Parts: parts.Shown(c.parts.Tree)}
	if c.runs != nil {
		for _, r := range c.runs.Health(100) { // as many as view.ComputerHealth says at most
			h.Runs = append(h.Runs, view.UnderWay(r))
		}
	}
	switch {
	case c.shell != nil && c.shell.Broken():
		h.State = view.StateBroken
	case len(h.Runs) > 0:
		h.State = view.StateWorking
	}
	return h, nil
}

// Again starts the parts again that were given up.
func (c *Computer) Again() { c.parts.Again() }

// DamageNotes lists, for people, what is damaged. A computer of which only the log and state are
// open is not examined.
func (c *Computer) DamageNotes() []string {
	if c.upkeep == nil {
		return nil
	}
	return c.upkeep.DamageNotes()
}

// Unwatched says, for people, why the files are not watched, if that is known.
func (c *Computer) Unwatched() string {
	if c.workspace == nil {
		return ""
	}
	return c.workspace.Unwatched()
}

// Idle reports whether nothing in the computer keeps it awake: no run that has not ended,
// even if it only waits for its user's answer, which may have a deadline; none of the user's
// own commands; nobody who looks at its desktop, and no build of that. The caller knows
// which requests are under way.
func (c *Computer) Idle() bool {
	return (c.runs == nil || !c.runs.Open()) && (c.Commands == nil || len(c.Running()) == 0) && (c.shell == nil || c.shell.Idle())
}
