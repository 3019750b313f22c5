package computer

// Idle reports whether nothing keeps the computer awake by itself: no run that has
// not ended, be it that it waits for its user's answer and its deadline, none of the
// user's own commands, nobody who looks at its desktop, and no build of that. What
// is asked of it meanwhile its caller knows.
func (c *Computer) Idle() bool {
	return (c.runs == nil || !c.runs.Open()) && (c.Commands == nil || len(c.Running()) == 0) && (c.shell == nil || c.shell.Idle())
}
