package dispatch

import (
	"context"

	"choir.dev/choiros/internal/awake"
)

// StoodStill tells the dispatcher that this process did not run for a while.
func (d *Dispatcher) StoodStill(g awake.Gap) { d.stoodStill(g) }

// Closed is closed when the dispatcher closes: whoever stands in for a process
// that died lets go of it then.
func (d *Dispatcher) Closed() <-chan struct{} { return d.ctx.Done() }

// Asking returns how many tasks and questions of a run wait for its user.
func (d *Dispatcher) Asking(id string) int {
	d.mu.Lock()
	r := d.runs[id]
	d.mu.Unlock()
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.waits)
}

// Full returns whether as many tasks are at work, and as many overlays are being removed, as may be.
func (d *Dispatcher) Full() bool {
	return len(d.tasks) == cap(d.tasks) && d.host.Removing()
}

// Parked returns whether a run has left this process, and waits in the log.
func (d *Dispatcher) Parked(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.parked[id] != nil
}

// Awake returns what ends when a run that is under way leaves the process, or ends.
func (d *Dispatcher) Awake(id string) context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.runs[id].awake
}
