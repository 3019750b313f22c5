package dispatch

// Asking is how many tasks and questions of a run wait for its user.
func (d *Dispatcher) Asking(id string) int {
	r, err := d.find("", id)
	if err != nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asking
}
