package computer

import (
	"context"
	"fmt"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/supervise"
)

// serviceBackoff is the pause before a service that failed several times is
// started again.
const serviceBackoff = 2 * time.Second

// newServices makes the supervisor of the computer's own goroutines. If a service keeps
// failing, this computer is put to sleep, and no other.
func (c *Computer) newServices(ctx context.Context, backoff time.Duration) *supervise.Tree {
	return supervise.New(ctx, supervise.Options{
		Name:      string(c.cid),
		Backoff:   backoff,
		Passes:    func(err error) bool { return fault.Is(err, fault.DiskFull) },
		OnFailure: c.serviceFailed,
		Escalate:  func(err error) { c.machine.ServicesFailed(c, err) },
	})
}

// own runs a service of the computer until it closes, and starts it again when it ends.
func (c *Computer) own(what string, f func(context.Context) error) { c.services.Service(what, f) }

// once runs a function in the background that ends by itself.
func (c *Computer) once(what string, f func(context.Context) error) { c.services.Task(what, f) }

// serviceFailed records a failure in the program's log, for the operator, and in the
// computer's log, for its user.
func (c *Computer) serviceFailed(ctx context.Context, f supervise.Failure) {
	c.logger.Error(f.Service+" failed", "error", f.Err, "in_row", f.InRow, "again", f.Again, "stack", supervise.Stack(f.Err))
	text := fault.Text(f.Err)
	if c.log == nil {
		return
	}
	if err := c.note(ctx, "service.failed", contract.ServiceFailed{Service: f.Service, Error: contract.Line(text), InRow: f.InRow, Again: f.Again}); err != nil {
		c.logger.Warn("a service's failure could not be recorded", "service", f.Service, "error", err)
	}
}

// troubles lists, for people, the services that are failing.
func (c *Computer) troubles() []string {
	var out []string
	for _, h := range c.services.Health() {
		text := fault.Text(h.Err)
		out = append(out, fmt.Sprintf("%s has failed %d times in a row since %s and is tried again: %s",
			h.Service, h.Failures, h.Since.Format("15:04"), contract.Line(text)))
	}
	return out
}

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
